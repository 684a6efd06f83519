"""Warnings of sharded exchanges: hidden queues, and shards without consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING

from jumpmq.http.rates import Rates
from jumpmq.http.shards import ShardSummary, shards_of
from jumpmq.http.warnings.warning import Warning
from jumpmq.topology import VirtualHost

if TYPE_CHECKING:
    from jumpmq.broker import Broker

SHARDED = 200
"""Maximum number of sharded exchanges checked."""


def sharded_exchanges(broker: Broker) -> list[tuple[VirtualHost, str]]:
    """Return sharded exchanges, at most :data:`SHARDED`."""
    found = [
        (host, exchange.name)
        for host in broker.topology.vhosts.values()
        for exchange in host.exchanges.values()
        if host.in_force.sharding(exchange) is not None
    ]
    return found[:SHARDED]


async def warnings_of_shards(
    broker: Broker, rates: Rates, read: Collection[tuple[str, str]], host: VirtualHost, name: str
) -> AsyncIterator[Warning]:
    """Yield the warnings of a queue hidden behind a sharded exchange, and of shards without consumers next to served
    shards.

    Args:
        read: virtual host and name of each queue read by a reader group.
    """
    if name in host.declared:
        yield Warning(
            "hidden-queue",
            "warning",
            "exchange",
            host.name,
            name,
            f"Queue '{name}' is hidden: exchange '{name}' is sharded, and consumers of this name get its shards.",
            "Move the queue's messages to the exchange, and delete the queue.",
            queue=name,
        )
    found = [one for one in await shards_of(broker, host, name) if not one.down]
    idle = [shard for shard in found if not shard.consumers and (host.name, shard.queue.name) not in read]
    waiting = sum(shard.messages for shard in idle)
    growth = sum(rates.last_growth(shard.queue.id) for shard in idle)
    if not idle or (len(idle) == len(found) and not waiting):
        return
    have, several = "has" if len(idle) == 1 else "have", len(_by_node(found)) > 1
    yield Warning(
        "shard-without-consumer",
        "warning",
        "shards",
        host.name,
        name,
        f"{len(idle)} of {len(found)} shards of '{name}' {have} no consumer ({_numbers(idle, several)}): "
        f"{waiting:,} messages wait there.",
        _consume_more(name, idle, several),
        messages=waiting,
        growth=round(growth, 1),
    )


def _by_node(shards: list[ShardSummary]) -> dict[str, list[ShardSummary]]:
    found: dict[str, list[ShardSummary]] = {}
    for one in shards:
        found.setdefault(one.of, []).append(one)
    return found


def _numbers(shards: list[ShardSummary], several: bool) -> str:
    """Format the numbers of shards, with nodes if there are several."""
    numbers = {
        node: ", ".join(str(one.number) for one in of[:8]) + (", ..." if len(of) > 8 else "")
        for node, of in _by_node(shards).items()
    }
    return "; ".join(f"number {those} of {node}" if several else f"number {those}" for node, those in numbers.items())


def _consume_more(name: str, idle: list[ShardSummary], several: bool) -> str:
    """Return the advice to consume from the exchange's name, which serves a shard at the client's node."""
    where = [
        ("once more" if len(of) == 1 else f"{len(of)} more times") + (f" at {node}" if several else "")
        for node, of in _by_node(idle).items()
    ]
    of_node = " of its node" if several else ""
    return (
        f"Consume from '{name}' {', '.join(where)}, on separate connections or channels: each consumer gets the shard"
        f"{of_node} with the fewest consumers."
    )
