"""Completion of commits: complete commits cannot be undone by a crash, or by a loss provided for.

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
"""Number of a complete commit; all earlier commits are complete too."""

MOST_COMMITS, MOST_BYTES = 64, 64 << 20
"""Maximum number, and octets, of commits stored but not complete; at the maximum, the next commit waits."""


class Completion:
    """Completion of a store without copies: stored commits are complete.

    Attributes:
        wake: has the store look again at what is complete; it is given by the store, and any thread may call it.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] = _asleep
        self._complete = 0

    def stored(self, number: int) -> None:
        """Note all commits up to a number as on disk."""
        self._complete = number

    def of(self, number: int) -> Complete | None:
        """Return the number of a commit as a ``Complete``; None while the commit is incomplete."""
        return Complete(number) if number <= self._complete else None


NOT_KEPT = Complete(0)
"""Placeholder where nothing is to outlive the process."""


def _asleep() -> None:
    """Nobody waits."""
