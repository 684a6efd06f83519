"""The policies in force for the queues and exchanges of a virtual host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from jumpmq.queues import QUEUE_TYPES, Queue
from jumpmq.topology.policies import NOTHING_IN_FORCE, InForce, Policies
from jumpmq.topology.queue_arguments import queue_type_of
from jumpmq.topology.shards import ShardSettings

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue
    from jumpmq.topology.exchanges import Destination, Exchange
    from jumpmq.topology.shard_table import ShardTable


class PolicedHost(Protocol):
    """A virtual host, from the point of view of its policies; see :class:`~jumpmq.topology.vhost.VirtualHost`."""

    exchanges: dict[str, Exchange]
    declared: dict[str, DeclaredQueue]
    policies: Policies
    shards: ShardTable


class PoliciesInForce:
    """The policies in force by queue and exchange, and their effect: limits of queues, alternates of exchanges."""

    def __init__(self, host: PolicedHost) -> None:
        self._host = host
        self._in_force: dict[Destination, InForce] = {}  # by destination; only destinations with a policy
        self._changes = 0  # number of changes of policies; a new change ends the steps of an earlier one

    def of(self, destination: Destination) -> InForce:
        """Return the policy and operator policy in force for a queue or exchange."""
        return self._in_force.get(destination, NOTHING_IN_FORCE)

    def sharding(self, exchange: Exchange) -> ShardSettings | None:
        """Return the sharding of an exchange; None if not sharded, as always for the default exchange."""
        return ShardSettings.of(self.of(exchange).definition) if exchange.name else None

    def follow(self) -> Iterator[None]:
        """Apply changed policies: to exchanges at once, to queues one per step.

        If the policies change again before the last step, the remaining steps end: the steps of the later change apply
        everything.
        """
        for exchange in self._host.exchanges.values():
            self.follow_exchange(exchange)
        self._changes += 1
        return self._follow_queues(self._changes)

    def _follow_queues(self, change: int) -> Iterator[None]:
        for declared in list(self._host.declared.values()):
            if change != self._changes:
                return
            if self._host.declared.get(declared.name) is declared:
                self.follow_queue(declared)
            yield

    def follow_shards(self, exchange: str) -> None:
        """Update the queues named as shards of an exchange that was added or removed."""
        for declared in self._host.shards.named(exchange):
            self.follow_queue(declared)

    def follow_queue(self, declared: DeclaredQueue) -> None:
        """Apply arguments, policies, and the policy of a shard's exchange to a queue."""
        self.hold(declared.destination, self.prepare_queue(declared, self._host.policies))

    def prepare_queue(self, declared: DeclaredQueue, policies: Policies, coming: str | None = None) -> InForce:
        """Apply policies to a present or future queue; return the policies in force.

        Args:
            coming: name of an exchange about to be added.
        """
        queue = declared.contents
        kind = QUEUE_TYPES[queue_type_of(declared.definition.arguments)] if queue is None else queue
        in_force = policies.in_force("queue", declared.name, kind.refused_policy_keys, kind.type)
        if queue is not None:
            self._limit(queue, declared.shard, in_force, policies, coming)
        return in_force

    def _limit(
        self, queue: Queue, shard: tuple[str, int] | None, in_force: InForce, policies: Policies, coming: str | None
    ) -> None:
        limits = queue.limits_under(in_force.definition)
        if shard is not None and (shard[0] in self._host.exchanges or shard[0] == coming):
            settings = ShardSettings.of(policies.in_force("exchange", shard[0]).definition)
            if settings is not None and settings.single_active_consumer:
                limits = limits.serving_one()
        if limits != queue.limits:
            queue.set_limits(limits)

    def follow_exchange(self, exchange: Exchange) -> None:
        """Apply arguments and policies to an exchange."""
        in_force = self._host.policies.in_force("exchange", exchange.name)
        self.hold(exchange, in_force)
        if exchange.name:  # as in RabbitMQ, the default exchange has no policy
            exchange.alternate = exchange.declared_alternate or in_force.definition.get("alternate-exchange")

    def hold(self, destination: Destination, in_force: InForce) -> None:
        """Note the policies of a queue or exchange, as found by :meth:`prepare_queue`."""
        if in_force is NOTHING_IN_FORCE:
            self._in_force.pop(destination, None)
        else:
            self._in_force[destination] = in_force

    def forget(self, destination: Destination) -> None:
        """Forget a deleted queue or exchange."""
        self._in_force.pop(destination, None)

    def merge(self, coming: Mapping[Destination, InForce]) -> None:
        """Note the policies of many queues."""
        self._in_force |= coming
