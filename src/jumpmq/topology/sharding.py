"""Sharded exchanges, as RabbitMQ's sharding plugin makes them: a policy with ``shards-per-node`` on any exchange.

The shards are queues of their own, bound to the exchange; the exchange's name stands for all of them, as a
*pseudo-queue*, where a queue is consumed from, got from or declared. Shards outlive what made them: a lower number, a
cleared policy and a deleted exchange leave them where they are, for they may hold messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import QUEUE_TYPES, Queue
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import Bind, Change, DeclareExchange, DeclareQueue, SetPolicy, Unbind
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange, make_exchange
from jumpmq.topology.policies import InvalidPolicy, Policies, Policy, policy_of
from jumpmq.topology.shards import MAX_NAME, MAX_SHARDS, ShardSettings, shard_name, shard_names
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Shard:
    """Summary of a shard.

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
        """True if the shard has messages and no consumer."""
        return self.messages > 0 and not self.consumers


def _unreachable(queue: DeclaredQueue) -> float:
    return math.inf


class Sharding:
    """Finds the shards on this node, and derives the changes that make and bind the shards of all nodes."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._turn = 0  # how often a message was got from a pseudo-queue

    @property
    def _node(self) -> str:
        return self._topology.node

    # --- as policies, exchanges and nodes change ---

    def check(self, change: Change) -> None:
        """Refuse a change that would shard an unsuitable exchange.

        Raises:
            InvalidPolicy: by the policy an exchange that is there cannot be sharded, or too many shards are to be made.
            PreconditionFailed: the policy in force wants to shard the exchange, and that is not possible.
        """
        match change:
            case SetPolicy():
                self._check_policy(self._topology.vhost(change.vhost), policy_of(change))
            case DeclareExchange(definition):
                vhost = self._topology.vhost(definition.vhost)
                settings = settings_under(vhost.policies, definition.name)
                if settings is not None and definition.name not in vhost.exchanges:
                    if (problem := self._problem(make_exchange(definition), settings)) is not None:
                        raise PreconditionFailed(problem)
                    made = settings.count * len(self._topology.nodes)
                    if (problem := _beyond_limits(vhost, f"exchange '{definition.name}'", made)) is not None:
                        raise PreconditionFailed(problem)

    def _check_policy(self, vhost: VirtualHost, policy: Policy) -> None:
        if (settings := ShardSettings.of(policy.definition)) is None:
            return
        policies, new_shards = vhost.policies.with_policy(policy), 0
        for exchange in vhost.exchanges.values():
            if not exchange.name or policies.in_force("exchange", exchange.name).policy is not policy:
                continue
            if (problem := self._problem(exchange, settings)) is not None:
                raise InvalidPolicy(problem)
            before = vhost.sharding(exchange)
            new_shards += max(0, settings.count - (before.count if before is not None else 0))
        if new_shards > MAX_SHARDS:
            raise InvalidPolicy(f"policy would make {new_shards} shards, at most {MAX_SHARDS} may be made at once")
        if (problem := _beyond_limits(vhost, "policy", new_shards * len(self._topology.nodes))) is not None:
            raise InvalidPolicy(problem)

    def follow(self, vhost: VirtualHost, policies: Policies) -> Iterator[Change]:
        """Yield the changes that follow from new policies: shards are made, bound and unbound."""
        for exchange in vhost.exchanges.values():
            if exchange.name:
                after = settings_under(policies, exchange.name)
                yield from self.reshard(vhost, exchange, vhost.sharding(exchange), after)

    def missing(self, vhost: VirtualHost, ended: Set[str]) -> Iterator[Change]:
        """Yield the changes that make and bind missing shards, for example the shards of a new node.

        Args:
            ended: names of queues that are still there, and will not be.
        """
        for exchange in vhost.exchanges.values():
            yield from self.reshard(vhost, exchange, None, vhost.sharding(exchange), ended)

    def reshard(
        self,
        vhost: VirtualHost,
        exchange: Exchange,
        before: ShardSettings | None,
        after: ShardSettings | None,
        ended: Set[str] = frozenset(),
    ) -> Iterator[Change]:
        """Yield the changes from one sharding of an exchange to the next; correct shards stay.

        Args:
            before, after: how it is sharded; None where it is not.
            ended: as in :meth:`missing`.
        """
        if before is not None and (after is None or _binding_key(exchange, after) != _binding_key(exchange, before)):
            for binding, _ in self._bindings(exchange, before):
                if binding in exchange.bindings:
                    yield Unbind(vhost.name, binding)
        if after is None or self._problem(exchange, after) is not None:
            return
        for binding, home in self._bindings(exchange, after):
            is_new = binding.destination in ended or binding.destination not in vhost.declared
            if is_new:
                yield DeclareQueue(self._shard(vhost, exchange, after, binding.destination, home))
            if is_new or binding not in exchange.bindings:
                yield Bind(vhost.name, binding)

    def _shard(
        self, vhost: VirtualHost, exchange: Exchange, settings: ShardSettings, name: str, home: int
    ) -> QueueDefinition:
        """Return a shard's definition: durable if the exchange is, or if the queue type requires durability."""
        durable, arguments = exchange.durable, NO_ARGUMENTS
        if settings.queue_type is not None:
            durable = durable or QUEUE_TYPES[settings.queue_type].always_durable
            arguments = Arguments.of({"x-queue-type": settings.queue_type})
        defined = self._topology.define_queue(vhost.name, name, durable=durable, arguments=arguments, home=home)
        return self._topology.number(defined)

    def _bindings(self, exchange: Exchange, settings: ShardSettings) -> Iterator[tuple[Binding, int]]:
        """Yield the bindings of an exchange's shards, with the shards' homes: round robin over the homes of a node."""
        key = _binding_key(exchange, settings)
        for node, found in self._topology.nodes.items():
            homes = [home for home in found if home not in self._topology.left] or found
            for number in range(settings.count):
                name = shard_name(exchange.name, node, number)
                yield Binding(exchange.name, "queue", name, key), homes[number % len(homes)]

    def _problem(self, exchange: Exchange, settings: ShardSettings) -> str | None:
        """Return the reason against sharding an exchange; None if there is none."""
        if not settings.count:
            return None
        subject = f"exchange '{exchange.name}' in vhost '{exchange.vhost}' cannot be sharded"
        for node in self._topology.nodes:
            last = shard_name(exchange.name, node, settings.count - 1)
            if len(last.encode()) > MAX_NAME:
                return f"{subject}: its shards' names would be longer than {MAX_NAME} octets"
        try:
            binding = Binding(exchange.name, "queue", last, _binding_key(exchange, settings))
            exchange.check(binding, settings.queue_type or "classic")
        except PreconditionFailed as error:
            return f"{subject}: {error.text}"
        return None

    # --- the pseudo-queue ---

    def local_shard(
        self, vhost: VirtualHost, name: str, consumers_of: Callable[[DeclaredQueue], float] = _unreachable
    ) -> str:
        """Return the queue to consume from: for a pseudo-queue, the local shard with the fewest consumers, preferably
        at this process's home, then with the lowest number; otherwise ``name``.

        Args:
            consumers_of: number of consumers that a shard of another home is known to have; infinite if none can be
                there.
        """
        settings = self._pseudo_queue(vhost, name)
        if settings is None:
            return name
        best, fewest = shard_name(name, self._node, 0), math.inf
        for declared in sorted(self.local_shards(vhost, name), key=lambda one: one.contents is None):
            if declared.contents is not None:
                count: float = len(declared.contents.consumers)
            else:
                count = consumers_of(declared)
            if count < fewest:
                best, fewest = declared.name, count
                if not fewest:
                    break
        return best

    def is_pseudo_queue(self, vhost: VirtualHost, name: str) -> bool:
        """Return True if a queue name is that of a sharded exchange."""
        return self._pseudo_queue(vhost, name) is not None

    def first_shard(self, name: str) -> str:
        """The queue to declare where a pseudo-queue is: shard 0 here."""
        return shard_name(name, self._node, 0)

    def local_shards(self, vhost: VirtualHost, name: str) -> list[DeclaredQueue]:
        """Return the shards of a pseudo-queue on this node, in order, with those moved here; empty for
        further names.
        """
        settings = self._pseudo_queue(vhost, name)
        if settings is None:
            return []
        found = (vhost.declared.get(shard) for shard in shard_names(name, self._node, settings.count))
        moved = vhost.moved_shards(name, self._node, self._topology.nodes.get(self._node, ()))
        return [one for one in found if one is not None] + moved

    def next_turn(self) -> int:
        """Return an increasing number for round robin among shards."""
        self._turn += 1
        return self._turn

    def refuse(self, vhost: VirtualHost, name: str, operation: str) -> None:
        """Refuse an operation unsupported by pseudo-queues.

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
        """Return the local shards of an exchange in order, including surplus ones."""
        found = vhost.shards_of(exchange, self._node)
        total = sum(queue.message_count for _, queue in found)
        shards = []
        for number, queue in found:
            share = queue.message_count / total if total else 0.0
            skew = share * len(found)
            shards.append(Shard(queue, number, queue.message_count, len(queue.consumers), share, skew))
        return shards


def settings_under(policies: Policies, exchange: str) -> ShardSettings | None:
    """Return the sharding of an exchange under policies; None if not sharded, as always for the default exchange."""
    return ShardSettings.of(policies.in_force("exchange", exchange).definition) if exchange else None


def _beyond_limits(vhost: VirtualHost, subject: str, new_shards: int) -> str | None:
    """Return the reason if a virtual host may not have ``new_shards`` more shards; otherwise None."""
    for what, count in (("queue", len(vhost.declared)), ("binding", vhost.binding_count)):
        limit = vhost.limits.get(f"max-{what}s", -1)
        if new_shards and 0 <= limit < count + new_shards:
            return (
                f"{subject} would make {new_shards} shards, beyond the {what} limit in vhost '{vhost.name}' ({limit})"
            )
    return None


def _binding_key(exchange: Exchange, settings: ShardSettings) -> bytes:
    """Return the binding key of shards: by default empty, but weight 1 on a consistent hash exchange."""
    if settings.routing_key is not None:
        return settings.routing_key.encode()
    return b"1" if isinstance(exchange, ConsistentHashExchange) else b""
