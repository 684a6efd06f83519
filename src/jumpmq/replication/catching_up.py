"""Rate of shipping to members outside the set, limited so that clients' waits for confirms at most double.

While nobody catches up, the waits of commits (from written to complete) are noted; they are what is usual. While
somebody does, the rate is halved each time that commits wait for more than twice of that, and grows otherwise. It stays
above twice the rate at which the log grows, or a member would never be there.
"""

import math
from collections import deque

from jumpmq.replication.lineage import position_at, segment_at

INTERVAL = 0.5
"""Seconds between two changes of the rate."""

USUAL = 0.005
"""Seconds that a commit waits at most as long as nothing is known, and that are never too much."""

WAITS, FEWEST = 256, 5
"""Number of waits that are noted, and without which nothing is known."""

SHARE = 0.95
"""Share of the commits that wait for less than what is compared."""

LEAST = 4 << 20
"""Octets a second at least."""

IDLE = 2.0
"""Seconds without a piece until nobody catches up any more."""


class CatchingUp:
    """The rate for all members of a home that catch up.

    Args:
        now: the time, in seconds.

    Attributes:
        rate: octets a second.
    """

    def __init__(self, now: float) -> None:
        self.rate = math.inf
        self._usual: deque[float] = deque(maxlen=WAITS)  # waits of commits while nobody catches up
        self._waits: list[float] = []  # the same since the rate was changed last, while somebody does
        self._sample: tuple[int, float] | None = None  # position and time of a commit that is not complete
        self._began = now  # when the rate was changed last
        self._sent = 0  # octets since
        self._grown = 0  # octets of the log since
        self._end = 0  # position behind the log; 0 where that is not known yet
        self._last = now - IDLE  # when the last piece was sent
        self._debt = 0.0  # seconds that were not waited for yet

    def on_written(self, position: int, now: float) -> None:
        """The log was written up to a position."""
        begin = max(self._end, position_at(segment_at(position), 0))
        self._grown, self._end = self._grown + max(0, position - begin), position
        if self._sample is None:
            self._sample = position, now

    def on_complete(self, position: int, now: float) -> None:
        """The log is complete up to a position."""
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
    """Return the wait that few commits exceed; 0 where too little is known."""
    found = sorted(waits)
    return found[int(len(found) * SHARE)] if len(found) >= FEWEST else 0.0
