"""What the store knows of a stream: what its files hold, so that a start misses what is no longer there, and cuts what
was never committed.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

KIND = "stream"
"""The kind of the records that hold it; the key is the stream's number."""

FLOOR = "stream floor"
"""The kind of the records of the lowest offset that retention has left; the key is the stream's number."""

HANDED = "handed-over"
"""File in a stream's directory that comes from another home: what that one knew of it."""


class Bounds(NamedTuple):
    """What a stream has had, at least.

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


class Piece(NamedTuple):
    """A chunk of a stream that the log has.

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
    """What a start finds of a stream in the store.

    Attributes:
        bounds: the last record of it; with ``is_exact``, where the log is whole, nothing behind :attr:`end` counts.
        pieces: what the log has of it, in order; the disk may not have it in the stream's files.
        floor: the lowest offset that retention has left, where that came later; else 0.
    """

    bounds: Bounds
    pieces: Sequence[Piece] = ()
    floor: int = 0

    @property
    def first(self) -> int:
        """The lowest offset that retention has left."""
        return max(self.bounds.first, self.floor)

    @property
    def end(self) -> int:
        """The offset behind the last message that was committed, as far as the store knows."""
        return max(self.bounds.end, self.pieces[-1].end) if self.pieces else self.bounds.end


class Handed(NamedTuple):
    """What a home leaves with the files of a stream that move to another one.

    Attributes:
        bounds: what was on disk of it.
        offsets: the records of consumer groups' offsets.
    """

    bounds: Bounds
    offsets: dict[str, dict[str, int]]

    def encode(self) -> str:
        """As JSON text, as all versions read it."""
        return json.dumps([self.bounds[:5], self.offsets], separators=(",", ":"))

    def write(self, directory: Path) -> None:
        """Have it on disk, in the stream's directory.

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
    def decode(cls, text: str) -> "Handed":
        """From JSON text."""
        bounds, offsets = json.loads(text)
        return cls(Bounds(*bounds)._replace(is_exact=True), offsets)
