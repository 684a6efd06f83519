"""Small files with a line of JSON and a line with its CRC-32. A write replaces the whole file."""

import json
import zlib
from pathlib import Path
from typing import Any

from jumpmq.store.files import Files


def encoded(value: Any) -> bytes:
    """Return the content of a file for a JSON value."""
    line = json.dumps(value).encode()
    return b"%b\n%08x\n" % (line, zlib.crc32(line))


def decoded(octets: bytes) -> Any:
    """Return the value in a file's content.

    Raises:
        ValueError: the content was not made by :func:`encoded`.
    """
    line, crc, rest = octets.split(b"\n")
    if rest or int(crc, 16) != zlib.crc32(line):
        raise ValueError("the checksum does not match the content")
    return json.loads(line)


def replace(path: Path, octets: bytes, files: Files) -> None:
    """Write and sync a file. After a crash the file has either the old or the new content.

    Raises:
        OSError: the file cannot be written.
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
