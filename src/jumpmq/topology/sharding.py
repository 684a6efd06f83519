"""Sharded exchanges, as RabbitMQ's sharding plugin makes them: a policy with ``shards-per-node`` on any exchange.

The shards are queues of their own, bound to the exchange; the exchange's name stands for all of them, as a
*pseudo-queue*, where a queue is consumed from, got from or declared. Shards outlive what made them: a lower number, a
cleared policy and a deleted exchange leave them where they are, for they may hold messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import QUEUE_TYPES, Queue
from jumpmq.topology import erlang
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import Bind, Change, ClearPolicy, DeclareExchange, DeclareQueue, SetPolicy, Unbind
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange, make_exchange
from jumpmq.topology.policies import InvalidPolicy, Policy, policy_of
from jumpmq.topology.shards import MAX_NAME, MAX_SHARDS, ShardSettings, shard_name, shard_names
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.topology import Topology


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
    """Finds the shards on a node, and says by which changes they are made and bound.

    Args:
        node: the name of the node.
        define: :meth:`Topology.define_queue`.
    """

    def __init__(self, node: str, define: Callable[..., QueueDefinition]) -> None:
        self._node = node
        self._define = define

    # --- as policies and exchanges change ---

    def steps(self, topology: Topology, change: Change) -> Iterator[Change]:
        """A change that the rules admit, and what sharding adds to it; see :meth:`Topology.steps`.

        Raises:
            InvalidPolicy: by the policy an exchange that is there cannot be sharded, or too many shards are to be made.
            PreconditionFailed: the policy in force wants to shard the exchange, and that is not possible.
        """
        match change:
            case SetPolicy():
                vhost = topology.vhost(change.vhost)
                self._check_policy(vhost, policy_of(change))
                yield from self._policy_steps(vhost, change)
            case ClearPolicy():
                yield from self._policy_steps(topology.vhost(change.vhost), change)
            case DeclareExchange():
                yield from self._exchange_steps(topology.vhost(change.definition.vhost), change)
            case _:
                yield change

    def missing(self, vhost: VirtualHost) -> Iterator[Change]:
        """What makes and binds the shards that this node lacks, as one whose name is new does."""
        for exchange in list(vhost.exchanges.values()):
            yield from self._reshard(vhost, exchange, None)

    def _policy_steps(self, vhost: VirtualHost, change: Change) -> Iterator[Change]:
        before = {exchange: vhost.sharding(exchange) for exchange in vhost.exchanges.values()}
        yield change
        for exchange, settings in before.items():
            yield from self._reshard(vhost, exchange, settings)

    def _exchange_steps(self, vhost: VirtualHost, change: DeclareExchange) -> Iterator[Change]:
        definition = change.definition
        in_force = vhost.policies.in_force("exchange", definition.name)
        settings = ShardSettings.of(in_force.definition)
        if settings is None or definition.name in vhost.exchanges:
            yield change
            return
        if (problem := self._problem(make_exchange(definition), settings)) is not None:
            raise PreconditionFailed(problem)
        yield change
        yield from self._reshard(vhost, vhost.exchanges[definition.name], None)

    def _check_policy(self, vhost: VirtualHost, policy: Policy) -> None:
        if ShardSettings.of(policy.definition) is None:
            return
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
        for what, count in (("queue", len(vhost.queues)), ("binding", vhost.binding_count)):
            limit = vhost.limits.get(f"max-{what}s", -1)
            if new_shards and 0 <= limit < count + new_shards:
                text = (
                    f"policy would make {new_shards} shards, beyond the {what} limit in vhost '{vhost.name}' ({limit})"
                )
                raise InvalidPolicy(text)

    def _reshard(self, vhost: VirtualHost, exchange: Exchange, before: ShardSettings | None) -> Iterator[Change]:
        """Shard an exchange as the policy in force says; make shards that are missing.

        Args:
            before: how it was sharded until now.
        """
        after = vhost.sharding(exchange)
        if after is not None and exchange.auto_delete:  # before its last binding goes, and the exchange with it
            yield from self._bind(vhost, exchange, after)
        if before is not None and (after is None or after.routing_key != before.routing_key):
            for binding in self._bindings(exchange, before):
                if binding in exchange.bindings:
                    yield Unbind(vhost.name, binding)
        if after is not None:
            yield from self._bind(vhost, exchange, after)

    def _bind(self, vhost: VirtualHost, exchange: Exchange, settings: ShardSettings) -> Iterator[Change]:
        """Bind the shards of an exchange, made where they are missing, as long as it is there and sharded so."""
        if self._problem(exchange, settings) is not None:
            return
        for binding in self._bindings(exchange, settings):
            if not _is_sharded(vhost, exchange, settings):
                return
            if binding.destination not in vhost.queues:
                yield DeclareQueue(self._shard(vhost, exchange, settings, binding.destination))
            is_missing = binding not in exchange.bindings and binding.destination in vhost.queues
            if is_missing and _is_sharded(vhost, exchange, settings):
                yield Bind(vhost.name, binding)

    def _shard(self, vhost: VirtualHost, exchange: Exchange, settings: ShardSettings, name: str) -> QueueDefinition:
        """A shard's definition: as durable as its exchange, unless its kind of queue always is."""
        if settings.queue_type is None:
            return self._define(vhost.name, name, durable=exchange.durable)
        durable = exchange.durable or QUEUE_TYPES[settings.queue_type].always_durable
        arguments = Arguments.of({"x-queue-type": settings.queue_type})
        return self._define(vhost.name, name, durable=durable, arguments=arguments)

    def _bindings(self, exchange: Exchange, settings: ShardSettings) -> Iterator[Binding]:
        key = _binding_key(exchange, settings)
        for name in shard_names(exchange.name, self._node, settings.count):
            yield Binding(exchange.name, "queue", name, key)

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
        found = vhost.shards_of(exchange, self._node)
        total = sum(queue.message_count for _, queue in found)
        shards = []
        for number, queue in found:
            share = queue.message_count / total if total else 0.0
            skew = share * len(found)
            shards.append(Shard(queue, number, queue.message_count, len(queue.consumers), share, skew))
        return shards


def _is_sharded(vhost: VirtualHost, exchange: Exchange, settings: ShardSettings) -> bool:
    """Whether the exchange is still there, and to be sharded so."""
    return vhost.exchanges.get(exchange.name) is exchange and vhost.sharding(exchange) == settings


def _binding_key(exchange: Exchange, settings: ShardSettings) -> bytes:
    """What shards are bound with: nothing if the policy is silent, but weight 1 where it must be a weight."""
    if settings.routing_key is not None:
        return settings.routing_key.encode()
    return b"1" if isinstance(exchange, ConsistentHashExchange) else b""
