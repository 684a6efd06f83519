"""Shards of pseudo-queues, as RabbitMQ's sharding plugin has them: a policy with ``shards-per-node`` on any exchange.

The shards are queues, bound to the exchange by :mod:`jumpmq.topology.changes.resharding`. Where clients consume, get or
declare, the exchange's name stands for all shards, as a *pseudo-queue*. A lower number of shards, a cleared policy or a
deleted exchange does not delete shards, because they may hold messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import Queue
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.shards import ShardSettings, shard_name, shard_names
from jumpmq.topology.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class Shard:
    """Summary of a shard.

    Attributes:
        number: number from 0; shards from ``shards-per-node`` on are left over from a higher value.
        messages: number of ready and unacknowledged messages.
        share: share of the messages of all shards, 0 to 1; 0 without messages.
        skew: ratio of ``share`` to an even share: 1 is even, 2 is twice as much; 0 without messages.
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


class ShardedTopology(Protocol):
    """The nodes of a broker; see :class:`~jumpmq.topology.state.State`."""

    node: str

    @property
    def nodes(self) -> Mapping[str, Collection[int]]: ...


class Sharding:
    """Finds the shards of this node."""

    def __init__(self, topology: ShardedTopology) -> None:
        self._topology = topology
        self._turn = 0  # number of messages got from pseudo-queues

    @property
    def _node(self) -> str:
        return self._topology.node

    def local_shard(
        self, vhost: VirtualHost, name: str, consumers_of: Callable[[DeclaredQueue], float] = _unreachable
    ) -> str:
        """Return the queue to consume from: for a pseudo-queue, the local shard with the fewest consumers, preferably
        at this process's home, then with the lowest number; otherwise ``name``.

        Args:
            consumers_of: number of consumers of a remote shard, as known here; infinite if it cannot have consumers.
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
        """Return the queue for a declaration of a pseudo-queue: the local shard 0."""
        return shard_name(name, self._node, 0)

    def local_shards(self, vhost: VirtualHost, name: str) -> list[DeclaredQueue]:
        """Return the shards of a pseudo-queue on this node, in order, with those moved here; empty for
        further names.
        """
        settings = self._pseudo_queue(vhost, name)
        if settings is None:
            return []
        found = (vhost.declared.get(shard) for shard in shard_names(name, self._node, settings.count))
        moved = vhost.shards.moved(name, self._node, self._topology.nodes.get(self._node, ()))
        return [one for one in found if one is not None] + moved

    def next_turn(self) -> int:
        """Return an increasing number for round robin among shards."""
        self._turn += 1
        return self._turn

    def refuse(self, vhost: VirtualHost, name: str, operation: str) -> None:
        """Refuse an operation unsupported by pseudo-queues.

        Args:
            operation: refused operation, such as ``purge``.

        Raises:
            PreconditionFailed: ``name`` is a pseudo-queue.
        """
        if self._pseudo_queue(vhost, name) is not None:
            raise PreconditionFailed(f"Can't {operation} sharded queue: {erlang.binary(name.encode())}")

    def _pseudo_queue(self, vhost: VirtualHost, name: str) -> ShardSettings | None:
        exchange = vhost.exchanges.get(name)
        return vhost.in_force.sharding(exchange) if exchange is not None else None

    def shards(self, vhost: VirtualHost, exchange: str) -> list[Shard]:
        """Return the local shards of an exchange in order, including surplus ones."""
        found = vhost.shards.contents(exchange, self._node)
        total = sum(queue.message_count for _, queue in found)
        shards = []
        for number, queue in found:
            share = queue.message_count / total if total else 0.0
            skew = share * len(found)
            shards.append(Shard(queue, number, queue.message_count, len(queue.consumers), share, skew))
        return shards
