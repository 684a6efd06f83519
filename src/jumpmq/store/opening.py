"""Opening a data directory: what an older version left is moved into a log, a damaged index is set aside, what may not
be on disk is written again, what is missing is made.
"""

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from jumpmq.store import migration, schema
from jumpmq.store.batch import Batch
from jumpmq.store.errors import Damaged, StoreError
from jumpmq.store.files import Files
from jumpmq.store.log import DIRECTORY, read_whole
from jumpmq.store.recovery import Recovery
from jumpmq.store.writer import NO_ROOM

log = logging.getLogger(__name__)


def look(directory: Path, files: Files, note: Callable[[tuple[Batch, int, int]], object]) -> Recovery:
    """Recover the state; an unusable index is set aside, and rebuilt from the log."""
    try:
        return Recovery(directory, files, note)
    except Damaged as damage:
        path = directory / schema.FILE_NAME
        try:
            aside = schema.set_aside(path)
        except OSError as error:
            raise StoreError(f"cannot rename {path}, a damaged file: {error.strerror}; put that right") from damage
        log.warning("%s; it is kept as %s. Some messages may come again", damage, aside)
        return Recovery(directory, files, note, without_index=True)


def write_tail_again(found: Recovery, files: Files) -> None:
    """Write and sync the last commit again, before later commits depend on it.

    The process before may have been killed in front of the commit's sync, or by that sync's failure. In the second case
    the system shows octets that are not on disk, and holds them for written: only another write has them synced.

    Raises:
        StoreError: the disk does not take them, though it has room.
    """
    if found.tail is None:
        return
    segment, begin = found.tail
    try:
        file = files.open(segment.path)
        try:
            files.write(file, begin, [read_whole(file, segment.end - begin, begin)])
            files.sync(file)
        finally:
            files.close(file)
    except OSError as error:
        text = f"cannot write the last commit of {segment.path} again: {error.strerror}"
        if error.errno not in NO_ROOM:
            raise StoreError(f"{text}; put that right") from error
        log.warning("%s", text)  # a disk that never overwrites: clients may make room


def migrate(directory: Path, open_store: Callable[[Path], migration.NewStore]) -> None:
    """Convert a store of an older version, if present, to a log.

    Raises:
        StoreError: that fails; the store is as it was.
    """
    if not migration.is_old(directory):
        return
    try:
        migration.migrate(directory, open_store)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot move the store in {directory} into a log: {error}; it is as it was") from error


def create(directory: Path) -> None:
    """Create missing parts of a store.

    Raises:
        StoreError: it cannot be made.
    """
    path = directory / schema.FILE_NAME
    try:
        (directory / DIRECTORY).mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            schema.create(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot create {path}: {error}; choose a directory that this user may write to") from error
