"""Slots of HTTP connections by address: admission, and choice of the connection to replace."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Generic, TypeVar

REPLACED = 100
"""Maximum replacements per second within the address with most connections. Beyond the maximum, new connections of the
address are closed at once, at a twentieth of the cost.
"""

T = TypeVar("T")


class Places(Generic[T]):
    """Slots of an event loop."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[T, None]] = {}
        self._taken = 0
        self._second, self._replaced = 0, 0  # current second of the monotonic clock, and replacements in this second

    def __len__(self) -> int:
        return self._taken

    def enter(self, one: T, address: str) -> None:
        """Add a connection."""
        self._by_address.setdefault(address, {})[one] = None
        self._taken += 1

    def leave(self, one: T, address: str) -> None:
        """Remove a connection, if present."""
        there = self._by_address.get(address)
        if there is None or one not in there:
            return
        del there[one]
        self._taken -= 1
        if not there:
            del self._by_address[address]

    def of(self, address: str) -> Collection[T]:
        """Return the connections of an address, oldest first."""
        return self._by_address.get(address, {})

    @property
    def most(self) -> int:
        """Number of connections of the address with most connections."""
        return max(map(len, self._by_address.values()), default=0)

    def of_most(self) -> list[T]:
        """Return the connections of the address, or addresses, with most connections."""
        most = self.most
        return [one for there in self._by_address.values() if len(there) == most for one in there]

    def admits(self, address: str, limit: int) -> bool:
        """Return True if a new connection is admitted, possibly in the place of an older one.

        Args:
            limit: maximum number of connections.
        """
        if self._taken < limit or len(self.of(address)) < self.most:
            return True
        if (second := int(time.monotonic())) != self._second:
            self._second, self._replaced = second, 0
        self._replaced += 1
        return self._replaced <= REPLACED
