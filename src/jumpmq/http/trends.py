"""How fast backlogs grow, fitted over some minutes, so that what is foretold of them does not jump."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

SPAN = 300.0
"""Seconds over which growth is fitted."""

LEAST = 30.0
"""Seconds of observation below which nothing is fitted."""

APART = 4.0
"""Seconds, at least, between two points."""


class Trends:
    """The backlogs of the fullest queues over the last minutes."""

    def __init__(self) -> None:
        self._points: dict[int, deque[tuple[float, int]]] = {}  # time and messages, by the queue's id

    def note(self, backlogs: Iterable[tuple[int, int]], now: float | None = None) -> None:
        """Note ids of queues with their ready messages; others are forgotten.

        Args:
            now: by the monotonic clock, unless that is to be read.
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
        """Messages a second by which a backlog grows, by least squares; None where it was not seen for long."""
        points = self._points.get(queue, ())
        if not points or points[-1][0] - points[0][0] < LEAST:
            return None
        count = len(points)
        middle, level = sum(at for at, _ in points) / count, sum(ready for _, ready in points) / count
        spread = sum((at - middle) ** 2 for at, _ in points)
        return sum((at - middle) * (ready - level) for at, ready in points) / spread
