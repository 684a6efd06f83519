"""Interface to the writing thread: one commit at a time, without clients waiting for the disk.

The thread knows no more than a file and octets. What it has finished is announced by a descriptor that becomes
readable, which an event loop can watch.
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
"""Maximum octets of a commit written by the caller's thread: a fast disk takes so many in a moment."""

QUICK = 0.0005
"""Seconds needed by a fast disk to write a small commit."""

Ship = Callable[[int, bytes], bool]
"""Sends the octets of a commit, which begins at a position, to all followers; True if sent, False if to none."""

FORGETTING = 0.9
"""Share of the measured slowness kept with every faster commit."""


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
        files: the file calls to use; the compiled thread knows only those of the operating system.
        tell, ship: as of :meth:`Store.open`.
    """

    def __init__(self, files: Files, tell: int = -1, ship: Ship | None = None) -> None:
        self._tells = tell >= 0
        self._ship = ship
        self._results: deque[Result] = deque()  # of writes that had nothing to write
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # readable when there are results
        self._waking = threading.Lock()  # held while the pipe is written to, or closed
        self._timer: threading.Timer | None = None  # of the last :meth:`wake_after`
        self._is_shipped = False  # whether followers have the octets of the last write, whatever comes of the write
        self._submitted_at = 0.0  # when the last write was, by the monotonic clock
        self._seconds = QUICK  # how long the disk takes of late: it falls slowly
        self._worker: WritingThread
        if type(files) is Files:
            self._worker = CompiledWorker(self._writable, tell)
        else:
            self._worker = worker.Worker(self._writable, files, tell)

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`results` has something to tell."""
        return self._readable

    def submit(self, write: Write) -> None:
        """Write a commit; the last commit must have been finished."""
        self._submitted_at, self._is_shipped = time.monotonic(), False
        if self._ship is not None and write.commit.length <= SMALL_BYTES and not (write.allocate or write.appends):
            # Before the thread and the disk are waited for. The file has room: a full disk cannot be a reason to try
            # once more, with other content.
            octets = b"".join(write.commit.seal(write.salt))
            self._is_shipped = self._ship(write.position - len(octets), octets)
            if self._is_shipped:
                if not write.zeros:
                    self._worker.append(write.file, write.offset, [octets])
                    return
                write = write._replace(position=0)
        self._worker.submit(write)

    def is_quick(self, octets: int) -> bool:
        """Return True if so many octets are written in a moment, judged by recent commits: the handover to the thread
        and back would take longer."""
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
        """Seconds for which the disk has not answered, where copies were told of the commit; else 0."""
        return time.monotonic() - self._submitted_at if self._tells and self._worker.is_working else 0.0

    def finish(self, result: Result) -> None:
        """Report a result without anything to write."""
        self._results.append(result)
        self.wake()

    def results(self) -> list[Result]:
        """Return the results of commits finished since the last call."""
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
            return Result(error, unsafe or number not in NO_ROOM, unsafe and self._tells)
        return WRITTEN

    def wake_after(self, seconds: float) -> None:
        """Become readable, with no result, after so many seconds."""
        self._timer = threading.Timer(seconds, self.wake)
        self._timer.daemon = True
        self._timer.start()

    def wake(self) -> None:
        """Become readable now. Callable from any thread; without effect after :meth:`close`."""
        with self._waking, contextlib.suppress(BlockingIOError):  # it is readable, then
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
