"""The store's record of a stream: the content of the stream's files, so that a start notices missing messages, and cuts
uncommitted messages.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HANDED = "handed-over"
"""File in the directory of a stream from a remote home, with the remote home's knowledge of the stream."""


class Bounds(NamedTuple):
    """Minimum content of a stream.

    Attributes:
        first: the lowest offset that retention has left.
        end: the offset after the last one.
        segments: how many files these offsets are in.
        octets: those of all these files but the last.
        salt: of the last one; no other stream has it.
        is_exact: whether the log has all that came behind ``end``. In records of older versions it is missing: there,
            what the files have behind that was committed, too.
    """

    first: int
    end: int
    segments: int
    octets: int
    salt: int
    is_exact: bool = False

    def encode(self) -> str:
        """As JSON text."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> "Bounds":
        """From JSON text."""
        return cls(*json.loads(text))


class StreamChunk(NamedTuple):
    """A chunk of a stream in the log.

    Attributes:
        log: the log's file; ``offset`` and ``length`` tell where in it the block lies, and ``salt`` is the file's.
        first, end: offset of the chunk's first message, and that behind its last.
        segment, position: first offset of the segment that the chunk belongs to, and where it lies in that file.
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
        bounds: the last record of it; with ``is_exact``, where the log is whole, nothing behind :attr:`end` counts.
        pieces: what the log has of it, in order; the disk may not have it in the stream's files.
        floor: the lowest offset that retention has left, where that came later; else 0.
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
        """The offset behind the last message that was committed, as far as the store knows."""
        return max(self.bounds.end, self.pieces[-1].end) if self.pieces else self.bounds.end


class HandedFiles(NamedTuple):
    """Information left with the files of a stream migrating to a different home.

    Attributes:
        bounds: what was on disk of it.
        offsets: the records of consumer groups' offsets.
    """

    bounds: Bounds
    offsets: dict[str, dict[str, int]]

    def encode(self) -> str:
        """Return JSON text readable by all versions."""
        return json.dumps([self.bounds[:5], self.offsets], separators=(",", ":"))

    def write(self, directory: Path) -> None:
        """Write the file to disk, in the stream's directory.

        Raises:
            OSError: the disk does not take it.
        """
        path = directory / f"{HANDED}.new"
        with path.open("w") as file:
            file.write(self.encode())
            file.flush()
            os.fsync(file.fileno())
        path.replace(directory / HANDED)

    @classmethod
    def decode(cls, text: str) -> "HandedFiles":
        """From JSON text."""
        bounds, offsets = json.loads(text)
        return cls(Bounds(*bounds)._replace(is_exact=True), offsets)
