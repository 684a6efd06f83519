"""A history of samples: the broker as a whole, and those queues and exchanges that somebody looks at.

A track holds a sample a second of the last ten minutes and one a minute of the last day, and so has the same size
however long the broker runs. Of the broker there is one always. Of a queue or exchange there is one from when somebody
first asked until nobody has for a while; the fullest queues have theirs without being asked for, since their past is
what one wants to know when they are found.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jumpmq.http.rates import Rates, counts_of
from jumpmq.http.resources.nodes import resident_octets
from jumpmq.queues import Queue
from jumpmq.topology import Exchange

if TYPE_CHECKING:
    from jumpmq.broker import Broker

FINE, FINE_COUNT = 1, 600
COARSE, COARSE_COUNT = 60, 1440
"""Seconds between samples, and how many are kept."""

MAX_TRACKS = 200
"""Queues and exchanges that are followed, some 80 KB each."""

FORGET_AFTER = 900.0
"""Seconds after which one is not followed any more that nobody has asked for."""

FOLLOWED_UNASKED = 8
"""Of the fullest queues."""

BROKER = ("publish", "deliver_get", "ack", "ready", "unacknowledged", "memory", "messages", "disk_free", "connections")
QUEUE = ("publish", "deliver_get", "ack", "ready", "unacknowledged", "consumers")
EXCHANGE = ("publish",)
COUNTERS = {"publish", "deliver_get", "ack"}
"""Of these the rate is shown."""

Subject = tuple[str, str, str]
"""Kind (``queue``, ``exchange``), virtual host, name."""


class Ring:
    """The last samples at a fixed interval, in columns of floats; what has no value is NaN."""

    def __init__(self, width: int, count: int) -> None:
        self._count = count
        self._columns = [array("d") for _ in range(width + 1)]
        self._next = 0

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add a sample in place of the oldest, once there are enough."""
        for column, value in zip(self._columns, (at, *values), strict=True):
            if len(column) < self._count:
                column.append(value)
            else:
                column[self._next % self._count] = value
        self._next += 1

    def last(self, count: int) -> list[list[float]]:
        """The columns of the last samples in order, times (seconds since the epoch) first."""
        found = []
        for column in self._columns:
            split = self._next % self._count if len(column) == self._count else 0
            found.append((column[split:] + column[:split]).tolist()[-count:])
        return found


class Track:
    """The history of one subject."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.asked_at = time.monotonic()
        self._names = names
        self._fine = Ring(len(names), FINE_COUNT)
        self._coarse = Ring(len(names), COARSE_COUNT)
        self._coarse_at = 0.0

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add a sample of now."""
        self._fine.add(at, values)
        if at - self._coarse_at >= COARSE:
            self._coarse.add(at, values)
            self._coarse_at = at

    def shown(self, seconds: int) -> dict[str, Any]:
        """The last ``seconds``, in samples of a second or, beyond ten minutes, of a minute; rates of counters."""
        fine = seconds <= FINE * FINE_COUNT
        interval = FINE if fine else COARSE
        times, *columns = (self._fine if fine else self._coarse).last(seconds // interval + 1)
        shown: dict[str, Any] = {"interval": interval, "at": [round(at, 1) for at in times[1:]]}
        for name, column in zip(self._names, columns, strict=True):
            shown[name] = _rates(times, column) if name in COUNTERS else [_plain(value) for value in column[1:]]
        return shown

    def samples(self, names: tuple[str, ...], age: int, increment: int) -> list[tuple[float, float]]:
        """Time and value of samples of the last ``age`` seconds, ``increment`` apart, the latest first.

        Args:
            names: of what is added up.
        """
        fine = age <= FINE * FINE_COUNT
        interval = FINE if fine else COARSE
        times, *columns = (self._fine if fine else self._coarse).last(age // interval + 1)
        wanted = [column for name, column in zip(self._names, columns, strict=True) if name in names]
        step = max(1, increment // interval)
        return [(times[at], sum(column[at] for column in wanted)) for at in range(len(times) - 1, -1, -step)]


class History:
    """The tracks of a broker; it takes a sample after each look of :class:`~jumpmq.http.rates.Rates`."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        self._overall = Track(BROKER)
        self._tracks: OrderedDict[Subject, Track] = OrderedDict()
        rates.on_look.append(self._sample)

    def of_broker(self, seconds: int) -> dict[str, Any]:
        """The broker as a whole."""
        return self._overall.shown(seconds)

    @property
    def overall(self) -> Track:
        """That of the broker."""
        return self._overall

    def track(self, queue: Queue) -> Track:
        """That of a queue; it is followed from the first time it is asked for."""
        return self._asked(("queue", queue.vhost, queue.name), QUEUE)

    def of_queue(self, queue: Queue, seconds: int) -> dict[str, Any]:
        """One queue; it is followed from the first time it is asked for."""
        return self.track(queue).shown(seconds)

    def of_exchange(self, exchange: Exchange, seconds: int) -> dict[str, Any]:
        """One exchange, as :meth:`of_queue`."""
        return self._asked(("exchange", exchange.vhost, exchange.name), EXCHANGE).shown(seconds)

    def _asked(self, subject: Subject, names: tuple[str, ...]) -> Track:
        track = self._tracks.get(subject)
        if track is None:
            track = self._tracks[subject] = Track(names)
        track.asked_at = time.monotonic()
        self._tracks.move_to_end(subject)
        while len(self._tracks) > MAX_TRACKS:
            self._tracks.popitem(last=False)
        return track

    def _sample(self) -> None:
        now = time.time()
        self._overall.add(now, self._of_broker())
        for queue in self._rates.latest.fullest[:FOLLOWED_UNASKED]:
            self._asked(("queue", queue.vhost, queue.name), QUEUE)
        for subject, track in list(self._tracks.items()):
            values = self._values(subject)
            if values is None or time.monotonic() - track.asked_at > FORGET_AFTER:
                del self._tracks[subject]
            else:
                track.add(now, values)
        self._broker.ring_traffic.turn(now)

    def _of_broker(self) -> Sequence[float]:
        broker, look = self._broker, self._rates.latest
        disk = float("nan") if broker.alarms.disk_free is None else broker.alarms.disk_free
        return (
            *self._rates.moved,
            look.ready,
            look.unacknowledged,
            resident_octets(),
            broker.memory.total,
            disk,
            len(broker.connections),
        )

    def _values(self, subject: Subject) -> Sequence[float] | None:
        kind, vhost, name = subject
        host = self._broker.topology.vhosts.get(vhost)
        if host is None:
            return None
        if kind == "exchange":
            exchange = host.exchanges.get(name)
            return None if exchange is None else (exchange.received,)
        queue = host.queues.get(name)
        if queue is None:
            return None
        return (*counts_of(queue), queue.ready_count, queue.unacknowledged_count, len(queue.consumers))


def _rates(times: list[float], counts: list[float]) -> list[float]:
    """A second, between neighbouring samples; a queue that is made anew counts from 0."""
    return [
        round(max(0.0, after - before) / max(till - since, 0.001), 2)
        for (since, till), (before, after) in zip(pairwise(times), pairwise(counts), strict=True)
    ]


def _plain(value: float) -> int | None:
    return None if value != value else int(value)
