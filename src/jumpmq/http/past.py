"""The last day of many objects, in a sample per minute: the past of a queue, exchange, connection or channel before the
first request for its history.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from jumpmq.broker.figures.values import LEVELS_OF_QUEUES, OF_CHANNELS, OF_CONNECTIONS, OF_EXCHANGES, OF_QUEUES
from jumpmq.http.rates import Sample

T = TypeVar("T")

KEPT = 1440
"""Maximum number of samples of an object: a day."""

MOST = {"queue": 1000, "exchange": 300, "connection": 300, "channel": 300}
"""Maximum number of objects by kind; beyond it, objects unchanged for longest are forgotten. A queue takes 35 KB after
a day, an exchange 17 KB.
"""

COUNTED = {
    "queue": (*OF_QUEUES, *LEVELS_OF_QUEUES),
    "exchange": OF_EXCHANGES,
    "connection": OF_CONNECTIONS,
    "channel": OF_CHANNELS,
}
"""The counters of an object, in order."""

COLUMNS = {
    "queue": ("publish", "deliver_get", "ack", *LEVELS_OF_QUEUES),
    "exchange": OF_EXCHANGES,
    "connection": OF_CONNECTIONS,
    "channel": ("publish", "confirm", "ack"),
}
"""Recorded columns by kind."""


class Slicing(Protocol):
    """Yields to the event loop between slices of work."""

    def through(self, items: Iterable[T]) -> AsyncIterator[T]: ...


class Past:
    """Samples of all objects of a kind with messages or recent traffic, by the object's id.

    Samples keep the lower 32 bits of values, 64 bits of octets. That is enough, because only the growth of counters is
    shown.

    Args:
        kind: a key of :data:`COUNTED`.
        every: seconds between two samples.
        kept: maximum number of samples of an object.
    """

    def __init__(self, kind: str, every: float, kept: int = KEPT) -> None:
        self._every = every
        self._kept = kept
        self.columns = COLUMNS[kind]
        self._most = MOST[kind]
        self._code, self._mask = ("Q", (1 << 64) - 1) if kind == "connection" else ("I", (1 << 32) - 1)
        self._places = [COUNTED[kind].index(name) for name in self.columns]
        self._levels = len(LEVELS_OF_QUEUES) if kind == "queue" else 0  # number of levels, at the end of the counters
        self._samples: OrderedDict[Hashable, array[int]] = OrderedDict()  # rows of time and columns, oldest first
        self._next = 0.0  # time of the next sample, by the monotonic clock

    async def note(self, found: Mapping[Any, Sample], slices: Slicing) -> None:
        """Take samples, once a minute. Call after each reading of the counters."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every
        at, width = int(time.time()), 1 + len(self.columns)
        async for number, sample in slices.through(list(found.items())):
            rows = self._samples.get(number)
            changed = at - sample.since < self._every
            if rows is None:
                waits = self._levels and any(sample.counts[-self._levels :])
                if not (waits or (changed and any(sample.counts))):
                    continue
                rows = self._samples[number] = array(self._code)
            rows.append(at)
            rows.extend(sample.counts[place] & self._mask for place in self._places)
            if len(rows) > self._kept * width:
                del rows[:width]
            if changed:
                self._samples.move_to_end(number)
        for number in self._samples.keys() - found.keys():
            del self._samples[number]
        while len(self._samples) > self._most:
            self._samples.popitem(last=False)

    def of(self, identity: Hashable) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Yield an object's samples, oldest first: time (seconds since the epoch), and values in the order of
        ``columns``.
        """
        rows, width = self._samples.get(identity, array(self._code)), 1 + len(self.columns)
        for start in range(0, len(rows), width):
            yield float(rows[start]), tuple(rows[start + 1 : start + width])
