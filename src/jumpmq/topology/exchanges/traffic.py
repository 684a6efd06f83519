"""Recent traffic of a hash ring: messages and distinct keys by destination, and frequent keys.

Counts cover two windows: the current window and the previous one. The caller, which knows the time, ends a window with
:meth:`Traffic.turn`. A window without messages does not end, so the newest counts remain visible. A change of the ring
clears all counts, because counts of the old ring do not describe the new ring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jumpmq.hashing.kernel import KeyCounts
from jumpmq.hashing.sampling import ALL_NOTED, MEAN_GAP

WINDOW = 60.0
"""Length of a window, in seconds."""

STANDARD_ERROR = 1.04 / math.sqrt(1024)
"""Relative standard error of the number of distinct keys (Flajolet et al., 2007, with 1,024 registers)."""


_RANKS = len(KeyCounts(0).ranks())


@dataclass(frozen=True)
class FrequentKey:
    """A key of many messages.

    Attributes:
        destination: destination of the key's messages.
        messages: estimated number of messages at most, and the largest possible excess of the estimate.
    """

    key: bytes
    destination: str
    messages: int
    error: int


@dataclass(frozen=True)
class CountedKeys:
    """Counts of windows.

    Attributes:
        since: begin of the older window, as passed to :meth:`Traffic.turn`; None before the first message.
        names: the destinations.
        messages: number of messages of each destination, including messages without the hashed header or property.
        all_keys: an estimate of the number of distinct keys.
        missing: number of messages without the header or property.
        noted: number of messages with the header or property; shares of ``frequent`` refer to this number.
        frequent: frequent keys, the most frequent first.
    """

    since: float | None
    names: Sequence[str]
    messages: list[int]
    all_keys: int
    missing: int
    noted: int
    frequent: list[FrequentKey]


class _Window:
    def __init__(self, owners: int) -> None:
        self.since: float | None = None
        self.counts = KeyCounts(owners)
        self.missing = 0


class Traffic:
    """Traffic of a ring."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._now = _Window(0)
        self._before: _Window | None = None

    def begin(self, names: Sequence[str]) -> None:
        """Clear the counts, for a changed ring with these destinations, in the order of owners."""
        self._names = list(names)
        self._now, self._before = _Window(len(self._names)), None

    @property
    def counts(self) -> KeyCounts:
        """Key counts of the current window."""
        return self._now.counts

    def note_missing(self, count: int) -> None:
        """Count messages without the hashed header or property."""
        self._now.missing += count

    def turn(self, now: float) -> None:
        """Begin a new window if the current window is old enough and has messages. Called about once a second.

        Args:
            now: seconds, by any clock.
        """
        window = self._now
        if not window.counts.noted and not window.missing:
            return
        if window.since is None:
            window.since = now
        elif now - window.since >= WINDOW:
            self._now, self._before = _Window(len(self._names)), window

    def counted(self) -> CountedKeys:
        """Return the counts of the last one or two windows."""
        window, before = self._now, self._before
        counts, missing, since = self._both(), window.missing, window.since
        if before is not None:
            missing, since = missing + before.missing, before.since
        found = sorted(counts.frequent(), key=lambda one: -one[2])
        return CountedKeys(
            since,
            self._names,
            counts.messages(),
            round(distinct(counts.ranks())),
            missing,
            counts.noted,
            [
                FrequentKey(key, self._names[owner], count, _error(count, error, counts.noted))
                for key, owner, count, error in found
            ],
        )

    def keys(self) -> Iterator[tuple[str, int]]:
        """Yield destinations with an estimated number of distinct keys: ten microseconds of work per destination."""
        counts = self._both()
        for owner, name in enumerate(self._names):
            yield name, round(distinct(counts.ranks(owner)))

    def sketches(self) -> Iterator[bytes]:
        """The registers of the counts of distinct keys: for all destinations together, then for each destination."""
        counts = self._both()
        for owner in range(-1, len(self._names)):
            yield counts.registers(owner)

    def _both(self) -> KeyCounts:
        return self._now.counts if self._before is None else self._now.counts.merged(self._before.counts)


def _error(count: int, error: int, noted: int) -> int:
    """Return the possible excess of a count: space-saving's error, plus twice the standard deviation of a sample."""
    sampled = noted > ALL_NOTED
    return min(count, error + round(2 * math.sqrt(MEAN_GAP * (count - error)))) if sampled else error


def distinct_of(registers: Sequence[bytes]) -> int:
    """Estimate the number of distinct keys counted by several homes together, from their registers."""
    ranks = [0] * _RANKS
    for rank in map(max, *registers) if len(registers) > 1 else registers[0]:
        ranks[rank] += 1
    return round(distinct(ranks))


def distinct(ranks: list[int]) -> float:
    """Estimate the number of distinct keys from register ranks (Ertl, arXiv 1702.01284, algorithm 6; unbiased).

    Args:
        ranks: number of registers with rank 0, 1, 2...
    """
    registers, top = sum(ranks), len(ranks) - 1
    if ranks[0] == registers:
        return 0.0
    z = registers * _tau(1 - ranks[top] / registers)
    for rank in range(top - 1, 0, -1):
        z = 0.5 * (z + ranks[rank])
    z += registers * _sigma(ranks[0] / registers)
    return registers * registers / (2 * math.log(2) * z)


def _sigma(x: float) -> float:
    y, z = 1.0, x
    while True:
        x *= x
        before, z, y = z, z + x * y, y + y
        if z == before:
            return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z = 1.0, 1 - x
    while True:
        x = math.sqrt(x)
        y *= 0.5
        before, z = z, z - (1 - x) ** 2 * y
        if z == before:
            return z / 3
