"""Migration of stores of version 0.1, with message batches as rows of SQLite, to logs when opened.

The new store is made in a subdirectory, and replaces the old store in one step, the renaming of the index. After a
crash before the renaming, the old store is still complete, and the next start repeats the migration.
"""

import logging
import shutil
import sqlite3
import struct
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from jumpmq.amqp.messages import Message
from jumpmq.store import columns, definitions, schema
from jumpmq.store.errors import StoreError
from jumpmq.store.index import crc_of_definition, crc_of_settlement
from jumpmq.store.log import DIRECTORY

OLD_VERSION = 1

WORK = "migrating"
"""Directory for making the new store."""

STEP_BYTES = 16 << 20
"""Octets of bodies committed at once."""

PROGRESS_INTERVAL = 1.0
"""Seconds between progress reports."""

_BATCHES = """SELECT id, queue_id, first_seq, last_seq, count, bytes, crc, messages FROM batch
ORDER BY queue_id, first_seq"""

_SUMMARY = struct.Struct("<6q")

log = logging.getLogger(__name__)


class NewStore(Protocol):
    """A store of the current version; see :class:`~jumpmq.store.store.Store`."""

    def put_text(self, kind: str, key: str, value: str) -> None: ...
    def append(self, queue_id: int, messages: list[Message]) -> None: ...
    @property
    def staged_bytes(self) -> int: ...
    def flush(self) -> int: ...
    def wait(self, receipt: int) -> None: ...
    def close(self, *, clean: bool) -> None: ...


def is_old(directory: Path) -> bool:
    """Return True if a directory holds a store of version 0.1."""
    path = directory / schema.FILE_NAME
    try:
        return path.exists() and schema.check_header(path) == OLD_VERSION
    except (OSError, StoreError):
        return False


def migrate(directory: Path, open_store: Callable[[Path], NewStore]) -> None:
    """Convert the store in ``directory`` to the current version.

    Args:
        open_store: opens a store of this version.

    Raises:
        StoreError: the new store cannot be written; the old store is unchanged.
        sqlite3.Error, OSError: the old store cannot be read, or the files cannot be moved.
    """
    work, path = directory / WORK, directory / schema.FILE_NAME
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(directory / DIRECTORY, ignore_errors=True)  # from an interrupted migration
    work.mkdir(mode=0o700)
    old = sqlite3.connect(path, isolation_level=None)
    try:
        _copy(old, path, open_store(work))
        old.execute("PRAGMA journal_mode = DELETE").fetchall()  # moves SQLite's log into the file and removes it
    finally:
        old.close()
    # The log before the index: until the index is replaced, the old store is complete, and the next start repeats the
    # work.
    (work / DIRECTORY).rename(directory / DIRECTORY)
    # The names in the log are on disk before the index that needs them.
    schema.sync_directory(directory)
    (work / definitions.FILE_NAME).replace(directory / definitions.FILE_NAME)
    (work / schema.FILE_NAME).replace(path)
    schema.sync_directory(directory)
    shutil.rmtree(work)
    log.info("%s was moved into %s", path, directory / DIRECTORY)


def _copy(old: sqlite3.Connection, path: Path, store: NewStore) -> None:
    rows = old.execute("SELECT clean FROM shutdown").fetchall()
    clean = False
    try:
        _copy_definitions(old, path, store)
        _copy_messages(old, path, store)
        clean = bool(rows and rows[0][0])
    finally:
        store.close(clean=clean)


def _copy_definitions(old: sqlite3.Connection, path: Path, store: NewStore) -> None:
    for kind, key, value, crc in old.execute("SELECT kind, key, value, crc FROM definition ORDER BY id"):
        if crc_of_definition(kind, key, value) == crc:
            store.put_text(kind, key, value)
        else:
            log.warning("%s: the definition of %s %r is damaged and left out", path, kind, key)
    store.wait(store.flush())


def _copy_messages(old: sqlite3.Connection, path: Path, store: NewStore) -> None:
    settled = dict(_settled(old, path))
    (total,) = old.execute("SELECT count(*) FROM batch").fetchone()
    told = time.monotonic()
    query = (
        "SELECT id, queue_id, first_seq, last_seq, count, bytes, crc, messages FROM batch ORDER BY queue_id, first_seq"
    )
    for done, (*summary, crc, octets) in enumerate(old.execute(query)):
        if zlib.crc32(octets, zlib.crc32(_SUMMARY.pack(*summary))) != crc:
            what = f"messages {summary[2]} to {summary[3]} of queue number {summary[1]}"
            log.warning("%s: %s are damaged and left out", path, what)
            continue
        gone = settled.get(summary[0], ())
        if messages := [message for message in _messages(octets) if message.seq not in gone]:
            store.append(summary[1], messages)
        if store.staged_bytes > STEP_BYTES:
            store.wait(store.flush())
        if time.monotonic() - told > PROGRESS_INTERVAL:
            told = time.monotonic()
            log.info("moving %s into a log: %d of %d batches of messages", path, done, total)
    store.wait(store.flush())


def _settled(old: sqlite3.Connection, path: Path) -> Iterator[tuple[int, set[int]]]:
    for batch_id, seqs, crc in old.execute("SELECT batch_id, seqs, crc FROM settlement"):
        if crc_of_settlement(batch_id, seqs) == crc:
            yield batch_id, set(array("q", seqs))
        else:
            log.warning("%s: acknowledgements are damaged; their messages are delivered again", path)


def _messages(octets: bytes) -> Iterator[Message]:
    import pyarrow as pa

    batch: Any = pa.ipc.read_record_batch(pa.py_buffer(octets), columns.schema())
    seqs, exchanges, keys, properties, bodies = (column.to_pylist() for column in batch.columns[:5])
    times = batch.column(5).view(pa.int64()).to_pylist()
    for seq, exchange, key, own, body, published in zip(seqs, exchanges, keys, properties, bodies, times, strict=True):
        message = Message(exchange, key, own, body, True, published / 1e6)
        message.seq = seq
        yield message
