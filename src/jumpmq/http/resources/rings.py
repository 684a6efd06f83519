"""``/api/exchanges/{vhost}/{exchange}/ring``: owners of buckets, and their traffic. JumpMQ's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.hashing.chi_squared import ChiSquared
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_long
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.ring_counts import RingCounts, together
from jumpmq.http.spread import spread_of_keys, spread_of_messages
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.exchanges.traffic import CountedKeys, FrequentKey

if TYPE_CHECKING:
    from jumpmq.broker import Broker

HOTTEST = 20
"""Maximum number of hot keys shown."""

PLACES = 6
"""Decimal places of shares, and significant digits of probabilities."""


async def ring(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/ring``: the hash ring of a consistent hash exchange.

    Buckets are shown as runs, ``[first, count]``, because a ring may have millions of buckets. Destinations are in
    order of binding. An exchange as destination is called ``exchange:NAME``.
    """
    return answer_long(request, _shown(hash_exchange(request)))


async def traffic(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/ring/traffic``: traffic over the ring in the last minutes, from clients
    of all nodes.

    Each destination has ``share`` (by weight), ``messages``, and ``keys`` (estimated number of distinct keys).
    ``spread`` is the chi-squared test of the counts against the weights: ``p_value`` is the probability of at least
    this deviation if the traffic follows the weights. ``hottest`` are the most frequent keys with their share of the
    messages. With ``--key-sketches off`` nothing is counted, and ``counted`` is false.
    """
    shown = await _shown_traffic(hash_exchange(request), requested.broker(request))
    return answer_long(request, shown)


def hash_exchange(request: Request) -> ConsistentHashExchange:
    """Return the consistent hash exchange named in the path.

    Raises:
        NotFound: the exchange does not exist, or has another type.
    """
    exchange = requested.exchange(request)
    if not isinstance(exchange, ConsistentHashExchange):
        raise NotFound(
            f"exchange '{exchange.name}' in vhost '{exchange.vhost}' has no ring: its type is {exchange.type}"
        )
    return exchange


def _shown(exchange: ConsistentHashExchange) -> dict[str, Any]:
    weights, runs = dict(exchange.ring.destinations), exchange.ring.runs()
    return {
        "vhost": exchange.vhost,
        "exchange": exchange.name,
        "removal": exchange.ring.removal,
        "function": exchange.ring.function,
        "buckets": exchange.ring.buckets,
        "destinations": (
            {"destination": name, "weight": weight, "runs": runs[name]} for name, weight in weights.items()
        ),
        "retired": exchange.ring.retired,
    }


async def _shown_traffic(exchange: ConsistentHashExchange, broker: Broker) -> dict[str, Any]:
    parts = await broker.figures.ring_traffic(exchange.vhost, exchange.name)
    weights, buckets = dict(exchange.ring.destinations), max(exchange.ring.buckets, 1)
    found = together(parts, list(weights))
    if found is None:  # no message since the last change of the ring
        missing = sum(one.missing_since_start for one in parts)
        found = RingCounts(CountedKeys(None, list(weights), [0] * len(weights), 0, 0, 0, []), {}, missing)
    counted, keys = found.counted, found.keys
    await broker.slices.next()
    return {
        "counted": exchange.traffic is not None,
        "hashed": " ".join(exchange.hashed or ("routing key",)),
        "since": round(counted.since, 3) if counted.since is not None else None,
        "messages": sum(counted.messages),
        "keys": counted.all_keys,
        "missing": counted.missing,
        "missing_since_start": found.missing_since_start,
        "destinations": (
            {
                "destination": name,
                "weight": weight,
                "share": round(weight / buckets, PLACES),
                "messages": messages,
                "keys": keys.get(name, 0),
            }
            for (name, weight), messages in zip(weights.items(), counted.messages, strict=True)
        ),
        "spread": {
            "messages": _shown_test(spread_of_messages(weights, counted)),
            "keys": _shown_test(spread_of_keys(weights, keys)),
        },
        "hottest": [_shown_key(one, counted.noted) for one in counted.frequent[:HOTTEST]],
    }


def _shown_test(test: ChiSquared | None) -> dict[str, float] | None:
    if test is None:
        return None
    return {
        "chi_squared": round(test.statistic, 2),
        "degrees": test.degrees,
        "p_value": float(f"{test.p_value:.{PLACES}g}"),
    }


def _shown_key(found: FrequentKey, noted: int) -> dict[str, Any]:
    return {
        "key": found.key.decode("utf-8", "backslashreplace"),
        "destination": found.destination,
        "messages": found.messages,
        "share": round(found.messages / noted, PLACES),
        "error": round(found.error / noted, PLACES),
    }


ROUTES = [
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/ring", ring, access=Access.MONITORING),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/ring/traffic", traffic, access=Access.MONITORING),
]
