"""Which commits are complete: what no crash, and no loss that is provided for, can take back.

A commit is *stored* when it is on the disk of this process, and *complete* when it is wherever it has to be. For
a store without copies both are one. What is only stored may be read and delivered; what is told, forgotten or deleted
for it waits until it is complete: confirms, the index, segments that go, files that retention lets go of, the ends of
streams.

Only :meth:`Completion.of` makes a :data:`Complete`, and what depends on it takes one: who passes another number does
not pass the type checker.
"""

from collections.abc import Callable
from typing import NewType

Complete = NewType("Complete", int)
"""The number of a commit that is complete, as are all before it."""

MOST_COMMITS, MOST_BYTES = 64, 64 << 20
"""Commits, and octets of these, that may be stored and not complete; then the next one waits."""


class Completion:
    """Completion of a store that has no copies: what is stored is complete.

    Attributes:
        wake: has the store look again at what is complete; it is given by the store, and any thread may call it.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] = _asleep
        self._complete = 0

    def stored(self, number: int) -> None:
        """All up to this commit is on disk."""
        self._complete = number

    def of(self, number: int) -> Complete | None:
        """The number of a commit as that of one that is complete; None as long as it is not."""
        return Complete(number) if number <= self._complete else None


NOT_KEPT = Complete(0)
"""What stands for it where nothing is to outlive the process."""


def _asleep() -> None:
    """Nobody waits."""
