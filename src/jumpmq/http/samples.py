"""Samples over time, as requested by RabbitMQ's query parameters (``msg_rates_age`` and so on)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from jumpmq.http.history import COARSE, COARSE_COUNT, LEVELS, Track
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.errors import BadRequest

LENGTHS: dict[str, tuple[str, ...]] = {
    "messages_ready": ("ready",),
    "messages_unacknowledged": ("unacknowledged",),
    "messages": ("ready", "unacknowledged"),
}
OCTETS: dict[str, tuple[str, ...]] = {"recv_oct": ("recv_oct",), "send_oct": ("send_oct",)}
OF_NODE: dict[str, tuple[str, ...]] = {
    "mem_used": ("memory",),
    "sockets_used": ("connections",),
    "disk_free": ("disk_free",),
}


def add_samples(request: Request, shown: dict[str, Any], track: Callable[[], Track]) -> dict[str, Any]:
    """Add the samples in the query, latest first, with averages; return ``shown``.

    Args:
        shown: object with the values, or with the values in ``message_stats`` and ``queue_totals``.
        track: returns the track of the object; not called for a query without samples.

    Raises:
        BadRequest: the age exceeds the kept samples, or the increment is 0 or exceeds the age.
    """
    stats, lengths = shown.get("message_stats", {}), shown.get("queue_totals", shown)
    if (asked := _asked(request, "msg_rates")) is not None:
        found = track()
        for name in [name for name in found.names if name in stats and name not in LEVELS]:
            _add(stats, name, found.samples((name,), *asked))
    others = (("lengths", LENGTHS, lengths), ("data_rates", OCTETS, shown), ("node_stats", OF_NODE, shown))
    for query, columns, holder in others:
        if (asked := _asked(request, query)) is not None:
            for name, of in columns.items():
                if name in holder and set(of) <= set(track().names):
                    _add(holder, name, track().samples(of, *asked))
    return shown


def _asked(request: Request, kind: str) -> tuple[int, int] | None:
    """Return age and increment in the query, in seconds."""
    if f"{kind}_age" not in request.query_params or f"{kind}_incr" not in request.query_params:
        return None
    age, increment = requested.number(request, f"{kind}_age"), requested.number(request, f"{kind}_incr")
    if not 0 < increment <= age <= COARSE * COARSE_COUNT:
        most = COARSE * COARSE_COUNT
        raise BadRequest(f"'{kind}_incr' must be from 1 to '{kind}_age', and '{kind}_age' at most {most}")
    return age, increment


def _add(shown: dict[str, Any], name: str, samples: list[tuple[float, float]]) -> None:
    details = shown.setdefault(f"{name}_details", {"rate": 0.0})
    known = [(at, value) for at, value in samples if value == value]
    details["samples"] = [{"sample": int(value), "timestamp": int(at * 1000)} for at, value in known]
    if known:
        details["avg"] = round(sum(value for _, value in known) / len(known), 2)
        details["avg_rate"] = growth(known)


def growth(samples: list[tuple[float, float]]) -> float:
    """Return the growth per second from the last to the first sample, the latest."""
    (last, newest), (first, oldest) = (samples[0], samples[-1]) if samples else ((0.0, 0.0), (0.0, 0.0))
    return round((newest - oldest) / (last - first), 2) if last > first and newest == newest else 0.0
