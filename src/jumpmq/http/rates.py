"""Message rates over the last seconds: a look at the queues' counters every second, remembered for five.

Counters are the queues' own; a queue that is deleted takes its past out of the sums.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jumpmq.queues import Queue

if TYPE_CHECKING:
    from jumpmq.broker import Broker

INTERVAL = 1.0
"""Seconds between looks."""

LOOKS = 5
"""How many looks are remembered, and so over how many seconds rates are taken."""

AT_ONCE = 2000
"""Queues that are looked at before others are served."""

NAMES = ("publish", "deliver_get", "ack")
Counts = tuple[int, int, int]


@dataclass(frozen=True)
class Look:
    """The counters at one time: seconds by the monotonic clock, and the counts of each queue by its number."""

    at: float
    counts: dict[int, Counts] = field(default_factory=dict)


class Rates:
    """Message counts and rates of the live broker's queues."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self._watch: asyncio.Task[None] | None = None

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
            for place, (count, was) in enumerate(zip(_counts(queue), _then(before, queue), strict=True)):
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
                look.counts.update({queue.id: _counts(queue) for queue in queues[start : start + AT_ONCE]})
                await asyncio.sleep(0)
            self._looks.append(look)
            await asyncio.sleep(INTERVAL)


def _counts(queue: Queue) -> Counts:
    return queue.published, queue.delivered, queue.acknowledged


def _then(look: Look | None, queue: Queue) -> Counts:
    """A queue's counts at that time; one that was not there yet had none, and before any look nothing happened."""
    if look is None:
        return _counts(queue)
    return look.counts.get(queue.id, (0, 0, 0))
