"""A ring without its buckets, for plans: computes the moves of a change to a ring with millions of buckets."""

from __future__ import annotations

from jumpmq.hashing.functions import NUMBERS
from jumpmq.hashing.kernel import Buckets, RunBuckets
from jumpmq.hashing.ring import HashRing


class RingOutline(HashRing):
    """A :class:`HashRing` with runs of buckets only, so that memory grows with the number of destinations.

    Changes and the routes of key arrays are those of :class:`HashRing`; routing is slower. Single keys are not routed.
    """

    def _no_buckets(self) -> Buckets:
        return _Counted(NUMBERS[self._function])

    def _routing(self) -> RunBuckets:
        places = {name: place for place, name in enumerate(self._names)}
        runs = [(*run, places[name], -1) for name, owned in self._owned() for run in owned]
        left = sum(self._weights.values())
        for first, count in reversed(self._retired):  # the last retired run left today's number of working buckets
            runs.append((first, count, -1, left))
            left += count
        return RunBuckets(sorted(runs), NUMBERS[self._function])


class _Counted(Buckets):
    """The number of buckets, without the buckets."""

    def __init__(self, function: int) -> None:
        super().__init__(function)
        self._count = 0

    @property
    def size(self) -> int:
        return self._count

    def writable(self) -> Buckets:
        return self

    def append(self, count: int, owner: int) -> None:
        self._count += count

    def truncate(self, size: int) -> None:
        self._count = size

    def cut(self, first: int, count: int) -> None:
        self._count -= count

    def retire(self, first: int, count: int) -> None: ...

    def assign(self, first: int, count: int, owner: int) -> None: ...

    def forget(self, owner: int) -> None: ...
