"""Queues of a virtual host with names of shards, for all nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from jumpmq.queues import Queue
from jumpmq.topology.grouped import discard

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue

Shards = dict[tuple[str, int], "DeclaredQueue"]
"""Queues by node and number."""


class ShardTable:
    """Queues with names of shards, by exchange. The exchange need not exist."""

    def __init__(self) -> None:
        self._by_exchange: dict[str, Shards] = {}

    def add(self, declared: DeclaredQueue) -> None:
        """Add a queue, if named as a shard, in place of one with equal name."""
        if (shard := declared.shard) is not None:
            self._by_exchange.setdefault(shard[0], {})[declared.definition.node, shard[1]] = declared

    def remove(self, declared: DeclaredQueue) -> None:
        """Remove a queue, if named as a shard."""
        if (shard := declared.shard) is not None:
            discard(self._by_exchange, shard[0], (declared.definition.node, shard[1]))

    def merge(self, coming: Mapping[str, Shards]) -> None:
        """Add the shards of exchanges."""
        for exchange, shards in coming.items():
            self._by_exchange.setdefault(exchange, {}).update(shards)

    def named(self, exchange: str) -> Iterable[DeclaredQueue]:
        """Return the shards of an exchange, in no order."""
        return self._by_exchange.get(exchange, {}).values()

    def everywhere(self, exchange: str) -> list[tuple[str, int, DeclaredQueue]]:
        """Return the shards of an exchange on all nodes, by node and number."""
        found = self._by_exchange.get(exchange, {})
        return [(*place, found[place]) for place in sorted(found)]

    def of_node(self, exchange: str, node: str) -> list[tuple[int, DeclaredQueue]]:
        """Return the shards of an exchange on a node, by number, at any of its homes."""
        found = self._by_exchange.get(exchange, {})
        return [(number, found[named, number]) for named, number in sorted(found) if named == node]

    def contents(self, exchange: str, node: str) -> list[tuple[int, Queue]]:
        """As :meth:`of_node`, but the contents of the shards at this home."""
        numbered = [(number, declared.contents) for number, declared in self.of_node(exchange, node)]
        return [(number, queue) for number, queue in numbered if queue is not None]

    def moved(self, exchange: str, node: str, homes: Collection[int]) -> list[DeclaredQueue]:
        """Return the shards of other nodes that have moved to one of the given homes of the local node."""
        found = self._by_exchange.get(exchange, {})
        return [one for (named, _), one in found.items() if named != node and one.definition.home in homes]
