from typing import Any

def checksum(octets: bytes | memoryview, start: int = 0, /) -> int:
    """Return the CRC-32 of octets, continued from ``start``."""

class Worker:
    """Thread that writes commits in sequence; compiled. The reference implementation is
    :class:`jumpmq.store.worker.Worker`."""

    def __init__(self, wake: int, tell: int = -1) -> None:
        """Start the thread.

        Args:
            wake: descriptor to which an octet is written when a commit is finished.
            tell: descriptor to which the position of each commit is written, before the commit's sync; -1 for none.
        """

    def submit(self, write: Any) -> None:
        """Write a commit in the thread. The last write must have been finished.

        Args:
            write: a :class:`jumpmq.store.worker.Write`.
        """

    def append(self, file: int, offset: int, buffers: list[bytes]) -> None:
        """Write and sync octets as they are, in the thread. The last write must have been finished."""

    @property
    def is_working(self) -> bool:
        """True if the thread has an unfinished write."""

    def take(self) -> tuple[int, bool, float] | None:
        """Return the result of the finished write: the error number, 0 for none; True if the file's content is
        uncertain; and the duration in seconds. None without a finished write."""

    def perform(self, write: Any) -> tuple[int, bool, float]:
        """Write a commit in the caller's thread, and return the result as :meth:`take` does. The thread must be idle.

        Args:
            write: a :class:`jumpmq.store.worker.Write`.
        """

    def close(self) -> None:
        """End the thread; the thread must be idle."""
