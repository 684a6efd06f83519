"""Files of a leader's copy, for new members, and for members that were down longer than the log is kept.

A member gets the index, the sealed segments of the log with complete commits only, and the files of streams. The index
is copied first, by SQLite's backup; segments that the copied index does not cover are kept until the member has them.
A file may grow or disappear, but its octets never change. Of each file, the member gets the octets that existed when
the manifest was made. Of a stream's file, which is allocated in advance, the member gets the octets of whole commits.

All methods block for the disk.
"""

import contextlib
import errno
import os
import sqlite3
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from jumpmq.replication.frames import File, Manifest, Piece
from jumpmq.replication.joining import PIECE_OCTETS
from jumpmq.replication.lineage import Lineage
from jumpmq.store import comparing, schema, stream_damage, stream_files, stream_segment
from jumpmq.store.log import relative_name

INDEX_COPY = "index-for-copies"
"""Prefix of the names of copied indexes, before the identity of the member's disk."""


class OfferedFiles:
    """Files of a leading home for one member, with its own manifest and copy of the index.

    Args:
        directory: directory of the home.
        member: identifies the member in file names.
        is_stopped: called repeatedly while files are read, which may take minutes; True ends the reading.
    """

    def __init__(self, directory: Path, member: str, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._directory = directory
        self._is_stopped = is_stopped
        self._index_copy = directory / f"{INDEX_COPY}-{member}"
        self._lengths: dict[str, int] = {}  # of the files in the last manifest, by name

    def manifest(self, epoch: int, kept: int, lineage: Lineage) -> Manifest:
        """List the files.

        Args:
            kept: position from which on the leader has all octets.
            lineage: lineage of the sealed segments with complete commits only.

        Raises:
            OSError: a file cannot be read.
            sqlite3.Error: the index cannot be copied.
        """
        self._copy_index()
        ends = {relative_name(stretch.segment): stretch.end for stretch in lineage}
        names = [schema.FILE_NAME, *ends]
        pattern = f"{stream_files.DIRECTORY}/[0-9]*/*{stream_segment.SUFFIX}"
        paths = [path for path in sorted(self._directory.glob(pattern)) if path.parent.name.isdigit()]
        names += [path.relative_to(self._directory).as_posix() for path in paths]
        files = []
        for name in names:
            try:
                length = ends.get(name) or self._length(name)
                files.append(File(name, length, self._checksum(name, length)))
            except FileNotFoundError:  # a stream's retention may just have deleted the file
                if not name.startswith(f"{stream_files.DIRECTORY}/"):
                    raise
        self._lengths = {file.name: file.length for file in files}
        return Manifest(epoch, kept, lineage, tuple(files))

    def lost(self) -> list[str]:
        """Return the losses of streams in the files of the last manifest. Reads at half speed, to spare clients.

        Raises:
            OSError: a file cannot be read.
            sqlite3.Error: the index cannot be read.
            StoreError: a part of a file cannot be read.
        """
        return [*stream_damage.lost(self._directory, stream_damage.expected(self._index_copy), self._is_stopped)]

    def piece(self, epoch: int, name: str, offset: int) -> Piece:
        """Return octets of a file in the manifest; empty for a removed file or an unlisted name.

        Raises:
            OSError: the file cannot be read.
        """
        octets = b""
        length = self._lengths.get(name, 0)
        if offset < length:
            with contextlib.suppress(FileNotFoundError), self._path(name).open("rb") as file:
                file.seek(offset)
                octets = file.read(min(PIECE_OCTETS, length - offset))
        return Piece(epoch, name, offset, zlib.crc32(octets), octets)

    def _length(self, name: str) -> int:
        path = self._path(name)
        if not name.startswith(f"{stream_files.DIRECTORY}/"):
            return path.stat().st_size
        return stream_segment.StreamSegment.open(path, on_loss=lambda loss: None).size

    def _path(self, name: str) -> Path:
        return self._index_copy if name == schema.FILE_NAME else self._directory / name

    def _copy_index(self) -> None:
        index_path, path = self._directory / schema.FILE_NAME, self._index_copy
        path.unlink(missing_ok=True)
        with (
            contextlib.closing(sqlite3.connect(f"file:{index_path}?mode=ro", uri=True)) as index,
            contextlib.closing(sqlite3.connect(path)) as copy,
        ):
            index.backup(copy)

    def _checksum(self, name: str, length: int) -> int:
        crc = 0
        with self._path(name).open("rb") as file:
            while length and (octets := file.read(min(PIECE_OCTETS, length))):
                if self._is_stopped():
                    raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
                crc = zlib.crc32(octets, crc)
                length -= len(octets)
        if length:
            raise OSError(0, f"{name} has {length} octets less than the log says")
        return crc


def damaged_segment(directory: Path, lineage: Lineage) -> int:
    """Return the number of the first segment with damage, by the checksums of its commits; 0 without damage. Reads at
    half speed, to spare clients.

    Raises:
        OSError: a segment cannot be read.
    """
    for stretch in lineage:
        name, began = relative_name(stretch.segment), time.monotonic()
        if comparing.is_damaged(directory, name, stretch.end):
            return stretch.segment
        time.sleep(time.monotonic() - began)
    return 0


def remove_offered(directory: Path) -> None:
    """Remove the copies of the index left by an earlier process."""
    for path in directory.glob(f"{INDEX_COPY}*"):
        path.unlink(missing_ok=True)
