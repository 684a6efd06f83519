"""How long, and how often, a broker that went away is asked again."""

from __future__ import annotations

import time

from jumpmq.spark.errors import JumpMQError

LONGEST_PAUSE = 2.0
"""Seconds between two attempts to reach a broker that went away, at most."""


class Patience:
    """Pauses between attempts, ever longer, until some seconds are over."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._next = 0.1

    def pause(self, error: JumpMQError) -> None:
        """Wait before the next attempt.

        Raises:
            JumpMQError: the error of the last one, as there has been enough waiting.
        """
        if time.monotonic() + self._next > self._until:
            raise error
        time.sleep(self._next)
        self._next = min(LONGEST_PAUSE, 2 * self._next)
