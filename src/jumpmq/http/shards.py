"""Summaries of the shards of an exchange, at all homes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jumpmq.topology import VirtualHost
from jumpmq.topology.definitions import QueueDefinition

if TYPE_CHECKING:
    from jumpmq.broker import Broker


class ShardSummary(NamedTuple):
    """Summary of a shard, local or remote, like :class:`jumpmq.topology.Shard`.

    Attributes:
        of: node in the shard's name.
        number: number in the shard's name.
        node: node that serves the shard.
        down: True if the home does not answer. The number of messages is then unknown, and 0.
        messages: ready and unacknowledged messages.
        share: share of the messages of all shards; ``skew`` is this share relative to an even share.
    """

    queue: QueueDefinition
    of: str
    number: int
    node: str
    down: bool
    messages: int
    consumers: int
    share: float
    skew: float


async def shards_of(broker: Broker, host: VirtualHost, exchange: str) -> list[ShardSummary]:
    """Return the shards of an exchange on all nodes, in the order of nodes and numbers.

    Shards that remain after the exchange was reduced are included.
    """
    declared = host.shards.everywhere(exchange)
    figures = await broker.figures.queues([one.definition for _, _, one in declared])
    found = [(*one, told) for one, told in zip(declared, figures, strict=True) if told is not None]
    total = sum(told.ready + told.unacknowledged for *_, told in found)
    shards = []
    for node, number, one, told in found:
        messages = told.ready + told.unacknowledged
        share = messages / total if total else 0.0
        where, down = broker.topology.node_of(one.definition.home), told.state == "down"
        shards.append(
            ShardSummary(one.definition, node, number, where, down, messages, told.consumers, share, share * len(found))
        )
    return shards
