"""Copies of homes, as known to a process: asked by the parts that send messages and requests to other homes."""

from collections.abc import Callable


class KnownCopies:
    """Copies of homes. Homes without copies until :meth:`serve`: the copies of a cluster start after the parts."""

    def __init__(self) -> None:
        self._has_copies: Callable[[int], bool] = lambda home: False
        self._comes_back: Callable[[int], bool] = lambda home: False
        self._count: Callable[[int], int] = lambda home: 1

    def serve(
        self, has_copies: Callable[[int], bool], comes_back: Callable[[int], bool], count: Callable[[int], int]
    ) -> None:
        """Answer by the given functions from now on; see the methods of the same names."""
        self._has_copies, self._comes_back, self._count = has_copies, comes_back, count

    def has_copies(self, home: int) -> bool:
        """Return True if a home has copies, or will soon have them: streams move there through its log."""
        return self._has_copies(home)

    def comes_back(self, home: int) -> bool:
        """Return True if another node will soon serve a home without a link."""
        return self._comes_back(home)

    def count(self, home: int) -> int:
        """Return the number of copies of a home."""
        return self._count(home)
