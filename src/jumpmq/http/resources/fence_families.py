"""Metrics of ordering barriers (fences). JumpMQ's own."""

from __future__ import annotations

import time

from starlette.requests import Request

from jumpmq.http.plumbing import requested
from jumpmq.http.resources.object_families import Family, Figure, lines
from jumpmq.http.resources.ring_families import PREFIX
from jumpmq.queues.fences import FenceFigures

Found = tuple[str, str, str, list[FenceFigures]]
"""Virtual host and name of a queue with waiting messages, name of the awaited queue, and the ordering barriers."""

FENCES = Family(
    "fence",
    ("vhost", "queue", "source"),
    lambda found: found[:3],
    (
        Figure("fence_messages_held", "Messages that wait for older messages of the same keys in another queue"),
        Figure("fence_messages_remaining", "Awaited messages in the other queue"),
        Figure("fence_seconds", "Seconds since the change of the exchange's ring that made the messages wait"),
    ),
    lambda request: _of_fences,
)


def _of_fences(found: Found) -> tuple[float | None, ...]:
    fences = found[3]
    oldest = min(one.since for one in fences)
    return (
        max(one.held for one in fences),
        max(one.remaining for one in fences),
        round(max(0.0, time.time() - oldest), 3),
    )


async def fences(request: Request) -> dict[str, list[str]]:
    """Return the metrics of all ordering barriers: lines of text by metric."""
    broker = requested.broker(request)
    found: dict[tuple[str, str, str], list[FenceFigures]] = {}
    for vhost, queue, fence in await broker.figures.fences(list(broker.topology.vhosts)):
        found.setdefault((vhost, queue, fence.source), []).append(fence)
    return await lines(request, FENCES, PREFIX, [(*which, fences) for which, fences in found.items()])
