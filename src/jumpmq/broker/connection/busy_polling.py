"""The event loop stays awake for a moment where a client is likely to ask again (*busy polling*).

To be woken by the kernel takes a process 20 to 50 microseconds on a virtual machine, whose idle processors are given
away: as much as all that a small request costs besides. A client that asks, waits for the answer and asks again pays
that each time. So after an answer to somebody whose last question came soon behind the answer before, the loop looks
for the next one by itself for a while, instead of going to sleep. Others who want the processor get it.
"""

import asyncio
import os
import threading
import time

SOON = 0.0002
"""Seconds from an answer to the next question within which a client is waited for awake."""


class BusyPolling:
    """Keeps the running event loop awake for a moment.

    Attributes:
        until: when it may sleep again, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # what is kept awake
        self.until = 0.0
        self._awake = False  # whether the next look is scheduled
        # With one processor, or in a thread beside its client, the client could not run meanwhile.
        self._alone = os.cpu_count() == 1 or threading.current_thread() is not threading.main_thread()

    def begin(self) -> None:
        """Somebody was answered who is likely to ask again soon."""
        self.until = time.monotonic() + SOON
        if not (self._awake or self._alone):
            self._awake = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """As long as this is called, the loop looks at all sockets without waiting for them."""
        self._awake = time.monotonic() < self.until
        if self._awake:
            os.sched_yield()
            self._loop.call_soon(self._look)
