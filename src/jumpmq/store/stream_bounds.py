"""What the store notes of a stream's files, so that a start misses what is no longer there."""

import json
import os
from pathlib import Path
from typing import NamedTuple

KIND = "stream"
"""The kind of the records that hold it; the key is the stream's number."""


HANDED = "handed-over"
"""File in a stream's directory that comes from another home: what that one knew of it."""


class Bounds(NamedTuple):
    """What is on disk of a stream, at least.

    Attributes:
        first: the lowest offset that retention has left.
        end: the offset after the last one.
        segments: how many files these offsets are in.
        octets: those of all these files but the last.
        salt: of the last one; no other stream has it.
    """

    first: int
    end: int
    segments: int
    octets: int
    salt: int

    def encode(self) -> str:
        """As JSON text."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> "Bounds":
        """From JSON text."""
        return cls(*json.loads(text))


class Handed(NamedTuple):
    """What a home leaves with the files of a stream that move to another one.

    Attributes:
        bounds: what was on disk of it.
        offsets: the records of consumer groups' offsets.
    """

    bounds: Bounds
    offsets: dict[str, dict[str, int]]

    def encode(self) -> str:
        """As JSON text."""
        return json.dumps(self, separators=(",", ":"))

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
        return cls(Bounds(*bounds), offsets)
