"""A stream segment copied from another home's disk, in pieces, and verified by checksums.

After an interruption, the undamaged chunks at the beginning stay, and the next attempt continues behind these chunks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jumpmq.store.file_octets import FileOctets
from jumpmq.store.files import Files
from jumpmq.store.stream_end import segment_path
from jumpmq.store.stream_segment import is_whole, place_of

SYNCED = 8 << 20
"""Octets after which written data is synced: larger syncs would delay concurrent syncs."""


class Extent(NamedTuple):
    """The complete part of a segment on disk.

    Attributes:
        first, end: offset of the first message, and offset behind the last message.
        size: octets of the file.
    """

    first: int
    end: int
    size: int


class SegmentCopy:
    """A partly copied segment.

    Args:
        directory: directory of the segment's file.
        first: offset of the segment's first message.

    Attributes:
        position: octets of the undamaged chunks at the beginning of the file.
        end: offset behind the last message of these chunks.
        size: octets of the file, once the whole file was verified; 0 before.
    """

    def __init__(self, files: Files, directory: Path, first: int) -> None:
        self.position = self.size = 0
        self.end = first
        self.path = segment_path(directory, first)
        self._first = first
        self._files = files  # the file calls
        self._salt = 0  # salt of the segment; 0 before the first chunk
        self._written = 0  # octets written
        self._synced = 0  # octets synced

    def look(self, seconds: float) -> bool:
        """Examine chunks behind :attr:`position`, for the given time; return True if more whole chunks may follow.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path.exists():
            return False
        until = time.perf_counter() + seconds
        octets = FileOctets(self.path)
        while (place := place_of(octets, self.position)) is not None:
            fits = place.first == self.end and self._salt in (0, place.salt)
            if not fits or place.position + place.length > len(octets) or not is_whole(octets, self.position):
                break
            self.position += place.length
            self.end, self._salt = place.first + place.message_count, place.salt
            if time.perf_counter() > until:
                return True
        return False

    def begin_again(self) -> None:
        """Discard the existing content."""
        self.position = self.size = self._salt = 0
        self.end = self._first

    def cut(self) -> None:
        """Truncate the file at :attr:`position`.

        Raises:
            OSError: the file cannot be cut.
        """
        self._written = self._synced = self.position
        with self._open() as file:
            self._files.truncate(file, self.position)

    def write(self, octets: bytes, *, last: bool) -> None:
        """Write the following octets. After the last octets the file is synced.

        Raises:
            OSError: the file cannot be written.
        """
        with self._open() as file:
            self._files.write(file, self._written, [octets])
            self._written += len(octets)
            if last or self._written - self._synced >= SYNCED:
                self._files.sync(file)
                self._synced = self._written

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        """Open the file for a single call: so a thread that hangs in a call cannot write to another file later."""
        file = self._files.open(self.path) if self.path.exists() else self._files.create(self.path)
        try:
            yield file
        finally:
            self._files.close(file)
