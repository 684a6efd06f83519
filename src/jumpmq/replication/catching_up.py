"""Rate of shipping to members outside the set, limited so that clients' waits for confirms at most double.

A commit waits from its write until it is complete. While no member catches up, these waits are recorded as usual. While
a member catches up, the rate is halved whenever commits wait for more than twice the usual time, and grows otherwise.
The rate stays above twice the growth of the log, so that the member can catch up.
"""

import math
from collections import deque

from jumpmq.replication.lineage import position_at, segment_at

INTERVAL = 0.5
"""Seconds between two changes of the rate."""

USUAL = 0.005
"""Assumed usual wait of a commit in seconds, before any is recorded. Shorter waits never count as too long."""

WAITS, FEWEST = 256, 5
"""Number of recorded waits, and the minimum number for a comparison."""

SHARE = 0.95
"""Quantile of the waits that is compared."""

LEAST = 4 << 20
"""Minimum rate, in octets per second."""

IDLE = 2.0
"""Seconds without a sent piece after which no member is catching up."""


class CatchingUp:
    """The rate for all members of a home that are catching up.

    Args:
        now: current time, in seconds.

    Attributes:
        rate: octets per second.
    """

    def __init__(self, now: float) -> None:
        self.rate = math.inf
        self._usual: deque[float] = deque(maxlen=WAITS)  # waits of commits while no member catches up
        self._waits: list[float] = []  # waits since the last change of the rate, while a member catches up
        self._sample: tuple[int, float] | None = None  # position and time of a written commit that is not complete yet
        self._began = now  # time of the last change of the rate
        self._sent = 0  # octets sent since ``_began``
        self._grown = 0  # growth of the log since ``_began``, in octets
        self._end = 0  # end of the log; 0 if unknown
        self._last = now - IDLE  # time of the last sent piece
        self._debt = 0.0  # seconds of pauses still to be made

    def on_written(self, position: int, now: float) -> None:
        """Record that the log was written up to a position."""
        begin = max(self._end, position_at(segment_at(position), 0))
        self._grown, self._end = self._grown + max(0, position - begin), position
        if self._sample is None:
            self._sample = position, now

    def on_complete(self, position: int, now: float) -> None:
        """Record that the log is complete up to a position."""
        if self._sample is None or position < self._sample[0]:
            return
        wait = now - self._sample[1]
        self._sample = None
        if now - self._last < IDLE:
            self._waits.append(wait)
        else:
            self._usual.append(wait)

    def pause(self, octets: int, now: float) -> float:
        """Return the seconds to wait before octets are sent."""
        if now - self._last >= IDLE:
            self._begin(now)
            self.rate, self._debt = math.inf, 0.0
        elif now - self._began >= INTERVAL:
            self._change(now)
        self._last = now
        self._sent += octets
        self._debt += octets / self.rate
        if self._debt < 0.001:
            return 0.0
        pause, self._debt = self._debt, 0.0
        return pause

    def _change(self, now: float) -> None:
        seconds = now - self._began
        if len(self._waits) >= FEWEST and _most(self._waits) > 2 * max(USUAL, _most(self._usual)):
            least = max(LEAST, 2 * self._grown / seconds)
            self.rate = max(least, min(self.rate, self._sent / seconds) / 2)
        else:
            self.rate *= 1.5
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began, self._sent, self._grown = now, 0, 0
        self._waits.clear()


def _most(waits: list[float] | deque[float]) -> float:
    """Return the quantile :data:`SHARE` of recorded waits, in seconds; 0 with too few waits."""
    found = sorted(waits)
    return found[int(len(found) * SHARE)] if len(found) >= FEWEST else 0.0
