"""The writing and syncing thread: reference implementation of the compiled thread, used with disks substituted by a
test.
"""

import contextlib
import os
import sys
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import NamedTuple

from jumpmq.store.files import Files
from jumpmq.store.records import Commit


class StreamWrite(NamedTuple):
    """Octets for a stream's file, written without a sync, because the log has the octets, too. Also used for
    :meth:`Worker.append`.

    Attributes:
        file, offset: descriptor, and position in the file.
        buffers: the octets.
        allocate: as in :class:`Write`.
    """

    file: int
    offset: int
    buffers: list[bytes]
    allocate: tuple[int, int] | None


class Write(NamedTuple):
    """A commit to be written.

    Attributes:
        file, offset: descriptor, and position in the file.
        commit: the commit; the thread inserts the checksums.
        salt: initial value of the checksums.
        allocate: octets of the file to allocate first, as (offset, length); None if the file has room.
        zeros: octets behind the commit to fill with zeros. Later commits that overwrite zeros are on disk twice as fast
            (measured, ext4) as commits to octets that are only allocated, because the file gains no block.
        appends: writes before the commit, in sequence, without a sync. The first error ends the sequence.
        position: position of the commit's end in the log, written to the worker's ``tell``; 0 for no such report.
    """

    file: int
    offset: int
    commit: Commit
    salt: int
    allocate: tuple[int, int] | None
    zeros: int = 0
    appends: list[StreamWrite] = []  # noqa: RUF012 - never changed
    position: int = 0


class Worker:
    """Writes commits in sequence.

    Args:
        wake: descriptor to which an octet is written when a commit is finished.
        files: the file calls to use.
        tell: descriptor to which the position of each commit is written, before the commit's sync; -1 for none.
    """

    def __init__(self, wake: int, files: Files, tell: int = -1) -> None:
        self._wake, self._tell = wake, tell
        self._files = files
        self._jobs: SimpleQueue[Write | StreamWrite | None] = SimpleQueue()
        self._finished: deque[tuple[int, bool, float]] = deque()
        self._working = False
        self._thread = threading.Thread(target=self._run, name="jumpmq-store", daemon=True)
        self._thread.start()

    def submit(self, write: Write) -> None:
        """Write a commit in the thread. The last commit must have been finished."""
        self._working = True
        self._jobs.put(write)

    def append(self, file: int, offset: int, buffers: list[bytes]) -> None:
        """Write and sync octets as they are, in the thread. The last write must have been finished."""
        self._working = True
        self._jobs.put(StreamWrite(file, offset, buffers, None))

    @property
    def is_working(self) -> bool:
        """True if the thread has an unfinished write."""
        return self._working and self._thread.is_alive()

    def take(self) -> tuple[int, bool, float] | None:
        """Return the result of the finished commit: the error number, 0 for none, True if the file's content is
        uncertain, and the duration in seconds. None without a finished commit."""
        return self._finished.popleft() if self._finished else None

    def perform(self, write: Write | StreamWrite) -> tuple[int, bool, float]:
        """Write a commit in the caller's thread, and return the result as :meth:`take` does. The worker must be
        idle.
        """
        began = time.perf_counter()
        number, unsafe = self._commit(write)
        return number, unsafe, time.perf_counter() - began

    def close(self) -> None:
        """End the thread; the thread must be idle."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            # The result is there before the wake-up, so that the woken thread finds it.
            self._finished.append(self.perform(job))
            self._working = False
            # The buffers are freed before the wait for the next job.
            del job
            os.write(self._wake, b"\0")

    def _commit(self, write: Write | StreamWrite) -> tuple[int, bool]:
        unsafe = False
        try:
            if isinstance(write, StreamWrite):
                self._files.write(write.file, write.offset, write.buffers)
                unsafe = True
                self._files.sync(write.file)
                return 0, True
            # Streams first: after an error here the log's file is unchanged.
            for one in write.appends:
                if one.allocate is not None:
                    self._files.allocate(one.file, *one.allocate)
                self._files.write(one.file, one.offset, one.buffers)
            buffers = write.commit.finalize(write.salt)
            if write.allocate is not None:
                self._files.allocate(write.file, *write.allocate)
            if write.zeros:
                buffers.append(bytes(write.zeros))
            self._files.write(write.file, write.offset, buffers)
            # From here on the system's cache may have octets that a failed sync leaves off the disk.
            unsafe = True
            # Before the sync: copies store the octets while this disk does.
            if self._tell >= 0 and write.position:
                with contextlib.suppress(OSError):
                    os.write(self._tell, write.position.to_bytes(8, sys.byteorder))
            self._files.sync(write.file)
        except OSError as error:
            return error.errno or -1, unsafe
        return 0, True
