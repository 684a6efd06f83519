"""The store: what the broker must not lose, in one SQLite file.

How it works. The broker's thread stages work: definitions, messages, what was settled. ``flush`` wakes the writer's
thread, which commits everything staged at once; meanwhile the next commit's work gathers. ``on_commit`` then tells
which commit is on disk, and the broker confirms what it covers. The more publishers there are, the more messages share
a commit: that is where the speed comes from.

Messages are stored as batches: what one queue received between two commits is one row. Nothing is ever rewritten: a
batch goes when all its messages are settled, and one that is settled before it was written never reaches the disk.
Which messages of a batch are settled, while others are not, is noted with a later commit, at most once a second, and
exactly at the close. So a crash may bring a settled message again, and never loses one that is not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store import columns, contents, schema
from jumpmq.store.batch import Batch
from jumpmq.store.contents import Contents
from jumpmq.store.errors import StoreError
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.reader import Reader
from jumpmq.store.staging import Staging
from jumpmq.store.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa


class Store:
    """An open store, held by this process alone.

    All methods are for one thread, the broker's, but ``read`` and ``arrow``, which any thread may call.

    Attributes:
        clean: whether the last stop was clean: every settlement was noted. If not, some messages may come again.
    """

    def __init__(self, path: Path, lock: DirectoryLock, found: Contents, writer: Writer, staging: Staging) -> None:
        self.clean = found.clean
        self._path = path
        self._lock = lock
        self._found = found
        self._staging = staging
        self._reader = Reader(path)
        self._writer = writer
        self._writer.start()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        on_commit: Callable[[int], None],
        on_error: Callable[[StoreError], None] = lambda error: None,
    ) -> Store:
        """Open ``directory/jumpmq.db``; the directory and the file are made where they are missing.

        Args:
            directory: the broker's data directory.
            on_commit: called in the writer's thread with the number of a commit when it is on disk; it covers all
                lower numbers too.
            on_error: called in the writer's thread each time a commit fails. Nothing is lost: the writer tries again
                every second, and the next ``on_commit`` says that the trouble is over.

        Raises:
            StoreError: the directory is not writable, or in use by another broker; the file is damaged, not a JumpMQ
                store, or from a newer version. Such a file is left untouched.
        """
        path = directory / schema.FILE_NAME
        lock = DirectoryLock(directory)
        try:
            if not path.exists():
                _create(path)
            found = contents.read(path)
            last_batch_id = max((summary[0] for summary in found.summaries), default=0)
            staging = Staging(max(last_batch_id, *found.settled, 0) + 1)
            connection = schema.connect(path)
            writer = Writer(path, connection, staging, clean=found.clean, on_commit=on_commit, on_error=on_error)
            return cls(path, lock, found, writer, staging)
        except BaseException:
            lock.release()
            raise

    @property
    def committed(self) -> int:
        """Number of the last finished commit."""
        return self._writer.committed

    @property
    def error(self) -> StoreError | None:
        """Why the last attempt of a commit failed; None while all is well."""
        return self._writer.error

    @property
    def staged_bytes(self) -> int:
        """Octets of bodies that are staged or being written, and not yet on disk."""
        return self._staging.uncommitted_bytes

    @property
    def dirty(self) -> bool:
        """Whether a flush would write anything, be it only which messages were settled."""
        return self._staging.dirty

    def definitions(self) -> list[tuple[str, str, Any]]:
        """Hand over the definitions found at the opening, as (kind, key, value), in the order of first insertion."""
        definitions, self._found.definitions = self._found.definitions, []
        return definitions

    def batches(self) -> dict[int, list[Batch]]:
        """Hand over the batches found at the opening, by queue id and in order; their messages are not read."""
        batches: dict[int, list[Batch]] = {}
        for summary in self._found.summaries:
            batch = Batch.stored(summary, self._found.settled.get(summary[0], ()), self._staging.on_settle)
            if batch.remaining:
                batches.setdefault(batch.queue_id, []).append(batch)
            else:
                self._staging.on_settle(batch)
        self._found.summaries, self._found.settled = [], {}
        return batches

    def put(self, kind: str, key: str, value: Any) -> None:
        """Stage a definition, new or changed; the value is taken as it is now.

        Raises:
            TypeError, ValueError: JSON cannot hold the value, or UTF-8 the key.
        """
        key.encode()
        self._staging.put(kind, key, json.dumps(value, separators=(",", ":")))

    def delete(self, kind: str, key: str) -> None:
        """Stage the removal of a definition; one that is not there is no error."""
        self._staging.delete(kind, key)

    def append(self, queue_id: int, messages: list[Message]) -> None:
        """Stage messages, by ascending ``seq``, at the end of a queue; sets their ``batch``.

        A message's slots that the file holds (all but ``redelivered``, ``expires_at`` and what the broker hangs on)
        must not change from here on.
        """
        self._staging.append(queue_id, messages)

    def drop_queue(self, queue_id: int) -> None:
        """Stage the removal of all that a queue has. Its id is not used again, its batches may still be settled."""
        self._staging.drop(queue_id)

    def flush(self, *, settlements: bool = True) -> int:
        """Have everything staged committed as soon as the writer is free.

        Args:
            settlements: whether a commit is worth while if there is nothing but settlements to write.

        Returns:
            The number of the commit that covers all that is staged; that of an earlier one where nothing is.
        """
        return self._staging.flush(settlements)

    def note_settled(self) -> None:
        """Have the next commit hold exactly what is settled by now: after it, no crash brings these messages back."""
        self._staging.note_settled()

    def read(self, batch: Batch) -> list[Message]:
        """The messages of a batch that are not settled, in order.

        Of a batch that is not yet written these are the very objects that were appended; otherwise new ones, without
        queue, consumer, ``redelivered`` and ``expires_at``.

        Raises:
            StoreError: they are damaged, or gone because their queue was dropped.
        """
        staged = batch.messages
        if not batch.remaining:
            return []
        if staged is not None:
            return [message for message in staged if message.seq not in batch.settled]
        messages = columns.to_messages(self._reader.columns(batch), without=batch.settled)
        for message in messages:
            message.batch = batch
        return messages

    def arrow(self, batch: Batch) -> pa.RecordBatch:
        """All messages of a batch, also settled ones, as Arrow columns.

        Returns:
            ``seq`` int64, ``exchange`` string, ``routing_key``, ``properties``, ``body`` binary, ``published_at``
            timestamp[us, UTC].

        Raises:
            StoreError: they are damaged, or gone because they are all settled or their queue was dropped.
        """
        staged = batch.messages
        return self._reader.columns(batch) if staged is None else columns.from_messages(staged)

    def close(self) -> None:
        """Commit everything, note exactly what is settled, mark the stop as clean, and give the directory back.

        Raises:
            StoreError: the last commit failed; the store is then as after a crash.
        """
        self._staging.close()
        self._writer.join()
        self._reader.close()
        self._writer.close()
        self._lock.release()
        if self._writer.error is not None:
            raise self._writer.error


def _create(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    if log.exists():
        raise StoreError(f"{path} is missing, but its log {log.name} is there; put the file back, or move the log away")
    try:
        schema.create(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot create {path}: {error}; choose a directory that this user may write to") from error
