"""Metrics of hash rings: messages of a ring's queues compared with the weights. JumpMQ's own.

A queue's messages are all messages received since the broker's start, from any exchange. The metrics show a ring's
balance only for queues that receive from this ring alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from starlette.requests import Request

from jumpmq.http.plumbing import requested
from jumpmq.http.resources.object_families import Family, Figure, lines
from jumpmq.topology import ConsistentHashExchange, Exchange
from jumpmq.topology.exchanges import ModulusHashExchange
from jumpmq.topology.exchanges.consistent_hash import label

PREFIX = "jumpmq_"


class RingShare(NamedTuple):
    """A queue's part of a ring.

    Attributes:
        weight, weights: buckets of the queue, and of all queues of the ring.
        messages, total: messages received by the queue, and by all queues of the ring.
    """

    exchange: ConsistentHashExchange
    name: str
    weight: int
    weights: int
    messages: int
    total: int

    def figures(self) -> tuple[float | None, ...]:
        ratio = (self.messages / self.total) / (self.weight / self.weights) if self.total else None
        return self.weight, self.messages, self.messages / self.weight, ratio and round(ratio, 6)


SHARES = Family(
    "ring",
    ("vhost", "exchange", "destination"),
    lambda share: (share.exchange.vhost, share.exchange.name, share.name),
    (
        Figure("ring_buckets", "Buckets of a destination: the weight"),
        Figure("ring_messages", "Messages received by a ring's queue", counted=True),
        Figure("ring_messages_per_bucket", "Messages received by weight"),
        Figure("ring_share_ratio", "Share of messages divided by share of weight: 1 is even"),
    ),
    lambda request: RingShare.figures,
)
MISSING = Family(
    "ring",
    ("vhost", "exchange"),
    lambda exchange: (exchange.vhost, exchange.name),
    (Figure("ring_missing", "Messages without the hashed header or property", counted=True),),
    lambda request: lambda exchange: (requested.broker(request).figures.missing(exchange),),
)


async def rings(request: Request) -> dict[str, list[str]]:
    """Return the metrics of all rings: lines of text by metric."""
    hosts = requested.broker(request).topology.vhosts.values()
    exchanges = [exchange for host in hosts for exchange in host.exchanges.values()]
    found = [exchange for exchange in exchanges if isinstance(exchange, ConsistentHashExchange)]
    shares = chain.from_iterable([await _shares(request, exchange) for exchange in found])
    by_value = [one for one in exchanges if isinstance(one, ModulusHashExchange) and one.hashed is not None]
    return await lines(request, SHARES, PREFIX, shares) | await lines(request, MISSING, PREFIX, [*found, *by_value])


async def _shares(request: Request, exchange: ConsistentHashExchange) -> Iterator[RingShare]:
    broker = requested.broker(request)
    host = broker.topology.vhosts[exchange.vhost]
    queues = [one for one in dict.fromkeys(exchange.bindings.values()) if not isinstance(one, Exchange)]
    found = await broker.figures.counts([host.declared[queue.name].definition for queue in queues])
    counts = {label(queue): count[0] for queue, count in zip(queues, found, strict=True) if count is not None}
    weights = {name: weight for name, weight in exchange.ring.destinations.items() if name in counts}
    buckets, total = sum(weights.values()), sum(counts.values())
    return (RingShare(exchange, name, weight, buckets, counts[name], total) for name, weight in weights.items())
