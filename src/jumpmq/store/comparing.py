"""Names, lengths and checksums of the files in a data directory, for the comparison of copies.

The comparison covers the complete part of the log's segments, and the files of streams. The index is not compared,
because each copy has an index of its own. All functions wait for the disk.
"""

import re
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from jumpmq.store import stream_damage, stream_files, stream_segment
from jumpmq.store.files import Files
from jumpmq.store.log import DIRECTORY, relative_name
from jumpmq.store.records import OPENING_SIZE
from jumpmq.store.scan import OpenSegment

AT_ONCE = 1 << 20
"""Maximum octets per read."""

NAMES = re.compile(rf"{DIRECTORY}/\d+\.log|{stream_files.DIRECTORY}/\d+/[^/]+{re.escape(stream_segment.SUFFIX)}")
"""Pattern of the names of compared files, relative to the data directory."""


def lengths(directory: Path, ends: Mapping[int, int]) -> dict[str, int]:
    """Return the lengths of all compared files in octets, by name.

    Args:
        ends: complete octets of each segment of the log, by number.
    """
    found = {relative_name(segment): end for segment, end in ends.items()}
    found = {name: length for name, length in found.items() if (directory / name).exists()}
    for path in sorted((directory / stream_files.DIRECTORY).glob(f"[0-9]*/*{stream_segment.SUFFIX}")):
        if path.parent.name.isdigit():
            name = path.relative_to(directory).as_posix()
            try:
                found[name] = stream_segment.StreamSegment.open(path, on_loss=lambda loss: None).size
            except FileNotFoundError:  # the stream's retention has just removed the file
                continue
    return found


def checksum(directory: Path, name: str, offset: int, length: int) -> int | None:
    """Return the CRC-32 of a range of a file; None if the file is missing or too short.

    Raises:
        ValueError: the name is not that of a compared file.
        OSError: the octets cannot be read.
    """
    if NAMES.fullmatch(name) is None:
        raise ValueError(f"{name} is not a file of a copy")
    crc = 0
    try:
        with (directory / name).open("rb") as file:
            file.seek(offset)
            while length and (octets := file.read(min(AT_ONCE, length))):
                crc, length = zlib.crc32(octets, crc), length - len(octets)
    except FileNotFoundError:
        return None
    return None if length else crc


def is_damaged(directory: Path, name: str, length: int) -> bool:
    """Return True if a segment of the log or a stream's file does not match the checksums in the file.

    Args:
        length: complete octets of the file.

    Raises:
        OSError: the file cannot be read.
        StoreError: a stream's file cannot be read.
    """
    if NAMES.fullmatch(name) is None:
        return False
    try:
        if not name.startswith(f"{DIRECTORY}/"):
            return stream_damage.is_damaged(directory / name, length)
        segment = OpenSegment(Files(), directory / name)
    except FileNotFoundError:
        return False
    with closing(segment) as file:
        if file.opening is None:
            return True
        end = OPENING_SIZE
        for found in file.commits():
            if found.offset >= length:
                break
            if found.damaged or not file.is_whole(found):
                return True
            end = found.end
        return end < length
