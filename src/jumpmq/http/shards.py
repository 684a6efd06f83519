"""The shards of an exchange at a glance, wherever their homes are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jumpmq.topology import VirtualHost
from jumpmq.topology.definitions import QueueDefinition

if TYPE_CHECKING:
    from jumpmq.broker import Broker


class Shard(NamedTuple):
    """One shard, at a glance: as :class:`jumpmq.topology.Shard`, wherever its home is."""

    queue: QueueDefinition
    number: int
    messages: int
    consumers: int
    share: float
    skew: float


async def shards_of(broker: Broker, host: VirtualHost, exchange: str) -> list[Shard]:
    """The shards of an exchange on this node in order, also those left from when there were more."""
    declared = host.declared_shards_of(exchange, broker.node)
    figures = await broker.figures.queues([one.definition for _, one in declared])
    found = [(number, one, told) for (number, one), told in zip(declared, figures, strict=True) if told is not None]
    total = sum(told.ready + told.unacknowledged for _, _, told in found)
    shards = []
    for number, one, told in found:
        messages = told.ready + told.unacknowledged
        share = messages / total if total else 0.0
        shards.append(Shard(one.definition, number, messages, told.consumers, share, share * len(found)))
    return shards
