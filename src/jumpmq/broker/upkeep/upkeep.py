"""Maintenance: timed work of queues, and long work in steps, with connections served in between.

A queue schedules its next maintenance: at the expiry of its first message, at the end of its lease, or soon, after one
step of longer work. One timer of the event loop is set to the earliest of these times, so that a queue without timed
work costs no time.

Other long work is given as an iterator of short steps. Both kinds of work share time slices of a few milliseconds. An
exception is logged once, and does not stop other work; the maintenance of a queue is retried later.
"""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from weakref import ref

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.upkeep.garbage import young_generation
from jumpmq.queues import Queue, clock

log = logging.getLogger(__name__)

SLICE = 0.003
"""Seconds of maintenance in an event-loop iteration."""

LATE = 0.5
"""Maximum delay of a timer in a busy process, in seconds; after a longer delay, the machine was suspended meanwhile."""


class Upkeep:
    """The maintenance of a broker, in the running event loop.

    Args:
        turns: event-loop iterations of the broker; each time slice is one.
        retry: seconds until the retry of a queue's failed maintenance.
    """

    def __init__(self, turns: Turns, retry: float) -> None:
        self._retry = retry
        self._on_lease_end: Callable[[Queue], None] = lambda queue: None  # called with a queue unused for its lease
        self._turns = turns
        self._loop = asyncio.get_running_loop()  # source of timers
        self._due: list[tuple[float, int, Callable[[], Queue | None]]] = []  # heap of times and queues
        self._numbers = itertools.count()  # orders entries of equal time
        self._work: deque[tuple[str, Iterator[None]]] = deque()  # long work: subjects and steps, in turn
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None  # the timer of the next work
        self._set_for = float("inf")  # time of the timer, by the clock
        self._failed: set[int] = set()  # queues whose failure is in the log
        self._stopped = False

    def listen(self, on_lease_end: Callable[[Queue], None]) -> None:
        """Set the function called with a queue left unused for its ``x-expires``."""
        self._on_lease_end = on_lease_end

    def wake(self, queue: Queue, at: float) -> None:
        """Schedule the maintenance of a queue, at a time of :mod:`~jumpmq.queues.clock`."""
        # Only a deleted queue has remaining work and is kept alive; other queues may be freed before the time comes.
        held = (lambda: queue) if queue.deleted else ref(queue)
        heappush(self._due, (at, next(self._numbers), held))
        if at < self._set_for:
            self._set_timer(at)

    def work(self, subject: str, steps: Iterator[None]) -> None:
        """Take the given steps, a few at a time.

        Args:
            subject: description of the work, for the log after a failure.
        """
        self._work.append((subject, steps))
        self._set_timer(0.0)

    @property
    def idle(self) -> bool:
        """True if no work is due."""
        return not self._work and not (self._due and self._due[0][0] <= clock.now())

    def look(self) -> None:
        """Do overdue work now; to be called regularly, because timers do not count the time of a suspension."""
        if self._set_for < clock.now() - LATE:
            self._set_timer(self._set_for)

    def stop(self) -> None:
        """Stop all scheduled work."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def finish(self) -> None:
        """Take all remaining steps of begun work."""
        while self._work:
            self._step()

    def _set_timer(self, at: float) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set_for = at
        delay = at - clock.now()
        self._timer = self._loop.call_later(delay, self._run) if delay > 0 else self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._set_for = float("inf")
        self._timer = None
        until = time.perf_counter() + SLICE
        until_due = until - SLICE / 2 if self._work else until
        with self._turns.turn():
            while self._due and self._due[0][0] <= clock.now() and time.perf_counter() < until_due:
                self._maintain_next()
            while self._work:
                self._step()
                if time.perf_counter() > until:
                    break
        if self._work:
            young_generation.limit()
            self._set_timer(0.0)
        elif self._due and self._due[0][0] < self._set_for:
            self._set_timer(self._due[0][0])

    def _maintain_next(self) -> None:
        at, _, held = heappop(self._due)
        queue = held()
        if queue is None or queue.wakes_at != at:
            return  # the queue is gone, or was maintained at an earlier time
        try:
            if queue.maintain(clock.now()):
                self._on_lease_end(queue)
        except Exception:
            if queue.id not in self._failed:
                self._failed.add(queue.id)
                log.exception("the maintenance of %r failed; retry every %.0f s", queue, self._retry)
            queue.wake(clock.now() + self._retry)

    def _step(self) -> None:
        subject, steps = self._work.popleft()
        try:
            for _ in steps:
                self._work.append((subject, steps))
                return
        except Exception:
            log.exception("%s failed", subject)
