"""Completion of commits: complete commits cannot be undone by a crash, or by a loss provided for.

A commit is *stored* when it is on the disk of this process, and *complete* when it is wherever it has to be. For
a store without copies both are one. What is only stored may be read and delivered; what is told, forgotten or deleted
for it waits until it is complete: confirms, the index, segments that go, files that retention lets go of, the ends of
streams.

Only :meth:`Completion.of` makes a :data:`Complete`, and only :func:`receipt_of` a :data:`CompleteReceipt`, from that.
What depends on completion takes one of the two: who passes another number does not pass the type checker.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import NewType

Complete = NewType("Complete", int)
"""Number of a complete commit; all earlier commits are complete too."""

CompleteReceipt = NewType("CompleteReceipt", int)
"""Receipt of complete changes; the changes of all lower receipts are complete too."""

MOST_COMMITS = 64
"""Maximum number of commits stored but not complete; at the maximum, the next commit waits."""


class Completion:
    """Completion of a store without copies: stored commits are complete.

    Attributes:
        most_bytes: maximum octets of commits stored but not complete; at the maximum, the next commit waits.
        patience: maximum seconds for a closing store to wait until stored commits are complete.
        wake: has the store look again at what is complete; it is given by the store, and any thread may call it.
        look: has the store look at once, by :meth:`Store.complete`, and tells whether it did: not while another thread
            closes the store. It is given by the owner of the store, whose thread alone may call it.
    """

    most_bytes = 64 << 20
    patience = 5.0

    def __init__(self) -> None:
        self.wake: Callable[[], None] = _asleep
        self.look: Callable[[], bool] = _cannot
        self._complete = 0

    def begin(self, number: int) -> None:
        """The store is open: all commits up to a number were found, and are complete."""
        self._complete = number

    def stored(self, number: int, position: int) -> None:
        """Note all commits up to a number, which end at a position, as on disk."""
        self._complete = number

    def of(self, number: int) -> Complete | None:
        """Return the number of a commit as a ``Complete``; None while the commit is incomplete."""
        return Complete(number) if number <= self._complete else None


class ByPosition(Completion):
    """Completion of a home with copies: stored commits are complete up to a position of the log told from outside.

    :meth:`complete` is called in the thread of the store's owner; while a store closes, the store has another one.

    Args:
        on_stored: called with the position behind each commit that is on disk.
    """

    def __init__(self, on_stored: Callable[[int], None]) -> None:
        super().__init__()
        self._on_stored = on_stored
        self._stored: deque[tuple[int, int]] = deque()  # commits that are not complete, as (number, position)
        self._position = 0  # up to which all is complete
        self._lock = threading.Lock()

    def stored(self, number: int, position: int) -> None:
        with self._lock:
            self._stored.append((number, position))
            self._advance()
        self._on_stored(position)

    def complete(self, position: int) -> None:
        """All up to a position is complete. It may be told before :meth:`stored` is, and lower ones may follow."""
        with self._lock:
            if position <= self._position:
                return
            before, self._position = self._complete, position
            self._advance()
        if self._complete > before and not self.look():
            self.wake()

    def _advance(self) -> None:
        while self._stored and self._stored[0][1] <= self._position:
            self._complete, _ = self._stored.popleft()


def receipt_of(receipt: int, complete: Complete) -> CompleteReceipt:
    """Return the receipt of changes whose commit is complete."""
    return CompleteReceipt(receipt)


NOT_KEPT = Complete(0)
"""Placeholder where nothing is to outlive the process."""

NO_RECEIPT = CompleteReceipt(0)
"""Receipt before the first."""


def _cannot() -> bool:
    return False


def _asleep() -> None:
    """Nobody waits."""
