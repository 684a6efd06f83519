"""The store's record of a stream's files. With the record, a start notices missing messages, and cuts off uncommitted
messages.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HANDED = "handed-over"
"""File in the directory of a stream from another home, with the other home's knowledge of the stream."""


class Bounds(NamedTuple):
    """Minimum content of a stream.

    Attributes:
        first: lowest offset left by retention.
        end: offset behind the last message.
        segments: number of files with these offsets.
        octets: octets of all these files except the last.
        salt: salt of the last file, unique to the stream.
        is_exact: True if the log has all committed messages from ``end`` on. Records of older versions lack the field:
            there, messages in the files behind ``end`` were committed, too.
    """

    first: int
    end: int
    segments: int
    octets: int
    salt: int
    is_exact: bool = False

    def encode(self) -> str:
        """Return the record as JSON text."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> "Bounds":
        """Return the bounds in a record's JSON text."""
        return cls(*json.loads(text))


class StreamChunk(NamedTuple):
    """A chunk of a stream in the log.

    Attributes:
        log: file of the log.
        offset, length: position and octets of the block in the log's file.
        salt: initial value of the checksums in the log's file.
        first, end: offset of the chunk's first message, and offset behind its last message.
        segment, position: first offset of the stream's segment with the chunk, and position in the segment's file.
    """

    log: Path
    offset: int
    length: int
    salt: int
    first: int
    end: int
    segment: int
    position: int


class Known(NamedTuple):
    """State of a stream in the store at a start.

    Attributes:
        bounds: last record of the stream. If ``is_exact`` and the log is undamaged, messages in the files behind
            :attr:`end` do not count.
        pieces: chunks in the log, in order. The stream's files may lack these chunks.
        floor: lowest offset left by retention after the last record; 0 without retention since then.
    """

    bounds: Bounds
    pieces: Sequence[StreamChunk] = ()
    floor: int = 0

    @property
    def first(self) -> int:
        """Lowest offset left by retention."""
        return max(self.bounds.first, self.floor)

    @property
    def end(self) -> int:
        """Offset behind the last committed message known to the store."""
        return max(self.bounds.end, self.pieces[-1].end) if self.pieces else self.bounds.end


class HandedFiles(NamedTuple):
    """Information passed with the files of a stream that moves to another home.

    Attributes:
        bounds: content of the files.
        offsets: records of consumer groups' offsets, by group.
    """

    bounds: Bounds
    offsets: dict[str, dict[str, int]]

    def encode(self) -> str:
        """Return JSON text readable by all versions."""
        return json.dumps([self.bounds[:5], self.offsets], separators=(",", ":"))

    def write(self, directory: Path) -> None:
        """Write and sync the file :data:`HANDED` in the stream's directory.

        Raises:
            OSError: the file cannot be written.
        """
        path = directory / f"{HANDED}.new"
        with path.open("w") as file:
            file.write(self.encode())
            file.flush()
            os.fsync(file.fileno())
        path.replace(directory / HANDED)

    @classmethod
    def decode(cls, text: str) -> "HandedFiles":
        """Return the information in JSON text."""
        bounds, offsets = json.loads(text)
        return cls(Bounds(*bounds)._replace(is_exact=True), offsets)
