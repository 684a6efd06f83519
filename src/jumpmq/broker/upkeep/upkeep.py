"""Upkeep: what queues need by the clock, and long work in steps, with connections served in between.

A queue says when it next wants to be looked after: when its first message expires, when its lease ends, or soon, where
it has done one step of something and more is to do. The earliest of these times is what the loop's one timer is set to,
so a queue that nothing can happen to costs nothing.

Other work that would take long at once comes as an iterator, each step of which is short. Both share a few milliseconds
at a time. What raises is logged once and stops no other: a queue is tried again a while later.
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
"""Seconds of upkeep in a turn."""

LATE = 0.5
"""Maximum delay of a timer in a busy process, in seconds; a later timer was set before the machine was suspended."""

RETRY_INTERVAL = 10.0
"""Seconds until the retry of a queue's failed maintenance."""


class Upkeep:
    """The upkeep of a broker, in the running event loop.

    Args:
        turns: every slice is a turn.

    Attributes:
        on_lease_end: called with a queue that was not used for as long as it said (``x-expires``).
    """

    def __init__(self, turns: Turns) -> None:
        self.on_lease_end: Callable[[Queue], None]
        self._turns = turns  # each look at the queues is a turn
        self._loop = asyncio.get_running_loop()  # source of timers
        self._due: list[tuple[float, int, Callable[[], Queue | None]]] = []  # what is to be looked at when: a heap
        self._numbers = itertools.count()  # orders tasks of equal time
        self._work: deque[tuple[str, Iterator[None]]] = deque()  # long work and its subject, in turn
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None  # for the next of them
        self._set_for = float("inf")  # when it rings, by the clock
        self._failed: set[int] = set()  # queues whose failure the log has told of
        self._stopped = False  # whether nothing is looked at any more

    def wake(self, queue: Queue, at: float) -> None:
        """Look after a queue at a time of :mod:`~jumpmq.queues.clock`."""
        # Only one that is deleted has something left to do; others may go before their time comes.
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
        """Do now what is overdue, to be called now and then: a timer does not count time in which the machine is
        suspended."""
        if self._set_for < clock.now() - LATE:
            self._set_timer(self._set_for)

    def stop(self) -> None:
        """Do nothing more by itself."""
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
                self._look_after_next()
            while self._work:
                self._step()
                if time.perf_counter() > until:
                    break
        if self._work:
            young_generation.limit()
            self._set_timer(0.0)
        elif self._due and self._due[0][0] < self._set_for:
            self._set_timer(self._due[0][0])

    def _look_after_next(self) -> None:
        at, _, held = heappop(self._due)
        queue = held()
        if queue is None or queue.wakes_at != at:
            return  # it is gone, or was looked after earlier
        try:
            if queue.look_after(clock.now()):
                self.on_lease_end(queue)
        except Exception:
            if queue.id not in self._failed:
                self._failed.add(queue.id)
                log.exception("the upkeep of %r failed; it is tried again every %.0f s", queue, RETRY_INTERVAL)
            queue.wake(clock.now() + RETRY_INTERVAL)

    def _step(self) -> None:
        subject, steps = self._work.popleft()
        try:
            for _ in steps:
                self._work.append((subject, steps))
                return
        except Exception:
            log.exception("%s failed", subject)
