"""Interface to the writing thread: one commit at a time, without clients waiting for the disk.

The thread knows only descriptors and octets. When a write is finished, a descriptor for the event loop becomes
readable.
"""

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from jumpmq.store import worker
from jumpmq.store._worker import Worker as CompiledWorker
from jumpmq.store.files import Files
from jumpmq.store.worker import Write

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors resolved by freeing disk room."""

SMALL_BYTES = 64 << 10
"""Maximum octets of a commit written by the caller's thread."""

QUICK = 0.0005
"""Maximum seconds for a small commit on a fast disk."""

ShipAhead = Callable[[int, bytes], bool]
"""Sends a commit's begin (position) and octets to all followers. Returns True if sent; False if sent to no follower."""

FORGETTING = 0.9
"""Factor of the decaying maximum of recent write times: each faster commit reduces the maximum by this factor."""


class Result(NamedTuple):
    """Result of a write.

    Attributes:
        error: error of the write; None if the commit is on disk.
        unsafe: True if the content of the file is unknown.
        is_told: True if copies were notified of the written octets.
    """

    error: OSError | None
    unsafe: bool = False
    is_told: bool = False


WRITTEN = Result(None)
"""Result of a successful write."""


class WritingThread(Protocol):
    """See :class:`jumpmq.store.worker.Worker`."""

    def submit(self, write: Write) -> None: ...
    def append(self, file: int, offset: int, buffers: list[bytes]) -> None: ...
    @property
    def is_working(self) -> bool: ...
    def take(self) -> tuple[int, bool, float] | None: ...
    def perform(self, write: Write) -> tuple[int, bool, float]: ...
    def close(self) -> None: ...


class Writer:
    """Writes and syncs in a separate thread.

    Args:
        files: the file calls to use. With calls other than the operating system's, the thread is not the compiled one.
        tell, ship: as for :meth:`Store.open`.
    """

    def __init__(self, files: Files, tell: int = -1, ship: ShipAhead | None = None) -> None:
        self._tells = tell >= 0
        self._ship = ship
        self._results: deque[Result] = deque()  # results without anything to write
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # readable with each result
        self._waking = threading.Lock()  # held during a write to the pipe, and while the pipe is closed
        self._timer: threading.Timer | None = None  # timer of the last wake_after()
        self._is_shipped = False  # True if followers have the octets of the last write, even if the write fails
        self._submitted_at = 0.0  # time of the last submitted write, by the monotonic clock
        self._seconds = QUICK  # decaying maximum of recent write times, in seconds
        self._worker: WritingThread
        if type(files) is Files:
            self._worker = CompiledWorker(self._writable, tell)
        else:
            self._worker = worker.Worker(self._writable, files, tell)

    def fileno(self) -> int:
        """Return a descriptor that is readable when :meth:`results` has results."""
        return self._readable

    def submit(self, write: Write) -> None:
        """Write a commit; the last commit must have been finished."""
        self._submitted_at, self._is_shipped = time.monotonic(), False
        if self._ship is not None and write.commit.length <= SMALL_BYTES and not (write.allocate or write.appends):
            # Followers get the commit before the disk does. The file has room: otherwise a full disk could require a
            # retry with other content, which would differ from the followers' commit.
            octets = b"".join(write.commit.finalize(write.salt))
            self._is_shipped = self._ship(write.position - len(octets), octets)
            if self._is_shipped:
                if not write.zeros:
                    self._worker.append(write.file, write.offset, [octets])
                    return
                # The followers have the octets already: the thread reports no position.
                write = write._replace(position=0)
        self._worker.submit(write)

    def is_quick(self, octets: int) -> bool:
        """Return True if the disk wrote recent commits faster than a handover to the thread and back takes. Always
        False for large commits, and in a home with copies.
        """
        return octets <= SMALL_BYTES and self._seconds < QUICK and not self._tells

    def write(self, write: Write) -> Result:
        """Write a commit while the caller waits; the last commit must have been finished."""
        return self._result(*self._worker.perform(write))

    @property
    def is_working(self) -> bool:
        """True while the disk has not answered."""
        return self._worker.is_working

    @property
    def hung_for(self) -> float:
        """Seconds since the submission of an unfinished write, in a home with copies; else 0."""
        return time.monotonic() - self._submitted_at if self._tells and self._worker.is_working else 0.0

    def finish(self, result: Result) -> None:
        """Report a result without anything to write."""
        self._results.append(result)
        self.wake()

    def results(self) -> list[Result]:
        """Return the results of commits finished since the last call."""
        # The pipe is emptied first: a result that arrives later makes the descriptor readable again.
        with contextlib.suppress(BlockingIOError):
            os.read(self._readable, 4096)
        found = list(self._results)
        self._results.clear()
        while (taken := self._worker.take()) is not None:
            found.append(self._result(*taken))
        return found

    def _result(self, number: int, unsafe: bool, seconds: float) -> Result:
        self._seconds = max(seconds, self._seconds * FORGETTING)
        unsafe = unsafe or self._is_shipped
        if number:
            error = OSError(number, os.strerror(number))
            # On a full disk the write is repeated at the same place; after other errors the file's content is unknown.
            return Result(error, unsafe or number not in NO_ROOM, unsafe and self._tells)
        return WRITTEN

    def wake_after(self, seconds: float) -> None:
        """Make the descriptor readable, without a result, after some seconds."""
        self._timer = threading.Timer(seconds, self.wake)
        self._timer.daemon = True
        self._timer.start()

    def wake(self) -> None:
        """Make the descriptor readable. Callable from any thread; without effect after :meth:`close`."""
        with self._waking, contextlib.suppress(BlockingIOError):  # a full pipe is readable already
            if self._writable >= 0:
                os.write(self._writable, b"\0")

    def close(self) -> None:
        """End the thread; the thread must be idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._worker.close()
        with self._waking:  # descriptors may be reused
            os.close(self._readable)
            os.close(self._writable)
            self._writable = -1
