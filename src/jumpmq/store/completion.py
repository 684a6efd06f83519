"""Completion of commits: neither a crash nor a tolerated loss of disks undoes a complete commit.

A commit is *stored* when this process has synced the commit to disk. A commit is *complete* when all required copies
have stored the commit, too. In a store without copies every stored commit is complete. Stored commits may be read and
delivered. Irreversible actions wait for completion: confirms, the index, the removal of segments, retention's removal
of files, and the ends of streams.

Only :meth:`Completion.of` makes a :data:`CompleteCommit`, and only :func:`receipt_of` makes a :data:`CompleteReceipt`
from it. Functions that require completion take one of the two types, so the type checker rejects any other number.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import NewType

CompleteCommit = NewType("CompleteCommit", int)
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
    """

    most_bytes = 64 << 20
    patience = 5.0

    def __init__(self) -> None:
        self._wake: Callable[[], None] = _asleep  # makes the store check for complete commits soon, from any thread
        self._look: Callable[[], bool] = _cannot  # makes the store check at once, in the thread of the store's owner
        self._complete = 0

    def listen(self, *, wake: Callable[[], None] | None = None, look: Callable[[], bool] | None = None) -> None:
        """Set the functions called when commits become complete.

        Args:
            wake: of the store: makes the store check for complete commits soon. Callable from any thread.
            look: of the owner of the store, called in the owner's thread only: makes the store check at once, by
                :meth:`Store.complete`. Returns False, without a check, while another thread closes the store.
        """
        self._wake = wake or self._wake
        self._look = look or self._look

    def begin(self, number: int) -> None:
        """Begin with the commits found at the opening of the store: all commits up to a number are complete."""
        self._complete = number

    def stored(self, number: int, position: int) -> None:
        """Note that all commits up to a number are on disk; the last one ends at a position."""
        self._complete = number

    def of(self, number: int) -> CompleteCommit | None:
        """Return the number of a commit as a ``CompleteCommit``; None while the commit is incomplete."""
        return CompleteCommit(number) if number <= self._complete else None


class ByPosition(Completion):
    """Completion of a home with copies: the protocol of copies reports the position up to which the log is complete.

    Call :meth:`complete` in the thread of the store's owner. During its close, a store has another owner.

    Args:
        on_stored: called with the end position of each commit on disk.
    """

    def __init__(self, on_stored: Callable[[int], None]) -> None:
        super().__init__()
        self._on_stored = on_stored
        self._stored: deque[tuple[int, int]] = deque()  # incomplete commits, as (number, position of the end)
        self._position = 0  # highest position reported as complete
        self._lock = threading.Lock()

    def stored(self, number: int, position: int) -> None:
        with self._lock:
            self._stored.append((number, position))
            self._advance()
        self._on_stored(position)

    def complete(self, position: int) -> None:
        """Note that the log is complete up to a position.

        A report may precede the commit's :meth:`stored`. Reports of lower positions have no effect.
        """
        with self._lock:
            if position <= self._position:
                return
            before, self._position = self._complete, position
            self._advance()
        # The owner's thread checks at once; during the close of the store, another thread has to be woken.
        if self._complete > before and not self._look():
            self._wake()

    def _advance(self) -> None:
        while self._stored and self._stored[0][1] <= self._position:
            self._complete, _ = self._stored.popleft()


def receipt_of(receipt: int, complete: CompleteCommit) -> CompleteReceipt:
    """Return the receipt of changes of a complete commit."""
    return CompleteReceipt(receipt)


NOT_KEPT = CompleteCommit(0)
"""Number for appends to streams of a broker without a store: these appends are complete once written."""

NO_RECEIPT = CompleteReceipt(0)
"""Receipt before the first change."""


def _cannot() -> bool:
    return False


def _asleep() -> None:
    """Wake nothing: no store listens yet."""
