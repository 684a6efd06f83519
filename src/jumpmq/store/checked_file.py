"""Small files that are a line of JSON and a line with its CRC-32, replaced as a whole."""

import json
import zlib
from pathlib import Path
from typing import Any

from jumpmq.store.files import Files


def encoded(value: Any) -> bytes:
    """Return the content of a file with a value of JSON."""
    line = json.dumps(value).encode()
    return b"%b\n%08x\n" % (line, zlib.crc32(line))


def decoded(octets: bytes) -> Any:
    """Return the value in a file's content.

    Raises:
        ValueError: the content is not what :func:`encoded` makes.
    """
    line, crc, rest = octets.split(b"\n")
    if rest or int(crc, 16) != zlib.crc32(line):
        raise ValueError("the checksum is that of other octets")
    return json.loads(line)


def replace(path: Path, octets: bytes, files: Files) -> None:
    """Write a file, whole or not at all, synced.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.new")
    file = files.create(temporary)
    try:
        files.write(file, 0, [octets])
        files.sync(file)
    finally:
        files.close(file)
    temporary.replace(path)
    files.sync_directory(path.parent)
