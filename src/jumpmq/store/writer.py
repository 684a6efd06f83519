"""The thread that writes: one commit at a time, so that the disk keeps nobody waiting.

It knows no more than a file and octets. What it has finished is announced by a descriptor that becomes readable, which
an event loop can watch.
"""

import contextlib
import errno
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import NamedTuple

from jumpmq.store.files import Files
from jumpmq.store.records import Commit

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that end when somebody makes room."""


class Write(NamedTuple):
    """A commit to be written.

    Attributes:
        file, offset: where.
        commit: what; its checksums are put in by the writer.
        salt: with which they begin.
        allocate: octets of the file to allocate first, as (offset, length); None where there is room.
    """

    file: int
    offset: int
    commit: Commit
    salt: int
    allocate: tuple[int, int] | None


class Result(NamedTuple):
    """How a write ended.

    Attributes:
        error: why it failed; None where the commit is on disk.
        unsafe: whether nobody knows any more what the file holds, as its sync failed.
    """

    error: OSError | None
    unsafe: bool = False


class Writer:
    """Writes and syncs in a thread of its own."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._jobs: SimpleQueue[Write | None] = SimpleQueue()
        self._results: deque[Result] = deque()
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._timer: threading.Timer | None = None
        self._thread = threading.Thread(target=self._run, name="jumpmq-store", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`results` has something to tell."""
        return self._readable

    def submit(self, write: Write) -> None:
        """Have a commit written; the last one must have been finished."""
        self._jobs.put(write)

    def results(self) -> list[Result]:
        """How the commits that were finished since the last call ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._readable, 4096)
        found = []
        while self._results:
            found.append(self._results.popleft())
        return found

    def wake_after(self, seconds: float) -> None:
        """Become readable, with no result, after so many seconds."""
        self._timer = threading.Timer(seconds, self.wake)
        self._timer.daemon = True
        self._timer.start()

    def wake(self) -> None:
        """Become readable now. Any thread may call it."""
        with contextlib.suppress(BlockingIOError):  # it is readable, then
            os.write(self._writable, b"\0")

    def close(self) -> None:
        """End the thread, which must be idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._jobs.put(None)
        self._thread.join()
        os.close(self._readable)
        os.close(self._writable)

    def finish(self, result: Result) -> None:
        """Report a result without anything to write."""
        self._results.append(result)
        self.wake()

    def _run(self) -> None:
        while (write := self._jobs.get()) is not None:
            result = self._try(write)
            del write
            self.finish(result)

    def _try(self, write: Write) -> Result:
        unsafe = False
        try:
            buffers = write.commit.seal(write.salt)
            if write.allocate is not None:
                self._files.allocate(write.file, *write.allocate)
            self._files.write(write.file, write.offset, buffers)
            unsafe = True
            self._files.sync(write.file)
        except OSError as error:
            return Result(error, unsafe or error.errno not in NO_ROOM)
        except Exception as error:  # the thread must live on, or publishers would wait for ever without a word
            return Result(OSError(0, str(error)), True)
        return Result(None)
