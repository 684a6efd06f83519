"""Limits on the publish rate: of a connection, by slower reading, and of all connections of a user."""

from __future__ import annotations

import math
import time

BURST = 0.1
"""Seconds by which a publisher may be ahead of the rate."""

UNLIMITED = 1 << 62


class PublishRate:
    """Count of published messages, against the clock.

    Args:
        limit: messages a second; None is any number.

    Attributes:
        counted: how many messages were published, here.
        shared: what others count in too, and is waited for as well: the rate of the connection's user.
    """

    def __init__(self, limit: int | None) -> None:
        self.counted = 0
        self.shared: PublishRate | None = None
        self._paid_until = 0.0
        self.set_limit(limit)

    def set_limit(self, limit: int | None) -> None:
        """So many messages a second from now on; None is any number."""
        self._cost = 1 / limit if limit else 0.0
        self._piece = math.ceil(limit * BURST) if limit else UNLIMITED

    @property
    def piece(self) -> int:
        """Number of messages allowed at once."""
        return self._piece if self.shared is None else min(self._piece, self.shared.piece)

    def within(self, seconds: float) -> int:
        """Return the number of messages that may be published in some seconds, at least one."""
        own = max(1, math.floor(seconds / self._cost)) if self._cost else UNLIMITED
        return own if self.shared is None else min(own, self.shared.within(seconds))

    def wait(self) -> float:
        """Seconds until more may be published; 0 is at once."""
        own = max(0.0, self._paid_until - time.monotonic() - BURST) if self._cost else 0.0
        return own if self.shared is None else max(own, self.shared.wait())

    def count(self, messages: int) -> None:
        """So many more were published."""
        self.counted += messages
        if self._cost:
            self.count_at_others(messages)
        if self.shared is not None:
            self.shared.count(messages)

    def count_at_others(self, messages: int) -> None:
        """Add messages published at a remote home."""
        if self._cost:
            self._paid_until = max(self._paid_until, time.monotonic()) + messages * self._cost
