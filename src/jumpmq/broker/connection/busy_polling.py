"""The event loop stays awake for a moment where a client is likely to ask again (*busy polling*).

To be woken by the kernel takes a process 20 to 50 microseconds on a virtual machine, whose idle processors are given
away: as much as all that a small request costs besides. A client that asks, waits for the answer and asks again pays
that each time. So after an answer to somebody whose last question came soon behind the answer before, the loop looks
for the next one by itself for a while, instead of going to sleep. Others who want the processor get it, and where they
do, the loop sleeps for the next second: a process that has used up its share waits longest for the processor when it is
needed (measured with two processes that compute on two cores: half as many confirms one by one).
"""

import asyncio
import os
import threading
import time

SOON = 0.0002
"""Seconds from an answer to the next question within which a client is waited for awake."""

TAKEN = 0.001
"""Delay of an immediate callback, in seconds, as a sign of further processes in need of the processor."""

REST = 1.0
"""Pause of busy polling after such a delay, in seconds."""


class BusyPolling:
    """Keeps the running event loop awake for a moment.

    Attributes:
        until: when it may sleep again, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # what is kept awake
        self.until = 0.0
        self._awake = False  # whether the next look is scheduled
        self._rests_until = 0.0  # when others no longer want the processor, perhaps
        # With one processor, or in a thread beside its client, the client could not run meanwhile.
        self._alone = os.cpu_count() == 1 or threading.current_thread() is not threading.main_thread()

    def begin(self) -> None:
        """Begin polling after an answer to a client that is likely to ask again soon."""
        now = time.monotonic()
        if now < self._rests_until:
            return
        self.until = now + SOON
        if not (self._awake or self._alone):
            self._awake = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Reschedule immediately: while scheduled, the event loop polls sockets without blocking."""
        now = time.monotonic()
        self._awake = now < self.until
        if self._awake:
            os.sched_yield()
            if time.monotonic() - now > TAKEN:
                self._awake, self._rests_until = False, now + REST
            else:
                self._loop.call_soon(self._look)
