"""A second copy of the definitions, beside the index: what the log no longer says and cannot be made again.

It is a text file, renamed into place when it is whole::

    JumpMQ definitions, SEGMENT, COUNT, CRC-32 of these
    CRC-32, [kind, key, value] as JSON
    ...

The log goes on from its segment: what is declared and deleted there comes after what is here.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE_NAME = "definitions"

ON_WAY = 1 << 61
"""A bit in the number of a queue: under that number messages are kept that are on their way to it, at another home."""

AHEAD = 1 << 60
"""The same, of messages that the queue had where its home was before: they go before what is published now."""

BEHIND = 1 << 59
"""The same, of messages that were published to a queue while others were on their way to go before them."""

PARTS = ON_WAY | AHEAD | BEHIND
"""All of these bits."""

_NAMED = {"id", "name", "vhost"}
_TITLE = b"JumpMQ definitions"


@dataclass
class Copy:
    """What the file says.

    Attributes:
        segment: the first segment of the log that is not covered.
        definitions: JSON text by (kind, key), in order.
        whole: whether nothing of it is damaged.
    """

    segment: int = 0
    definitions: dict[tuple[str, str], str] = field(default_factory=dict)
    whole: bool = True


def queue_naming(definitions: Mapping[tuple[str, str], str]) -> Callable[[int], str]:
    """What operators call the queue of a number, as a function.

    Args:
        definitions: JSON text by (kind, key).
    """
    names: dict[int, str] | None = None

    def name(number: int) -> str:
        nonlocal names
        if names is None:  # most of the time they are not asked for
            found = [json.loads(text) for (kind, _), text in definitions.items() if kind == "queue"]
            whole = [one for one in found if isinstance(one, dict) and one.keys() >= _NAMED]
            ids = [(one[key], one) for one in whole for key in ("id", "before") if key in one]
            names = {id: named(one["name"], one["vhost"]) for id, one in ids}
        if number & PARTS:
            return part_of(number, name)
        return names.get(number) or numbered(number)

    return name


def part_of(number: int, name: Callable[[int], str]) -> str:
    """What messages of a queue are called that are kept under a number of their own (:data:`PARTS`).

    Args:
        name: what operators call the queue of a number.
    """
    queue = name(number & ~PARTS)
    return f"what is on its way to {queue}" if number & ON_WAY else f"what waits to enter {queue}"


def named(name: str, vhost: str) -> str:
    """What operators call a queue."""
    return f"queue '{name}' in vhost '{vhost}'"


def numbered(number: int) -> str:
    """What a queue is called whose definition is not known."""
    return f"queue number {number}"


def write(path: Path, segment: int, definitions: Iterable[tuple[str, str, str]]) -> None:
    """Write all definitions, as (kind, key, JSON text); the file is the old or the new one, whatever happens.

    Raises:
        OSError: it cannot be written.
    """
    lines = [_line(json.dumps(one, separators=(",", ":")).encode()) for one in definitions]
    unfinished = path.with_name(path.name + ".new")
    file = os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as octets:
        octets.write(_line(b"%s, %d, %d" % (_TITLE, segment, len(lines))))
        octets.writelines(lines)
        octets.flush()
        os.fsync(file)
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # the segments that are let go of next must not go before the new name is on disk
    finally:
        os.close(directory)


def _line(octets: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(octets), octets)


def read(path: Path) -> Copy | None:
    """Read what is whole of the file; None where there is none.

    Raises:
        OSError: it cannot be read.
    """
    if not path.exists():
        return None
    first, *rest = path.read_bytes().split(b"\n")
    copy, count = Copy(), len(rest)
    if (title := _checked(first)) is None:
        copy.whole = False
    else:
        copy.segment, count = map(int, title.split(b", ")[1:])
    for line in rest:
        if (octets := _checked(line)) is not None:
            kind, key, value = json.loads(octets)
            copy.definitions[kind, key] = value
    copy.whole = copy.whole and len(copy.definitions) == count
    return copy


def _checked(line: bytes) -> bytes | None:
    """What a line says, None where it is damaged."""
    octets = line[9:]
    return octets if line[:9] == b"%08x " % zlib.crc32(octets) else None
