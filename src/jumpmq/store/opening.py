"""Opening of a data directory: a store of an older version is converted, a damaged index is set aside, the last commit
is written again, and missing parts are created.
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
    """Recover the state of a data directory. An unusable index is set aside, and rebuilt from the log.

    Raises:
        StoreError: the state cannot be recovered.
    """
    try:
        return Recovery(directory, files, note)
    except Damaged as damage:
        path = directory / schema.FILE_NAME
        try:
            aside = schema.set_aside(path)
        except OSError as error:
            raise StoreError(f"cannot rename {path}, a damaged file: {error.strerror}; correct the cause") from damage
        log.warning("%s; the file is kept as %s. Some messages may come again", damage, aside)
        return Recovery(directory, files, note, without_index=True)


def write_tail_again(found: Recovery, files: Files) -> None:
    """Write and sync the last commit again, before later commits depend on it.

    The previous process may have ended before the commit's sync, or because of a failed sync. After a failed sync, the
    system's cache contains octets that are missing on disk but count as written. Only another write makes the system
    sync these octets.

    Raises:
        StoreError: the commit cannot be written, and the disk is not full.
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
            raise StoreError(f"{text}; correct the cause") from error
        log.warning("%s", text)  # a full disk that never overwrites in place: clients may free room by consuming


def migrate(directory: Path, open_store: Callable[[Path], migration.NewStore]) -> None:
    """Convert a store of an older version, if present, to a log.

    Raises:
        StoreError: the conversion failed; the store is unchanged.
    """
    if not migration.is_old(directory):
        return
    try:
        migration.migrate(directory, open_store)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot move the store in {directory} into a log: {error}; the store is unchanged") from error


def create(directory: Path) -> None:
    """Create missing parts of a store.

    Raises:
        StoreError: a part cannot be created.
    """
    path = directory / schema.FILE_NAME
    try:
        (directory / DIRECTORY).mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            schema.create(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot create {path}: {error}; choose a directory that this user may write to") from error
