"""Clock for expiry of messages and queues: time of day without jumps.

The clock is set once, at the start of the process, and continues by the machine's uptime. Changes of the wall clock
therefore neither expire messages nor keep them. Times on disk are compared with the wall clock at the next start.

While a machine is suspended (a laptop, a paused or migrated virtual machine), Linux's monotonic clock stops, and so do
the event loop's timers. Three rules follow:

- Ages include suspended time (:func:`now`): a message does not live longer because its machine was suspended.
- Doubt about this process includes suspended time (:func:`boot_time`): another process may have replaced it meanwhile.
- Doubt about others excludes suspended time (:func:`time.monotonic`): this process could not hear them. Heartbeats,
  silence of links, dead nodes, unused queues (``x-expires``) and consumer timeouts use this clock.

Messages of streams have wall-clock times, which users refer to. :class:`Stamps` converts these to ages.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial

boot_time: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds since some moment before the start, including time while the machine was suspended; never set."""

_OFFSET = time.time() - boot_time()

_PHASE = random.randrange(1000) / 1000
"""Offset of this process's ticks, in seconds."""

NEVER = float("inf")
"""A time later than any other."""

JUMP = 1.0
"""Difference in seconds between the wall clock and the steady clock that counts as a clock change: smaller differences
accumulate.
"""

JUMPS = 10_000
"""Maximum number of remembered clock settings; earlier ones are merged."""


def now() -> float:
    """Return seconds since the epoch."""
    return boot_time() + _OFFSET


def until_tick(interval: float, now: float) -> float:
    """Return the seconds until the next tick of periodic work, from half the interval to one and a half.

    Ticks of a process are multiples of the interval, so that all periodic work that is due shares one wakeup of the
    process: a wakeup takes 80 us of processor time (measured), most periodic work less. The phase differs between
    processes.

    Args:
        interval: mean time between two ticks, in seconds.
        now: seconds by the event loop's clock.
    """
    delay = interval - (now + _PHASE) % interval
    return delay if delay >= interval / 2 else delay + interval


class Stamps:
    """Ages of wall-clock timestamps, in spite of clock settings.

    Args:
        wall, steady: the wall clock, and a clock that is never set, in seconds.
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall, self._steady = wall, steady  # the two clocks
        self._looked_at = steady()  # time of the last comparison, by the steady clock
        # Lead of the wall clock, with the earliest time at which it had this lead; oldest first.
        self._ahead = deque([(float("-inf"), wall() - self._looked_at)], maxlen=JUMPS)

    def look(self) -> float:
        """Compare the two clocks, and return the steady clock's time; to be called regularly."""
        steady = self._steady()
        ahead = self._wall() - steady
        if abs(ahead - self._ahead[-1][1]) > JUMP:
            self._ahead.append((self._looked_at, ahead))
        self._looked_at = steady
        return steady

    def oldest(self, age: float) -> float:
        """Return the earliest possible timestamp of data at most ``age`` seconds old.

        If the clock was set since, this is earlier than ``age`` seconds ago.
        """
        steady = self.look()
        earliest = float("inf")
        for since, by in reversed(self._ahead):
            if since < steady - age:
                return min(earliest, steady - age + by)
            earliest = min(earliest, since + by)
        return earliest


stamps = Stamps(lambda: time.time(), lambda: boot_time())
"""Timestamps by the local machine's clocks."""
