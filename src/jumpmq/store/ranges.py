"""Sets of message numbers, stored as disjoint ranges: compact if most numbers are neighbours."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Ranges:
    """A set of integers.

    Attributes:
        count: number of integers.
    """

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self.count = 0

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self._lasts[place]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the ranges in order, as (first, last)."""
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._firsts)

    @property
    def last(self) -> int:
        """Highest number; the set must not be empty."""
        return self._lasts[-1]

    def copy(self) -> "Ranges":
        """Return an independent copy."""
        ranges = Ranges()
        ranges._firsts, ranges._lasts, ranges.count = self._firsts[:], self._lasts[:], self.count
        return ranges

    def below(self, limit: int) -> "Ranges":
        """Return the numbers below ``limit``."""
        if not self._lasts or self._lasts[-1] < limit:
            return self
        ranges = Ranges()
        for first, last in self:
            if first < limit:
                ranges.add(first, min(last, limit - 1))
        return ranges

    def add(self, first: int, last: int) -> int:
        """Add ``first`` to ``last``; return the count of new numbers."""
        lasts = self._lasts
        if not lasts or first > lasts[-1] + 1:
            self._firsts.append(first)
            lasts.append(last)
        elif first == lasts[-1] + 1:
            lasts[-1] = last
        else:
            return self._insert(first, last)
        added = last - first + 1
        self.count += added
        return added

    def _insert(self, first: int, last: int) -> int:
        firsts, lasts = self._firsts, self._lasts
        begin, end = bisect_left(lasts, first - 1), bisect_right(firsts, last + 1)
        covered = sum(lasts[place] - firsts[place] + 1 for place in range(begin, end))
        if begin < end:
            first, last = min(first, firsts[begin]), max(last, lasts[end - 1])
        firsts[begin:end] = array("q", (first,))
        lasts[begin:end] = array("q", (last,))
        added = last - first + 1 - covered
        self.count += added
        return added

    def encode(self) -> bytes:
        """Return all ranges as native 64-bit integers: the firsts, then the lasts."""
        return self._firsts.tobytes() + self._lasts.tobytes()

    @classmethod
    def decode(cls, octets: bytes) -> "Ranges":
        """Decode the result of :meth:`encode`."""
        numbers = array("q", octets)
        ranges = cls()
        half = len(numbers) // 2
        ranges._firsts, ranges._lasts = numbers[:half], numbers[half:]
        ranges.count = sum(ranges._lasts) - sum(ranges._firsts) + half
        return ranges
