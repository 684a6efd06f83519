"""Sharded exchanges, as RabbitMQ's sharding plugin makes them: a policy with ``shards-per-node`` on any exchange.

The shards are queues of their own, bound to the exchange; the exchange's name stands for all of them, as a
*pseudo-queue*, where a queue is consumed from, got from or declared. Shards outlive what made them: a lower number, a
cleared policy and a deleted exchange leave them where they are, for they may hold messages.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import Queue
from jumpmq.topology import erlang, rules
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import Bind, DeclareQueue, Unbind
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange
from jumpmq.topology.policies import InvalidPolicy, Policy
from jumpmq.topology.shards import MAX_NAME, MAX_SHARDS, ShardSettings, parse_shard_name, shard_name, shard_names
from jumpmq.topology.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard, at a glance.

    Attributes:
        number: from 0; those from ``shards-per-node`` on are left from when it was higher.
        messages: ready and unacknowledged.
        share: its part of the messages of all shards, 0 to 1; 0 where there are none.
        skew: ``share`` in relation to an even one: 1 is even, 2 is twice as much; 0 where there are no messages.
    """

    queue: Queue
    number: int
    messages: int
    consumers: int
    share: float
    skew: float

    @property
    def is_stranded(self) -> bool:
        """Whether it has messages and nobody to consume them."""
        return self.messages > 0 and not self.consumers


class Sharding:
    """Makes, binds and finds the shards on a node.

    Args:
        node: the name of the node.
        declare: declares a queue.
    """

    def __init__(self, node: str, declare: Callable[[DeclareQueue], Queue]) -> None:
        self._node = node
        self._declare = declare

    # --- as policies and exchanges change ---

    def check_policy(self, vhost: VirtualHost, policy: Policy) -> None:
        """Refuse a policy by which an exchange that is there cannot be sharded.

        Raises:
            InvalidPolicy: with the reason, or the limit on the number of new shards.
        """
        policies, new_shards = vhost.policies.with_policy(policy), 0
        for exchange in vhost.exchanges.values():
            if not exchange.name or policies.in_force("exchange", exchange.name).policy is not policy:
                continue
            if (settings := ShardSettings.of(policy.definition)) is not None:
                if (problem := self._problem(exchange, settings)) is not None:
                    raise InvalidPolicy(problem)
                before = vhost.sharding(exchange)
                new_shards += max(0, settings.count - (before.count if before is not None else 0))
        if new_shards > MAX_SHARDS:
            raise InvalidPolicy(f"policy would make {new_shards} shards, at most {MAX_SHARDS} may be made at once")

    def check(self, vhost: VirtualHost, exchange: Exchange) -> None:
        """
        Raises:
            PreconditionFailed: the policy in force wants to shard the exchange, and that is not possible.
        """
        settings = vhost.sharding(exchange)
        if settings is not None and (problem := self._problem(exchange, settings)) is not None:
            raise PreconditionFailed(problem)

    def follow(self, vhost: VirtualHost, exchange: Exchange, before: ShardSettings | None) -> None:
        """Shard an exchange as the policy in force says; make shards that are missing.

        Args:
            before: how it was sharded until now.
        """
        after = vhost.sharding(exchange)
        if after is not None and exchange.auto_delete:  # before its last binding goes, and the exchange with it
            self._add(vhost, exchange, after)
        if before is not None and (after is None or after.routing_key != before.routing_key):
            self._unbind(vhost, exchange, before)
        if after is not None:
            self._add(vhost, exchange, after)

    def release(self, vhost: VirtualHost, exchange: str) -> None:
        """The exchange is gone: what were its shards are queues like others."""
        for queue, _ in self._queues(vhost, exchange):
            vhost.follow_queue(queue)

    def _add(self, vhost: VirtualHost, exchange: Exchange, settings: ShardSettings) -> None:
        if self._problem(exchange, settings) is not None:
            return
        for binding in self._bindings(exchange, settings):
            queue = vhost.queues.get(binding.destination)
            if queue is None:
                self._declare(DeclareQueue(vhost.name, binding.destination, durable=exchange.durable))
            else:
                vhost.follow_queue(queue)
            rules.bind(vhost, Bind(vhost.name, binding))

    def _unbind(self, vhost: VirtualHost, exchange: Exchange, settings: ShardSettings) -> None:
        for binding in self._bindings(exchange, settings):
            rules.unbind(vhost, Unbind(vhost.name, binding))

    def _bindings(self, exchange: Exchange, settings: ShardSettings) -> list[Binding]:
        key = _binding_key(exchange, settings)
        names = shard_names(exchange.name, self._node, settings.count)
        return [Binding(exchange.name, "queue", name, key) for name in names]

    def _problem(self, exchange: Exchange, settings: ShardSettings) -> str | None:
        """Why an exchange cannot be sharded, or None."""
        if not settings.count:
            return None
        subject = f"exchange '{exchange.name}' in vhost '{exchange.vhost}' cannot be sharded"
        last = shard_name(exchange.name, self._node, settings.count - 1)
        if len(last.encode()) > MAX_NAME:
            return f"{subject}: its shards' names would be longer than {MAX_NAME} octets"
        try:
            exchange.check(Binding(exchange.name, "queue", last, _binding_key(exchange, settings)))
        except PreconditionFailed as error:
            return f"{subject}: {error.text}"
        return None

    # --- the pseudo-queue ---

    def local_shard(self, vhost: VirtualHost, name: str) -> str:
        """The queue to consume from where ``name`` is asked for: of a pseudo-queue, the shard here with the fewest
        consumers, and of several the one with the lowest number.
        """
        settings = self._pseudo_queue(vhost, name)
        if settings is None:
            return name
        best, fewest = shard_name(name, self._node, 0), math.inf
        for shard in shard_names(name, self._node, settings.count):
            queue = vhost.queues.get(shard)
            if queue is not None and len(queue.consumers) < fewest:
                best, fewest = shard, len(queue.consumers)
                if not fewest:
                    break
        return best

    def first_shard(self, vhost: VirtualHost, name: str) -> str:
        """The queue to declare where ``name`` is asked for: of a pseudo-queue, shard 0 here."""
        return name if self._pseudo_queue(vhost, name) is None else shard_name(name, self._node, 0)

    def refuse(self, vhost: VirtualHost, name: str, operation: str) -> None:
        """Refuse what cannot be done to a pseudo-queue.

        Args:
            operation: what is wanted, such as ``purge``.

        Raises:
            PreconditionFailed: ``name`` is a pseudo-queue.
        """
        if self._pseudo_queue(vhost, name) is not None:
            raise PreconditionFailed(f"Can't {operation} sharded queue: {erlang.binary(name.encode())}")

    def _pseudo_queue(self, vhost: VirtualHost, name: str) -> ShardSettings | None:
        exchange = vhost.exchanges.get(name)
        return vhost.sharding(exchange) if exchange is not None else None

    # --- looking at them ---

    def shards(self, vhost: VirtualHost, exchange: str) -> list[Shard]:
        """The shards of an exchange here in order, also those left from when there were more."""
        found = self._queues(vhost, exchange)
        total = sum(queue.message_count for queue, _ in found)
        shards = []
        for queue, number in found:
            share = queue.message_count / total if total else 0.0
            skew = share * len(found)
            shards.append(Shard(queue, number, queue.message_count, len(queue.consumers), share, skew))
        return shards

    def _queues(self, vhost: VirtualHost, exchange: str) -> list[tuple[Queue, int]]:
        found = []
        for queue in vhost.queues.values():
            parsed = parse_shard_name(queue.name, self._node)
            if parsed is not None and parsed[0] == exchange:
                found.append((queue, parsed[1]))
        return sorted(found, key=lambda one: one[1])


def _binding_key(exchange: Exchange, settings: ShardSettings) -> bytes:
    """What shards are bound with: nothing if the policy is silent, but weight 1 where it must be a weight."""
    if settings.routing_key is not None:
        return settings.routing_key.encode()
    return b"1" if isinstance(exchange, ConsistentHashExchange) else b""
