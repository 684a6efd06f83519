"""A ring without its buckets, for plans: what a change of a ring with millions of buckets would move."""

from __future__ import annotations

from jumpmq.hashing.functions import NUMBERS
from jumpmq.hashing.kernel import Buckets, RunBuckets
from jumpmq.hashing.ring import HashRing


class RingOutline(HashRing):
    """A :class:`HashRing` that knows runs of buckets only, so that its memory grows with its destinations.

    It changes as a ring does, and places arrays of keys as that one does, more slowly. Single keys are not placed.
    """

    def _no_buckets(self) -> Buckets:
        return _Counted(NUMBERS[self._function])

    def _routing(self) -> RunBuckets:
        places = {name: place for place, name in enumerate(self._names)}
        runs = [(*run, places[name], -1) for name, owned in self._owned() for run in owned]
        left = sum(self._weights.values())
        for first, count in reversed(self._retired):  # the last that retired left as many as work now
            runs.append((first, count, -1, left))
            left += count
        return RunBuckets(sorted(runs), NUMBERS[self._function])


class _Counted(Buckets):
    """How many buckets there are; nothing else is kept of them."""

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
