"""Periodic work at the ticks of the process, without a task: a task that sleeps takes twice as much processor time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jumpmq.queues.clock import until_tick


class Ticks:
    """Calls a function at each tick (:func:`~jumpmq.queues.clock.until_tick`) of the running event loop.

    Args:
        interval: mean time between two calls, in seconds.
        work: the function. After an exception, which is logged, the next call comes all the same.
    """

    def __init__(self, interval: float, work: Callable[[], object]) -> None:
        self._interval = interval
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._timer = self._next()

    def cancel(self) -> None:
        """Make no more calls."""
        self._timer.cancel()

    def _next(self) -> asyncio.TimerHandle:
        return self._loop.call_later(until_tick(self._interval, self._loop.time()), self._tick)

    def _tick(self) -> None:
        self._timer = self._next()
        self._work()
