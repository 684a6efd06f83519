"""A second copy of the definitions, in addition to the index. The log no longer has old definitions, so a damaged index
alone would lose them.

The copy is a text file. A new version is written completely, and then renamed into place. Each line begins with the
CRC-32 of its content, as eight hexadecimal digits::

    CRC-32 JumpMQ definitions, SEGMENT, COUNT
    CRC-32 [kind, key, value]                    JSON, a line per definition, COUNT lines

The file covers the log before SEGMENT: definitions in the log from this segment on are newer.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any, BinaryIO

FILE_NAME = "definitions"

ON_WAY = 1 << 61
"""Bit in a queue number for messages on the way to the queue, at another home."""

AHEAD = 1 << 60
"""Bit in a queue number for messages from the queue's previous home: ordered before messages published now."""

BEHIND = 1 << 59
"""Bit in a queue number for messages published while earlier messages were still on the way."""

PARTS = ON_WAY | AHEAD | BEHIND
"""All bits of partial queue numbers."""

PARSED_AT_ONCE = 1000
"""JSON texts of definitions parsed together."""

_NAMED = {"id", "name", "vhost"}
_TITLE = b"JumpMQ definitions"


@dataclass(frozen=True)
class ScannedFile:
    """The scanned definitions file.

    Attributes:
        path: path of the file.
        segment: first segment of the log that the file does not cover.
        whole: True if no line is missing or damaged.
    """

    path: Path
    segment: int
    whole: bool

    def definitions(self) -> dict[tuple[str, str], str]:
        """Return the undamaged definitions: JSON text by (kind, key), in order.

        Raises:
            OSError: the file cannot be read.
        """
        found = {}
        for octets in lines(self.path):
            if octets is not None and not octets.startswith(_TITLE):
                kind, key, value = json.loads(octets)
                found[kind, key] = value
        return found


class QueueNaming:
    """Names of queues by number for operators, as a function.

    Args:
        definitions: JSON text by (kind, key).
    """

    def __init__(self, definitions: Mapping[tuple[str, str], str]) -> None:
        self._definitions = definitions
        self._names: dict[int, str] | None = None  # computed at the first use, which is rare

    def __call__(self, number: int) -> str:
        if self._names is None:
            self._names = dict(self._found())
        if number & PARTS:
            return part_of(number, self)
        return self._names.get(number) or numbered(number)

    def _found(self) -> Iterator[tuple[int, str]]:
        for (kind, _), text in self._definitions.items():
            one = json.loads(text) if kind == "queue" else None
            if isinstance(one, dict) and one.keys() >= _NAMED:
                yield from ((one[key], named(one["name"], one["vhost"])) for key in ("id", "before") if key in one)


def part_of(number: int, name: Callable[[int], str]) -> str:
    """Return a name for a queue's messages kept under a separate number (:data:`PARTS`).

    Args:
        name: returns the name of a queue for operators, by number.
    """
    queue = name(number & ~PARTS)
    return f"the messages on the way to {queue}" if number & ON_WAY else f"the messages waiting to enter {queue}"


def named(name: str, vhost: str) -> str:
    """Return the name of a queue for operators."""
    return f"queue '{name}' in vhost '{vhost}'"


def numbered(number: int) -> str:
    """Return the name of a queue without a known definition."""
    return f"queue number {number}"


def write(path: Path, segment: int, definitions: Iterable[tuple[str, str, str]]) -> None:
    """Write all definitions, as (kind, key, JSON text). After a crash the file has either the old or the new content.

    Raises:
        OSError: the file cannot be written.
    """

    def write_to(octets: BinaryIO) -> None:
        octets.write(_title(segment, 0))
        count = 0
        for kind, key, text in definitions:
            count += 1
            octets.write(line(f"[{_quoted(kind)},{_quoted(key)},{_quoted(text)}]".encode()))
        octets.seek(0)
        octets.write(_title(segment, count))

    replace(path, write_to)


def replace(path: Path, write_to: Callable[[BinaryIO], None]) -> None:
    """Replace a file. After a crash the file has either the old or the new content.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = path.with_name(path.name + ".new")
    file = os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as octets:
        write_to(octets)
        octets.flush()
        # Before the rename: the new name must not lead to missing octets after a crash.
        os.fsync(file)
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # the caller removes segments next: before, the new name must be on disk
    finally:
        os.close(directory)


def _title(segment: int, count: int) -> bytes:
    """Return the first line, of equal length for every count: the count is known after writing all definitions."""
    return line(b"%s, %d, %010d" % (_TITLE, segment, count))


def line(octets: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(octets), octets)


def look(path: Path) -> ScannedFile | None:
    """Scan a definitions file; None if missing.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists():
        return None
    found = lines(path)
    title = next(found, None)
    count = damaged = 0
    for octets in found:
        count += 1
        damaged += octets is None
    if title is None:
        return ScannedFile(path, 0, whole=False)
    segment, wanted = map(int, title.split(b", ")[1:])
    return ScannedFile(path, segment, whole=count == wanted and not damaged)


def lines(path: Path) -> Iterator[bytes | None]:
    """Yield the content of every line, None if damaged."""
    with path.open("rb") as file:
        for line in file:
            octets = line[9:-1]
            yield octets if line[:9] == b"%08x " % zlib.crc32(octets) and line.endswith(b"\n") else None


def parsed(texts: Sequence[str]) -> list[Any]:
    """Return the values of JSON texts. Parsing many texts together shares the objects' keys, and takes half the
    time.
    """
    found: list[Any] = []
    for start in range(0, len(texts), PARSED_AT_ONCE):
        found += json.loads(f"[{','.join(texts[start : start + PARSED_AT_ONCE])}]")
    return found
