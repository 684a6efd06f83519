"""The index: definitions, batches and settlements up to a segment of the log, in SQLite.

A separate thread updates the index from time to time. The index may contain changes beyond the segment that it names.
Replaying the log from that segment applies these changes again, without effect.
"""

import contextlib
import logging
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jumpmq.store import definitions, schema
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Definitions
from jumpmq.store.errors import StoreError
from jumpmq.store.ranges import Ranges

log = logging.getLogger(__name__)

Summary = tuple[int, int, int, int, int, int]
"""Columns of a batch: id, queue_id, first_seq, last_seq, count, bytes."""


@dataclass
class Update:
    """Changes to write to the index.

    Attributes:
        segment: first segment of the log that the index will not cover.
        commit: number of the last covered commit after a clean stop; else 0.
        definitions: changes of definitions.
        batches: new and moved batches, with the positions, lengths and lowest numbers of their blocks.
        settled: settlements of batches with remaining messages.
        gone: ids of batches without remaining messages.
        files: files and directories of streams that must be synced before the update.
    """

    segment: int
    commit: int
    definitions: Definitions
    batches: list[tuple[Summary, bytes]] = field(default_factory=list)
    settled: list[tuple[int, bytes]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


@dataclass
class IndexContents:
    """Contents of an index.

    Attributes:
        definitions: JSON text by (kind, key), in the order of their first insertion.
        batches: batches by queue, in order of ``seq``.
        segment: first segment of the log that the index does not cover.
        commit: number of the last covered commit after a clean stop; else 0.
        warnings: sentences about damaged settlements that were left out.
        lost: sentences about damaged definitions that were left out.
    """

    definitions: dict[tuple[str, str], str]
    batches: list[Batch]
    segment: int
    commit: int
    warnings: list[str]
    lost: list[str]


class Index:
    """The index file, open for writing.

    Args:
        path: path of the file.
        noted: called with the path when an update is on disk.
    """

    def __init__(self, path: Path, noted: Callable[[Path], None]) -> None:
        self._path = path
        self._copy = path.with_name(definitions.FILE_NAME)
        self._noted = noted
        self._connection = schema.connect(path)
        schema.raise_version(self._connection)

    def write(self, update: Update) -> None:
        """Write and sync an update in one transaction.

        Raises:
            sqlite3.Error, OSError: the update cannot be written; the file is unchanged.
        """
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._write(connection, update)
            # The copy is renamed before the commit of the index: a start recognizes a copy newer than the index, but an
            # older copy would lack the definitions of removed segments.
            if update.definitions or not self._copy.exists():
                whole = ((kind, key, value) for kind, key, value, whole in _rows(connection) if whole)
                definitions.write(self._copy, update.segment, whole)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise
        self._noted(self._path)
        connection.execute("PRAGMA incremental_vacuum(1024)").fetchall()

    def _write(self, connection: sqlite3.Connection, update: Update) -> None:
        connection.execute("UPDATE replay SET segment = ?, clean_commit = ?", (update.segment, update.commit))
        # Removals first: a key removed and put again gets a new row, at the end of the order.
        connection.executemany("DELETE FROM definition WHERE kind = ? AND key = ?", update.definitions.removed)
        connection.executemany(
            "INSERT INTO definition (kind, key, value, crc) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, crc = excluded.crc",
            ((*key, value, crc_of_definition(*key, value)) for key, value in update.definitions.put.items()),
        )
        for table, column in (("batch", "id"), ("settlement", "batch_id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(id,) for id in update.gone])
        connection.executemany(
            "INSERT OR REPLACE INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(_batch_row, update.batches)
        )
        connection.executemany(
            "INSERT OR REPLACE INTO settlement VALUES (?, ?, ?)",
            [(id, ranges, crc_of_settlement(id, ranges)) for id, ranges in update.settled],
        )

    def close(self) -> None:
        """Close the index. SQLite then moves the write-ahead log into the file."""
        self._connection.close()


def crc_of_definition(kind: str, key: str, value: str) -> int:
    """Return the CRC-32 of kind, key and value."""
    return zlib.crc32("\0".join((kind, key, value)).encode())


def crc_of_batch(summary: Summary, blocks: bytes) -> int:
    return zlib.crc32(blocks, zlib.crc32(array("q", summary).tobytes()))


def crc_of_settlement(batch_id: int, ranges: bytes) -> int:
    return zlib.crc32(ranges, zlib.crc32(b"%d" % batch_id))


def _batch_row(entry: tuple[Summary, bytes]) -> tuple[Any, ...]:
    summary, places = entry
    blocks = zlib.compress(places, 1)
    return (*summary, blocks, crc_of_batch(summary, blocks))


def places_of(batch: Batch) -> bytes:
    """Return the locations of a batch's blocks, as one run of octets."""
    return batch.positions.tobytes() + batch.firsts.tobytes() + batch.lengths.tobytes()


UNREADABLE = (sqlite3.Error, ArithmeticError, LookupError, TypeError, ValueError, zlib.error)
"""Possible exceptions when reading a damaged file."""


def read(path: Path, note: Callable[[tuple[Batch, int, int]], object]) -> IndexContents:
    """Check and read an index without changing it. Damaged definitions and settlements are left out.

    Args:
        note: called by the batches with each settlement.

    Raises:
        Damaged: batches, or the file as a whole, are damaged.
        StoreError: the file is not a JumpMQ store, has a newer version, or cannot be opened.
    """
    try:
        schema.check_header(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}; choose another data directory, or correct the cause") from error
    try:
        with contextlib.closing(schema.connect_to_check(path)) as connection:
            return _contents(connection, path, note)
    except UNREADABLE as error:
        raise schema.damaged(path, str(error)) from error


def first_segment_behind(path: Path) -> int:
    """Return the first segment of the log that an index does not cover.

    Raises:
        Damaged: the index cannot be read.
    """
    try:
        with contextlib.closing(schema.connect_to_check(path)) as connection:
            (segment,) = connection.execute("SELECT segment FROM replay").fetchone()
            return int(segment)
    except UNREADABLE as error:
        raise schema.damaged(path, str(error)) from error


def _contents(
    connection: sqlite3.Connection, path: Path, note: Callable[[tuple[Batch, int, int]], object]
) -> IndexContents:
    schema.check_tables(connection, path)
    warnings: list[str] = []
    lost: list[str] = []
    definitions = _definitions(connection, path, lost)
    batches = _batches(connection, path, note)
    _settle(connection, path, batches, warnings)
    rows = connection.execute("SELECT segment, clean_commit FROM replay").fetchall()
    if len(rows) != 1:
        raise schema.damaged(path, "the position for continuing the log is missing")
    return IndexContents(definitions, list(batches.values()), rows[0][0], rows[0][1], warnings, lost)


def _definitions(connection: sqlite3.Connection, path: Path, lost: list[str]) -> dict[tuple[str, str], str]:
    found = {}
    for kind, key, value, whole in _rows(connection):
        if whole:
            found[kind, key] = value
        else:
            lost.append(f"{path}: the definition of {kind} {key!r} is damaged and left out")
    return found


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[str, str, str, bool]]:
    """Yield all definitions, with True for every undamaged definition."""
    for kind, key, value, crc in connection.execute("SELECT kind, key, value, crc FROM definition ORDER BY id"):
        yield kind, key, value, crc_of_definition(kind, key, value) == crc


def _batches(
    connection: sqlite3.Connection, path: Path, note: Callable[[tuple[Batch, int, int]], object]
) -> dict[int, Batch]:
    found = {}
    for *columns, blocks, crc in connection.execute(
        "SELECT id, queue_id, first_seq, last_seq, count, bytes, blocks, crc FROM batch ORDER BY queue_id, first_seq"
    ):
        summary: Summary = tuple(columns)
        # Without its positions a batch is lost to the index, so the whole index is rebuilt from the log.
        if crc_of_batch(summary, blocks) != crc:
            raise schema.damaged(path, f"the positions of messages of queue number {summary[1]}")
        batch = found[summary[0]] = Batch(summary[1], note)
        batch.id, batch.queue_id, batch.first_seq, batch.last_seq, batch.count, batch.bytes = summary
        batch.remaining = batch.count
        _place(batch, zlib.decompress(blocks))
    return found


def _place(batch: Batch, places: bytes) -> None:
    count = len(places) // 20
    batch.positions = array("Q", places[: 8 * count])
    batch.firsts = array("q", places[8 * count : 16 * count])
    batch.lengths = array("I", places[16 * count :])
    batch.stored = sum(batch.lengths)


def _settle(connection: sqlite3.Connection, path: Path, batches: dict[int, Batch], warnings: list[str]) -> None:
    for batch_id, ranges, crc in connection.execute("SELECT batch_id, ranges, crc FROM settlement"):
        batch = batches.get(batch_id)
        if crc_of_settlement(batch_id, ranges) != crc:
            of = f"messages of queue number {batch.queue_id}" if batch is not None else "some messages"
            warnings.append(f"{path}: acknowledgements of {of} are damaged; the messages are delivered again")
        elif batch is not None:
            batch.restore_settled(Ranges.decode(ranges))


def summary_of(batch: Batch) -> Summary:
    """Return the columns of a batch, without locations."""
    return (batch.id, batch.queue_id, batch.first_seq, batch.last_seq, batch.count, batch.bytes)


def restored_order(batches: Iterable[Batch]) -> dict[int, list[Batch]]:
    """Return batches by queue, in order."""
    by_queue: dict[int, list[Batch]] = {}
    for batch in batches:
        by_queue.setdefault(batch.queue_id, []).append(batch)
    return by_queue
