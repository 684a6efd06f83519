"""Growth of backlogs, fitted over minutes, so that predictions are stable."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

SPAN = 300.0
"""Seconds over which growth is fitted."""

LEAST = 30.0
"""Minimum seconds of observation."""

APART = 4.0
"""Minimum number of seconds between two points."""


class Trends:
    """The backlogs of the fullest queues over the last minutes."""

    def __init__(self) -> None:
        self._points: dict[int, deque[tuple[float, int]]] = {}  # time and messages, by the queue's id

    def note(self, backlogs: Iterable[tuple[int, int]], now: float | None = None) -> None:
        """Note the numbers of ready messages by queue id. Queues not in ``backlogs`` are forgotten.

        Args:
            now: current time by the monotonic clock; read from the clock by default.
        """
        now, kept = time.monotonic() if now is None else now, self._points
        self._points = {}
        for queue, ready in backlogs:
            points = self._points[queue] = kept.get(queue) or deque()
            if not points or now - points[-1][0] >= APART:
                points.append((now, ready))
            while now - points[0][0] > SPAN:
                points.popleft()

    def growth(self, queue: int) -> float | None:
        """Return the growth of a backlog by least squares, in messages per second; None after an observation shorter
        than :data:`LEAST`.
        """
        points = self._points.get(queue, ())
        if not points or points[-1][0] - points[0][0] < LEAST:
            return None
        count = len(points)
        middle, level = sum(at for at, _ in points) / count, sum(ready for _, ready in points) / count
        spread = sum((at - middle) ** 2 for at, _ in points)
        return sum((at - middle) * (ready - level) for at, ready in points) / spread
