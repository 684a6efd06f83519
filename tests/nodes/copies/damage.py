"""Damage of a copy's files: the place of a message in the log, and flipped bits."""

import os
from pathlib import Path


def place_of(body: bytes, directory: Path) -> tuple[Path, int]:
    """Return the position of a message's body in the log of a copy."""
    for path in (directory / "log").glob("*.log"):
        if (at := path.read_bytes().find(body)) >= 0:
            return path, at
    raise AssertionError(f"{body!r} is not in {directory}")


def flip(path: Path, at: int) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as file:
        octet = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([octet ^ 1]), at)
