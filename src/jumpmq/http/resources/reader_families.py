"""The metrics of groups of readers, by queue: how far each is behind. JumpMQ's own."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from jumpmq.broker.bulk.reader_group import ReaderGroup
from jumpmq.http.plumbing import requested
from jumpmq.http.resources.object_families import Family, Figure, Read, lines
from jumpmq.http.resources.readers import shown_in_brief, unread_queues
from jumpmq.http.resources.ring_families import PREFIX
from jumpmq.queues.reservations import Reservations


def _figures(request: Request) -> Read:
    now = asyncio.get_running_loop().time()

    def read(place: tuple[ReaderGroup, Reservations]) -> tuple[float | None, ...]:
        shown = shown_in_brief(*place, now)
        return int(shown["alive"]), shown["reserved"], shown["age"], shown["ready"], shown["ready_octets"]

    return read


PLACES = Family(
    "reader",
    ("vhost", "group", "user", "queue"),
    lambda place: (place[0].vhost, place[0].shown_name, place[0].user or "", place[1].queue.name),
    (
        Figure("reader_alive", "1 while a query reads for the group"),
        Figure("reader_messages_reserved", "Messages that are read and not yet acknowledged"),
        Figure("reader_oldest_reserved_seconds", "Age of the oldest of them"),
        Figure("reader_messages_ready", "Messages that the group has not reserved yet: its lag"),
        Figure("reader_messages_ready_bytes", "Octets of these"),
    ),
    _figures,
)


UNREAD = Family(
    "vhost",
    ("vhost",),
    lambda one: (one[0],),
    (Figure("queues_unread", "Queues that have messages and no reader: no consumer, and no query that is alive"),),
    lambda request: lambda one: (one[1],),
)


async def readers(request: Request) -> dict[str, list[str]]:
    """The metrics of all groups: lines of text by the metric's name."""
    broker = requested.broker(request)
    groups = [group for vhost in broker.topology.vhosts for group in broker.reader_groups.groups(vhost)]
    places = [(group, place) for group in groups for place in group.places.values()]
    unread = [(name, len(await unread_queues(request, host))) for name, host in list(broker.topology.vhosts.items())]
    return await lines(request, PLACES, PREFIX, places) | await lines(request, UNREAD, PREFIX, unread)
