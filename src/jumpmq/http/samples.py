"""Samples of counters and lengths over time, as RabbitMQ's queries ask for them (``msg_rates_age`` and so on)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from jumpmq.http.history import COARSE, COARSE_COUNT, Track
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.errors import BadRequest

OF_MESSAGES = ("publish", "deliver_get", "ack")
OF_LENGTHS: dict[str, tuple[str, ...]] = {
    "messages_ready": ("ready",),
    "messages_unacknowledged": ("unacknowledged",),
    "messages": ("ready", "unacknowledged"),
}


def add_samples(request: Request, stats: dict[str, Any], lengths: dict[str, Any], track: Callable[[], Track]) -> None:
    """Add the samples that the query asks for, the latest first, with what they are on average.

    Args:
        stats: the ``message_stats`` of what the track is of.
        lengths: what holds its ``messages`` and the like.
        track: whoever is not asked for samples need not be followed.

    Raises:
        BadRequest: the query asks for more than is kept, or for an increment of nothing.
    """
    if (asked := _asked(request, "msg_rates")) is not None:
        for name in OF_MESSAGES:
            _add(stats, name, track().samples((name,), *asked))
    if (asked := _asked(request, "lengths")) is not None:
        for name, columns in OF_LENGTHS.items():
            _add(lengths, name, track().samples(columns, *asked))


def _asked(request: Request, kind: str) -> tuple[int, int] | None:
    """How far back, and how far apart, in seconds."""
    if f"{kind}_age" not in request.query_params or f"{kind}_incr" not in request.query_params:
        return None
    age, increment = requested.number(request, f"{kind}_age"), requested.number(request, f"{kind}_incr")
    if not 0 < increment <= age <= COARSE * COARSE_COUNT:
        raise BadRequest(f"'{kind}_incr' must be from 1 to '{kind}_age', and that up to {COARSE * COARSE_COUNT}")
    return age, increment


def _add(shown: dict[str, Any], name: str, samples: list[tuple[float, float]]) -> None:
    details = shown.setdefault(f"{name}_details", {"rate": 0.0})
    details["samples"] = [{"sample": int(value), "timestamp": int(at * 1000)} for at, value in samples]
    if samples:
        details["avg"] = round(sum(value for _, value in samples) / len(samples), 2)
        (last, newest), (first, oldest) = samples[0], samples[-1]
        details["avg_rate"] = round((newest - oldest) / (last - first), 2) if last > first else 0.0
