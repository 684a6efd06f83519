"""Clock for expiry of messages and queues: time of day without jumps.

It is set once, when the process starts, and goes on by the clock of the machine's uptime. So a wall clock that is put
back or forth by an hour neither expires nor keeps anything; what is on disk is compared with the wall clock of the next
start.

While a machine is suspended (a laptop, a virtual machine that is paused or moved), Linux's monotonic clock stands
still, and the event loop's timers with it. Three rules follow:

- Age counts that time (:func:`now`): a message does not live an hour longer because its machine slept for one.
- Doubt about this process counts it (:func:`boot_time`): others may have replaced it meanwhile.
- Doubt about others does not (:func:`time.monotonic`): this process did not listen to them. Heartbeats, silence of a
  link, dead nodes, unused queues (``x-expires``) and consumer timeouts are judged by that clock.

Messages of streams bear the time of the wall clock, as users ask for them by that. :class:`Stamps` tells their age.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial

boot_time: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds since some moment before the start, including time while the machine was suspended; never set."""

_OFFSET = time.time() - boot_time()

NEVER = float("inf")
"""Time of what is not due."""

JUMP = 1.0
"""Difference in seconds between the wall clock and the steady clock that counts as a clock change: smaller differences
accumulate.
"""

JUMPS = 10_000
"""Maximum number of remembered clock settings; earlier ones are merged."""


def now() -> float:
    """Seconds since the epoch."""
    return boot_time() + _OFFSET


class Stamps:
    """Ages of wall-clock timestamps, in spite of clock settings.

    Args:
        wall, steady: the wall clock, and one that is never set, in seconds.
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall, self._steady = wall, steady  # the two clocks
        self._looked_at = steady()  # when they were last compared, by the steady one
        # By how much the wall clock was ahead, and from when on, at the earliest; the oldest first.
        self._ahead = deque([(float("-inf"), wall() - self._looked_at)], maxlen=JUMPS)

    def look(self) -> float:
        """Compare the two clocks, to be called now and then; returns the steady one's time."""
        steady = self._steady()
        ahead = self._wall() - steady
        if abs(ahead - self._ahead[-1][1]) > JUMP:
            self._ahead.append((self._looked_at, ahead))
        self._looked_at = steady
        return steady

    def oldest(self, age: float) -> float:
        """Return the earliest timestamp that something at most ``age`` seconds old can have.

        Where the clock was put forth or back since, that is earlier than ``age`` seconds before now, for that long.
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
