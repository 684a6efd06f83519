"""The membership of a home with copies as a file, known before the home's store may be opened.

``member`` is a line of JSON and a line with its CRC-32. The file makes a start ask the home's copies first: it is there
from the first wish for copies on, and is deleted never.
"""

import json
import zlib
from dataclasses import asdict
from pathlib import Path

from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.replicas.copy_directory import NOTE, Noted, write_note
from jumpmq.replication.lineage import before, position_at
from jumpmq.store import Store
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files

FILE = "member"
"""Name of the file in the data directory."""


def read_member(directory: Path) -> Membership | None:
    """Return the membership of a home with copies; None without the file.

    Raises:
        StoreError: the file is damaged or cannot be read.
    """
    path = directory / FILE
    try:
        line, crc, rest = path.read_bytes().split(b"\n")
        if rest or int(crc, 16) != zlib.crc32(line):
            raise ValueError("the checksum is that of other octets")
        return Membership(**json.loads(line))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}); move {directory} away, and its home is copied again") from error


def prepare(directory: Path, me: Membership, epoch: int, store: Store) -> None:
    """Make a home that is served without copies start with them. What is complete is the log as it is on disk.

    Args:
        directory: the home's.
        epoch: of the process that serves the home.

    Raises:
        OSError: a file cannot be written.
    """
    files = Files()
    last = store.lineage[-1]
    mark = position_at(last.segment, last.end)
    _replace(directory / NOTE, Noted(me.member, disk_of(me), epoch, mark, before(last.segment + 1)), files)
    write_member(directory, me)


def write_member(directory: Path, me: Membership) -> None:
    """Keep a membership, synced.

    Raises:
        OSError: the file cannot be written.
    """
    files = Files()
    line = json.dumps(asdict(me)).encode()
    path = directory / f"{FILE}.new"
    file = files.create(path)
    try:
        files.write(file, 0, [b"%b\n%08x\n" % (line, zlib.crc32(line))])
        files.sync(file)
    finally:
        files.close(file)
    path.replace(directory / FILE)
    files.sync_directory(directory)


def disk_of(me: Membership) -> str:
    """Return the identity of the disk of a home that has had no copies so far, as named in etcd."""
    return me.member[:8]


def _replace(path: Path, noted: Noted, files: Files) -> None:
    temporary = path.with_name(f"{path.name}.new")
    write_note(temporary, noted, files)
    temporary.replace(path)
