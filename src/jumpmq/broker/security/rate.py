"""Limits on the publish rate of a connection, and of all connections of a user, enforced by slower reading."""

from __future__ import annotations

import math
import time

BURST = 0.1
"""Seconds by which a publisher may run ahead of its rate."""

UNLIMITED = 1 << 62


class PublishRate:
    """Counts published messages, and computes waits by a limit.

    Args:
        limit: messages a second; None without a limit.

    Attributes:
        counted: number of messages published at this home.
        shared: publish rate of the connection's user, which all connections of the user share; None without a limit.
    """

    def __init__(self, limit: int | None) -> None:
        self.counted = 0
        self.shared: PublishRate | None = None
        self._paid_until = 0.0
        self.set_limit(limit)

    def set_limit(self, limit: int | None) -> None:
        """Set the limit in messages a second; None without a limit."""
        self._cost = 1 / limit if limit else 0.0
        self._piece = math.ceil(limit * BURST) if limit else UNLIMITED

    @property
    def piece(self) -> int:
        """Maximum number of messages published at once."""
        return self._piece if self.shared is None else min(self._piece, self.shared.piece)

    def within(self, seconds: float) -> int:
        """Return the number of messages that may be published in some seconds, at least one."""
        own = max(1, math.floor(seconds / self._cost)) if self._cost else UNLIMITED
        return own if self.shared is None else min(own, self.shared.within(seconds))

    def wait(self) -> float:
        """Return the seconds until the next message may be published; 0 if at once."""
        own = max(0.0, self._paid_until - time.monotonic() - BURST) if self._cost else 0.0
        return own if self.shared is None else max(own, self.shared.wait())

    def count(self, messages: int) -> None:
        """Add published messages."""
        self.counted += messages
        if self._cost:
            self.count_at_others(messages)
        if self.shared is not None:
            self.shared.count(messages)

    def count_at_others(self, messages: int) -> None:
        """Add messages published at another home."""
        if self._cost:
            self._paid_until = max(self._paid_until, time.monotonic()) + messages * self._cost
