"""Metrics of reader groups, by queue: lag and outstanding messages. JumpMQ's own."""

from __future__ import annotations

from starlette.requests import Request

from jumpmq.broker.figures.values import ReaderFigures
from jumpmq.http.plumbing import requested
from jumpmq.http.resources.object_families import Family, Figure, lines
from jumpmq.http.resources.ring_families import PREFIX


def _figures(place: ReaderFigures) -> tuple[float | None, ...]:
    return int(place.alive), place.reserved, place.age, place.ready, place.ready_octets


PLACES = Family(
    "reader",
    ("vhost", "group", "user", "queue"),
    lambda place: (place.vhost, place.group, place.user or "", place.queue),
    (
        Figure("reader_alive", "1 while a query reads for the group"),
        Figure("reader_messages_reserved", "Messages read and not yet acknowledged"),
        Figure("reader_oldest_reserved_seconds", "Age of the oldest message read and not yet acknowledged"),
        Figure("reader_messages_ready", "Messages not yet reserved by the group: the lag"),
        Figure("reader_messages_ready_bytes", "Octets of messages not yet reserved by the group: the lag"),
    ),
    lambda request: _figures,
)


UNREAD = Family(
    "vhost",
    ("vhost",),
    lambda one: (one[0],),
    (Figure("queues_unread", "Queues with messages and without a reader: no consumer, and no living query"),),
    lambda request: lambda one: (one[1],),
)


async def readers(request: Request) -> dict[str, list[str]]:
    """Return the metrics of all groups: lines of text by metric."""
    broker = requested.broker(request)
    unread = [(name, len(await requested.node_figures(request).unread(name))) for name in list(broker.topology.vhosts)]
    places = await requested.node_figures(request).readers()
    return await lines(request, PLACES, PREFIX, places) | await lines(request, UNREAD, PREFIX, unread)
