"""A limit on how fast one connection publishes: it is read no faster."""

import math
import time

BURST = 0.1
"""Seconds that a connection may be ahead of its rate."""


class PublishRate:
    """What a connection has published, against the clock.

    Args:
        limit: messages a second; None is any number.

    Attributes:
        piece: messages that may be published at once.
    """

    def __init__(self, limit: int | None) -> None:
        self._cost = 1 / limit if limit else 0.0
        self._paid_until = 0.0
        self.piece = math.ceil(limit * BURST) if limit else 1 << 62

    def wait(self) -> float:
        """Seconds until more may be published; 0 is at once."""
        return max(0.0, self._paid_until - time.monotonic() - BURST) if self._cost else 0.0

    def count(self, messages: int) -> None:
        """So many more were published."""
        if self._cost:
            self._paid_until = max(self._paid_until, time.monotonic()) + messages * self._cost
