"""The last day of many queues, a sample a minute: what one wants to see of a queue that nobody looked at before."""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from jumpmq.broker.figures.values import LEVELS_OF_QUEUES, OF_QUEUES
from jumpmq.http.rates import Sample

T = TypeVar("T")

EVERY = 60.0
"""Seconds between samples."""

KEPT = 1440
"""Samples of a queue."""

MOST = 1000
"""Queues, those that changed last: 40 KB each after a day."""

COLUMNS = ("publish", "deliver_get", "ack", *LEVELS_OF_QUEUES)
"""What is kept."""

_PLACES = [(*OF_QUEUES, *LEVELS_OF_QUEUES).index(name) for name in COLUMNS]
_MASK = 0xFFFFFFFF


class Slices(Protocol):
    """Lets others be served between."""

    def through(self, items: Iterable[T]) -> AsyncIterator[T]: ...


class QueuesPast:
    """Samples of all queues that have messages, or had traffic lately, by the queue's id.

    Values are kept in 32 bits: of counters only the growth is shown.
    """

    def __init__(self) -> None:
        self._samples: OrderedDict[int, array[int]] = OrderedDict()  # rows of time and columns, the oldest first
        self._next = 0.0  # when there is a sample to take, by the monotonic clock

    async def note(self, queues: Mapping[int, Sample], slices: Slices) -> None:
        """Take samples, once a minute; to be called after each reading of the figures."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        at, width = int(time.time()), 1 + len(COLUMNS)
        async for number, sample in slices.through(list(queues.items())):
            rows = self._samples.get(number)
            changed = at - sample.since < EVERY
            if rows is None:
                if not (any(sample.counts[-2:]) or (changed and any(sample.counts))):
                    continue
                rows = self._samples[number] = array("I")
            rows.append(at)
            rows.extend(sample.counts[place] & _MASK for place in _PLACES)
            if len(rows) > KEPT * width:
                del rows[:width]
            if changed:
                self._samples.move_to_end(number)
        for number in self._samples.keys() - queues.keys():
            del self._samples[number]
        while len(self._samples) > MOST:
            self._samples.popitem(last=False)

    def of(self, queue: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Times (seconds since the epoch) and values of a queue's samples, as :data:`COLUMNS`, the oldest first."""
        rows, width = self._samples.get(queue, array("I")), 1 + len(COLUMNS)
        for start in range(0, len(rows), width):
            yield float(rows[start]), tuple(rows[start + 1 : start + width])
