"""Disks that are full, failing, or slow."""

import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jumpmq.store.files import Files


class Disk(Files):
    """A disk with adjustable failures.

    Attributes:
        room: free octets; None for no limit.
        write_error, sync_error: error number of every write or sync; 0 for success.
        delay: duration of a sync, in seconds.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.write_error = self.sync_error = 0
        self.delay = 0.0
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def allocate(self, file: int, offset: int, length: int) -> None:
        self._grow(file, offset + length)
        super().allocate(file, offset, length)

    def write(self, file: int, offset: int, buffers: Sequence[Any]) -> None:
        self._grow(file, offset + sum(map(len, buffers)))
        if self.write_error:
            raise OSError(self.write_error, os.strerror(self.write_error))
        super().write(file, offset, buffers)

    def sync(self, file: int) -> None:
        time.sleep(self.delay)
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(file)

    def remove(self, path: Path) -> None:
        if self.room is not None:
            self.room += self._sizes.pop(str(path), 0)
        super().remove(path)

    def _grow(self, file: int, size: int) -> None:
        name = str(Path(f"/proc/self/fd/{file}").readlink())
        with self._lock:
            more = size - max(os.fstat(file).st_size, self._sizes.get(name, 0))
            if more > 0:
                if self.room is not None:
                    if more > self.room:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    self.room -= more
                self._sizes[name] = size
