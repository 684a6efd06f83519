"""The metrics of groups of readers, by queue: how far each is behind. JumpMQ's own."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from starlette.requests import Request

from jumpmq.broker.reader_group import ReaderGroup
from jumpmq.http.plumbing import requested
from jumpmq.http.resources.object_families import Family, Figure, Read, lines
from jumpmq.http.resources.ring_families import PREFIX
from jumpmq.queues.reservations import Reservations


class Place(NamedTuple):
    """A group's place in a queue."""

    group: ReaderGroup
    at: Reservations


def _figures(request: Request) -> Read:
    now, clock = time.time(), asyncio.get_running_loop().time()

    def read(place: Place) -> tuple[float | None, ...]:
        queue, oldest = place.at.queue, place.at.oldest
        found = queue.figures()
        return (
            int(place.group.alive(clock)),
            place.at.outstanding,
            None if oldest is None else round(max(0.0, now - oldest), 1),
            queue.ready_count,
            None if found is None else found.ready_octets,
        )

    return read


PLACES = Family(
    "reader",
    ("vhost", "group", "queue"),
    lambda place: (place.group.vhost, place.group.name, place.at.queue.name),
    (
        Figure("reader_alive", "1 while a query reads for the group"),
        Figure("reader_messages_reserved", "Messages that are read and not yet acknowledged"),
        Figure("reader_oldest_reserved_seconds", "Age of the oldest of them"),
        Figure("reader_messages_ready", "Messages that the group has not reserved yet: its lag"),
        Figure("reader_messages_ready_bytes", "Octets of these"),
    ),
    _figures,
)


async def readers(request: Request) -> dict[str, list[str]]:
    """The metrics of all groups: lines of text by the metric's name."""
    broker = requested.broker(request)
    groups = [group for vhost in broker.topology.vhosts for group in broker.reader_groups.groups(vhost)]
    places = [Place(group, place) for group in groups for place in group.places.values()]
    return await lines(request, PLACES, PREFIX, places)
