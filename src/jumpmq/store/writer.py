"""The thread that commits.

A commit is one SQLite transaction, which is on disk when COMMIT returns (WAL mode, ``synchronous=FULL``: one fsync).
It serves every queue at once, and while it lasts the work of the next gathers in :class:`Staging`.

A commit that fails (a full disk, mostly) is rolled back, confirms nothing and loses nothing: ``error`` is set,
``on_error`` is called, and every second the writer tries again, with everything that was staged meanwhile, as one
commit. That matters on a full disk: the batches that consumers have emptied since make room in the same transaction.
The first success clears ``error`` and reports its number, which covers all those that failed. The last attempt is
the close's.

The thread shares the interpreter with the event loop, so it leaves its loops to C: Arrow builds the columns, SQLite
takes many rows a statement.
"""

import json
import logging
import sqlite3
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jumpmq.store import checksums, columns
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Changes
from jumpmq.store.checkpoint import Checkpointer
from jumpmq.store.errors import StoreError
from jumpmq.store.schema import PAGE
from jumpmq.store.staging import Staging

RETRY_INTERVAL = 1.0
"""Seconds between attempts of a commit that fails."""

VACUUM_PAGES = 1024
"""Pages given back to the file system at a time, 8 MiB."""

VACUUM_THRESHOLD = 4096
"""Free pages that the file keeps for reuse, 32 MiB."""

log = logging.getLogger(__name__)


class Writer(threading.Thread):
    """Commits what is staged until the close.

    Args:
        path: the store's file.
        connection: a connection that nobody else uses.
        clean: whether the file carries the mark of a clean stop.
        on_commit, on_error: called in this thread with the number of a finished commit, or with what hinders it.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        staging: Staging,
        *,
        clean: bool,
        on_commit: Callable[[int], None],
        on_error: Callable[[StoreError], None],
    ) -> None:
        super().__init__(name="jumpmq-store", daemon=True)
        self.committed = 0
        self.error: StoreError | None = None
        self._path = path
        self._connection = connection
        self._staging = staging
        self._marked_clean = clean
        self._on_commit = on_commit
        self._on_error = on_error
        self._checkpointer = Checkpointer(path)

    def run(self) -> None:
        final = False
        while not final:
            changes = self._staging.take()
            self._commit(changes)
            final = changes.final
            self._shrink()
        self._checkpointer.close()

    def close(self) -> None:
        """Close the connection, the file's last: SQLite then moves the log into it. After the thread has ended."""
        self._connection.close()

    def _commit(self, changes: Changes) -> None:
        while not self._try(changes):
            if changes.final:
                return
            changes.absorb(self._staging.take_later(RETRY_INTERVAL))
        self._staging.written(changes)
        self.error = None
        self.committed = changes.number
        self._call(self._on_commit, changes.number)

    def _try(self, changes: Changes) -> bool:
        changes.leave_out_settled()
        notes = self._staging.take_unnoted(changes)
        try:
            size = self._write(changes, notes)
        except Exception as error:
            # Whatever it is: the thread must live on, or publishers would wait for ever without a word.
            self._staging.put_back_unnoted(notes)
            if self._connection.in_transaction:
                self._connection.rollback()
            self.error = StoreError(
                f"cannot write to {self._path}: {error}; nothing more is confirmed until that is put right"
            )
            self._call(self._on_error, self.error)
            return False
        self._checkpointer.after_commit(self._connection, size)
        return True

    def _write(self, changes: Changes, notes: list[Batch]) -> int:
        """One transaction; returns roughly how many octets it added to the log."""
        mark_clean = changes.final
        # A store that was opened and closed with nothing done keeps its mark: its last broker may still have crashed.
        if not (changes or notes or (self.committed and mark_clean != self._marked_clean)):
            return 0
        rows = [_row(batch) for batch in changes.batches]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        if mark_clean != self._marked_clean:
            execute("UPDATE shutdown SET clean = ?", (mark_clean,))
        self._write_removals(changes)
        self._write_definitions(changes)
        if rows:
            self._connection.executemany("INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if notes:
            # A batch that is not in the file (dropped, or never written) must leave no note behind.
            self._connection.executemany(
                "INSERT OR REPLACE INTO settlement SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM batch WHERE id = ?1)",
                [_note(batch) for batch in notes],
            )
        execute("COMMIT")
        self._marked_clean = mark_clean
        octets: int = sum(row[-1].size for row in rows)
        return octets + PAGE * (4 + 2 * len(rows) + len(notes) + len(changes.finished) // 4)

    def _write_removals(self, changes: Changes) -> None:
        execute = self._connection.execute
        if changes.finished:
            # A list in JSON is one statement, whatever its length; the last of these numbers may never have been rows.
            ids = (json.dumps(changes.finished),)
            execute("DELETE FROM batch WHERE id IN (SELECT value FROM json_each(?))", ids)
            execute("DELETE FROM settlement WHERE batch_id IN (SELECT value FROM json_each(?))", ids)
        for queue_id in changes.dropped:
            execute("DELETE FROM settlement WHERE batch_id IN (SELECT id FROM batch WHERE queue_id = ?)", (queue_id,))
            execute("DELETE FROM batch WHERE queue_id = ?", (queue_id,))

    def _write_definitions(self, changes: Changes) -> None:
        if changes.removed:
            self._connection.executemany("DELETE FROM definition WHERE kind = ? AND key = ?", changes.removed)
        if changes.definitions:
            self._connection.executemany(
                "INSERT INTO definition (kind, key, value, crc) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, crc = excluded.crc",
                [
                    (kind, key, value, checksums.of_definition(kind, key, value))
                    for (kind, key), value in changes.definitions.items()
                ],
            )

    def _shrink(self) -> None:
        """Shrink the file while there is nothing else to do."""
        shrunk = False
        while not self._staging.requested and self._give_back_pages():
            shrunk = True
        if shrunk:
            self._checkpointer.move(self._connection)

    def _give_back_pages(self) -> bool:
        """Shrink the file a little, if more than half of it is free; returns whether there may be more to do."""
        try:
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
            if free < VACUUM_THRESHOLD or 2 * free < pages:
                return False
            # As a script, because execute() would stop after the first page, for each of which it gets an empty row.
            self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
            self._checkpointer.after_commit(self._connection, VACUUM_PAGES * PAGE)
        except sqlite3.Error as error:
            log.warning("cannot shrink %s: %s", self._path, error)
            return False
        return True

    def _call(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            callback(argument)
        except Exception:
            log.exception("a callback of the store failed")


def _row(batch: Batch) -> tuple[Any, ...]:
    assert batch.messages is not None
    octets = columns.encode(columns.from_messages(batch.messages))
    return (*batch.summary, checksums.of_batch(batch.summary, octets), octets)


def _note(batch: Batch) -> tuple[int, bytes, int]:
    seqs = array("q", sorted(batch.settled)).tobytes()
    return (batch.id, seqs, checksums.of_settlement(batch.id, seqs))
