"""Message rates over the last seconds: a look at the queues' counters every second, remembered for five.

Counters are the queues' own; a queue that is deleted takes its past out of the sums, but not out of what has
``moved``.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jumpmq.queues import Queue

if TYPE_CHECKING:
    from jumpmq.broker import Broker

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between looks."""

LOOKS = 5
"""How many looks are remembered, and so over how many seconds rates are taken."""

AT_ONCE = 1000
"""Queues that are looked at before others are served: some two milliseconds of work."""

FULLEST = 50
"""Queues with the longest backlog that are known by name."""

NAMES = ("publish", "deliver_get", "ack")
Counts = tuple[int, int, int]
NOTHING: Counts = (0, 0, 0)


@dataclass
class Look:
    """The counters at one time.

    Attributes:
        at: seconds by the monotonic clock.
        counts: of each queue, by its number.
        ready, unacknowledged, consumers: of all queues.
        fullest: queues with messages, the longest backlog first; streams, from which nothing is taken, are not among
            them.
    """

    at: float
    counts: dict[int, Counts] = field(default_factory=dict)
    ready: int = 0
    unacknowledged: int = 0
    consumers: int = 0
    fullest: list[Queue] = field(default_factory=list)


class Rates:
    """Message counts and rates of the live broker's queues.

    Attributes:
        latest: the last look at all queues.
        moved: messages published, delivered and acknowledged in all queues since the first look.
        on_look: called after each look.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self._watch: asyncio.Task[None] | None = None
        self.latest = Look(time.monotonic())
        self.moved: Counts = NOTHING
        self.on_look: list[Callable[[], None]] = []

    def start(self) -> None:
        """Look at the counters from now on."""
        self._watch = asyncio.create_task(self._look_on(), name="rates")

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    def of_queue(self, queue: Queue) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of a queue."""
        return self.of_queues([queue])

    def of_queues(self, queues: Iterable[Queue]) -> dict[str, Any]:
        """RabbitMQ's ``message_stats`` of queues together."""
        before = self._looks[0] if self._looks else None
        now, past = [0, 0, 0], [0, 0, 0]
        for queue in queues:
            for place, (count, was) in enumerate(zip(counts_of(queue), _then(before, queue), strict=True)):
                now[place] += count
                past[place] += was
        seconds = max(time.monotonic() - before.at, INTERVAL) if before is not None else INTERVAL
        shown: dict[str, Any] = {}
        for name, count, was in zip(NAMES, now, past, strict=True):
            shown[name] = count
            shown[f"{name}_details"] = {"rate": round((count - was) / seconds, 2)}
        return shown

    async def _look_on(self) -> None:
        while True:
            look = Look(time.monotonic())
            queues = [queue for host in self._broker.topology.vhosts.values() for queue in host.queues.values()]
            for start in range(0, len(queues), AT_ONCE):
                self._look_at(queues[start : start + AT_ONCE], look)
                await asyncio.sleep(0)
            self._looks.append(look)
            self.latest = look
            for called in self.on_look:
                try:
                    called()
                except Exception:
                    log.exception("looking at the broker failed")
            await asyncio.sleep(INTERVAL)

    def _look_at(self, queues: list[Queue], look: Look) -> None:
        last, moved = self.latest.counts if self._looks else None, list(self.moved)
        for queue in queues:
            counts = look.counts[queue.id] = counts_of(queue)
            look.ready += queue.ready_count
            look.unacknowledged += queue.unacknowledged_count
            look.consumers += len(queue.consumers)
            if last is not None and counts != (was := last.get(queue.id, NOTHING)):
                for place in range(3):
                    moved[place] += counts[place] - was[place]
        self.moved = moved[0], moved[1], moved[2]
        backlogs = [queue for queue in queues if queue.message_count and not queue.append_only]
        look.fullest = heapq.nlargest(FULLEST, look.fullest + backlogs, key=lambda queue: queue.message_count)


def counts_of(queue: Queue) -> Counts:
    """Messages published to a queue, delivered and acknowledged, since the broker started."""
    return queue.published, queue.delivered, queue.acknowledged


def _then(look: Look | None, queue: Queue) -> Counts:
    """A queue's counts at that time; one that was not there yet had none, and before any look nothing happened."""
    if look is None:
        return counts_of(queue)
    return look.counts.get(queue.id, NOTHING)
