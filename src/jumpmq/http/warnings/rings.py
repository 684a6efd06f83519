"""Warnings of hash rings: missing headers, hot keys, and skew."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from jumpmq.broker.figures.values import RingTrafficFigures
from jumpmq.hashing.chi_squared import ChiSquared
from jumpmq.http.ring_counts import together
from jumpmq.http.spread import spread_of_keys, spread_of_messages
from jumpmq.http.warnings.warning import Warning
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.exchanges.traffic import CountedKeys

if TYPE_CHECKING:
    from jumpmq.broker import Broker

RINGS = 200
"""Maximum number of rings checked."""

UNLIKELY = 0.001
"""p-value below which an uneven spread is not a coincidence."""

UNEVEN = 1.25
"""Ratio of a destination's messages to its weight from which skew matters. With many messages even a tiny skew is
statistically significant.
"""

HOT = 0.1
"""Share of a ring's messages from which a key is hot."""

FEW = 200
"""Minimum number of messages on a ring for a statement on spread."""

KEYS_A_DESTINATION = 20
"""Number of distinct keys per destination below which shares are uneven because of too few keys."""


async def rings_with_traffic(broker: Broker) -> list[tuple[ConsistentHashExchange, list[RingTrafficFigures]]]:
    """Return rings with traffic, at most :data:`RINGS`, with the homes' counts."""
    parts: dict[tuple[str, str], list[RingTrafficFigures]] = {}
    if next(broker.ring_traffic.exchanges(), None) is None:  # no home needs to be asked
        return []
    for one in await broker.figures.ring_traffic():
        parts.setdefault((one.vhost, one.exchange), []).append(one)
    found = []
    for (vhost, name), of in list(parts.items())[:RINGS]:
        host = broker.topology.vhosts.get(vhost)
        exchange = None if host is None else host.exchanges.get(name)
        if isinstance(exchange, ConsistentHashExchange):
            found.append((exchange, of))
    return found


async def warnings_of_ring(
    broker: Broker, exchange: ConsistentHashExchange, parts: list[RingTrafficFigures]
) -> AsyncIterator[Warning]:
    """Yield the warnings of a ring with traffic, given the homes' counts."""
    counts = together(parts, exchange.ring.names)
    if counts is None:
        return
    counted, slices = counts.counted, broker.slices
    total = sum(counted.messages)
    if not total:
        return
    if counted.missing and exchange.hashed is not None:
        yield _missing(exchange, counted, total, counts.missing_since_start)
    weights = dict(exchange.ring.destinations)
    await slices.next()
    test = spread_of_messages(weights, counted)
    if test is None or total < FEW or test.p_value > UNLIKELY:
        return
    ratio, share, name = _fullest_destination(weights, counted.messages)
    if ratio < UNEVEN:
        return
    hottest = counted.frequent[0] if counted.frequent else None
    lower = (hottest.messages - hottest.error) / total if hottest is not None else 0.0
    if hottest is not None and lower >= HOT and hottest.destination == name:
        key = hottest.key.decode("utf-8", "backslashreplace")
        yield _of_exchange(
            exchange,
            "hot-key",
            f"The key '{key}' has {percent(lower)} of the messages to '{exchange.name}': all go to '{name}', "
            f"which gets {percent(share)} instead of the {percent(share / ratio)} expected by weight.",
            "More queues do not help: one key stays in one queue. Divide the key (append a part, if order does not "
            f"matter), or give '{name}' faster consumers.",
            name,
        )
    elif not counted.missing or counted.missing < 0.1 * total:
        whole = together(await broker.figures.ring_traffic(exchange.vhost, exchange.name), exchange.ring.names)
        if whole is not None:
            spread = spread_of_keys(weights, whole.keys)
            yield _skew(exchange, whole.counted, spread, name, share, share / ratio)


def _missing(exchange: ConsistentHashExchange, counted: CountedKeys, total: int, since_start: int) -> Warning:
    kind, what = exchange.hashed or ("header", "")
    went = exchange.missing_destination
    return _of_exchange(
        exchange,
        "missing-header",
        f"{counted.missing:,} of {total:,} recent messages to '{exchange.name}' lack the hashed {kind} '{what}': "
        f"all go to '{went}'. Since the start: {since_start:,}.",
        f"Publishers must set the {kind} '{what}' on every message.",
        went or "",
    )


def _skew(
    exchange: ConsistentHashExchange,
    counted: CountedKeys,
    keys: ChiSquared | None,
    name: str,
    share: float,
    expected: float,
) -> Warning:
    text = (
        f"'{name}' gets {percent(share)} of the messages to '{exchange.name}'; expected by weight: {percent(expected)}."
    )
    if counted.all_keys < KEYS_A_DESTINATION * len(counted.names):
        advice = f"The ring has only about {counted.all_keys} distinct keys: hash a value with more distinct keys."
    elif keys is None or keys.p_value > UNLIKELY:
        advice = "The keys are spread evenly, but some have more messages than others: see the ring's hottest keys."
    else:
        advice = "The keys are spread unevenly: compare weights and shares on the ring."
    return _of_exchange(exchange, "skew", text, advice, name)


def _fullest_destination(weights: Mapping[str, int], messages: list[int]) -> tuple[float, float, str]:
    """Return the destination with most messages for its weight: ratio to the expectation, share, name."""
    total, buckets = sum(messages), sum(weights.values())
    return max(
        (count / total * buckets / weight, count / total, name)
        for (name, weight), count in zip(weights.items(), messages, strict=True)
    )


def _of_exchange(exchange: ConsistentHashExchange, kind: str, text: str, advice: str, queue: str) -> Warning:
    return Warning(kind, "warning", "exchange", exchange.vhost, exchange.name, text, advice, queue)


def percent(share: float) -> str:
    """Format a share as the page does: 13 % for 0.125, 7.1 % for 0.071."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 10 else f"{math.floor(value + 0.5)} %"
