"""The file calls of the log, in a single module, so that a test can substitute a disk."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MAX_BUFFERS = 1024
"""Maximum number of buffers per write (IOV_MAX of Linux)."""

_SYNC = getattr(os, "fdatasync", os.fsync)
_FALLOCATE = getattr(os, "posix_fallocate", None)


class Files:
    """The operating system's files. Every method raises OSError.

    Attributes:
        allocated_ahead: octets by which a stream's file grows. Large steps change the size less often, which makes
            syncs faster.
    """

    allocated_ahead = 16 << 20

    def create(self, path: Path) -> int:
        """Create an empty file readable only by this user; an existing file is emptied. Return the descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """Open an existing file for reading and cutting; for reading only, if writing is not permitted."""
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except PermissionError:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, file: int, offset: int, buffers: Sequence[Any]) -> None:
        """Write all buffers, in sequence, starting at ``offset``."""
        for start in range(0, len(buffers), MAX_BUFFERS):
            some = buffers[start : start + MAX_BUFFERS]
            length = sum(map(len, some))
            written = os.pwritev(file, some, offset)
            # A signal or a nearly full disk may shorten a write.
            if written < length:
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    written += (count := os.pwrite(file, rest, offset + written))
                    rest = rest[count:]
            offset += length

    def sync(self, file: int) -> None:
        """Sync everything written so far, or the names in a directory, to disk."""
        _SYNC(file)

    def allocate(self, file: int, offset: int, length: int) -> None:
        """Allocate disk space for later writes, read as zeros."""
        if _FALLOCATE is not None:
            _FALLOCATE(file, offset, length)

    def truncate(self, file: int, size: int) -> None:
        """Cut a file."""
        os.ftruncate(file, size)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Sync the names in a directory to disk."""
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def noted(self, path: Path) -> None:
        """Hook for tests, called after an update of the index: SQLite writes the file without this class."""

    def close(self, file: int) -> None:
        os.close(file)
