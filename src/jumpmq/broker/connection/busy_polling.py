"""Busy polling: the event loop stays awake for a moment if a client is likely to send its next request soon.

On a virtual machine, whose host gives idle processors to others, the kernel takes 20 to 50 microseconds to wake a
process: as much as all other work for a small request. A client that waits for each answer before its next request pays
this time for each request. So after an answer to a client whose last request followed soon after an answer, the loop
polls for a while, instead of going to sleep. While polling, the loop yields the processor to other processes. If
another process takes it, the loop does not poll for the next second: a process that has used up its share of processor
time waits longest when it needs the processor (measured with two processes that compute on two cores: half as many
confirms one by one).
"""

import asyncio
import os
import threading
import time

SOON = 0.0002
"""Seconds of polling for the next request after an answer."""

TAKEN = 0.001
"""Seconds of a yield of the processor that mean that another process needs the processor."""

REST = 1.0
"""Seconds without busy polling after such a yield."""


class BusyPolling:
    """Keeps the running event loop awake for a moment.

    Attributes:
        until: end of the polling, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.until = 0.0
        self._awake = False  # True if the next poll is scheduled
        self._rests_until = 0.0  # end of the pause of busy polling, by the monotonic clock
        # With one processor, or with the client in another thread, polling would keep the client from running.
        self._alone = os.cpu_count() == 1 or threading.current_thread() is not threading.main_thread()

    def begin(self) -> None:
        """Begin polling after an answer to a client that is likely to send its next request soon."""
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
