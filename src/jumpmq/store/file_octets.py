"""Octets of a file, read at random positions by system calls: a disk error becomes an exception."""

from __future__ import annotations

import os
from pathlib import Path

WINDOW = 4096
"""Octets read together with a header, because the next header may be near."""

SEARCHED_AT_ONCE = 1 << 20
"""Octets per read in a search."""


class FileOctets:
    """An open file. The file is not mapped, since a read of a mapped file that is cut or unreadable ends the process
    (SIGBUS).

    Raises:
        OSError: the file cannot be opened. Each method raises the same error if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size
        self._window, self._window_at = b"", 0  # octets last read by head(), and their position

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def __len__(self) -> int:
        return self._size

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` octets from a position on; fewer at the end of the file."""
        octets = os.pread(self._descriptor, length, position)
        while octets and len(octets) < length:
            more = os.pread(self._descriptor, length - len(octets), position + len(octets))
            if not more:
                break
            octets += more
        return octets

    def head(self, position: int, length: int) -> bytes:
        """Like :meth:`read`, for a few octets that are followed by further reads nearby: reads ahead."""
        start = position - self._window_at
        if not 0 <= start <= len(self._window) - length:
            self._window, self._window_at, start = self.read(position, max(WINDOW, length)), position, 0
        return self._window[start : start + length]

    def find(self, what: bytes, start: int) -> int:
        """Return the next position of a pattern; -1 if not found."""
        while start < self._size:
            octets = self.read(start, SEARCHED_AT_ONCE)
            if (at := octets.find(what)) >= 0:
                return start + at
            if len(octets) < SEARCHED_AT_ONCE:
                break
            start += SEARCHED_AT_ONCE - len(what) + 1
        return -1
