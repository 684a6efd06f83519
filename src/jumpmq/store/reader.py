"""Reading batches back."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from jumpmq.store import checksums, columns, schema
from jumpmq.store.batch import Batch
from jumpmq.store.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa


class Reader:
    """Reads what is committed, beside the writer and never waiting for it. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = schema.connect_read_only(path)
        self._lock = threading.Lock()

    def columns(self, batch: Batch) -> pa.RecordBatch:
        """The messages of a written batch.

        Raises:
            StoreError: they are damaged, or gone.
        """
        try:
            with self._lock:
                row = self._connection.execute("SELECT crc, messages FROM batch WHERE id = ?", (batch.id,)).fetchone()
        except sqlite3.Error as error:
            raise self._damaged(batch, str(error)) from error
        if row is None:
            raise StoreError(f"messages {batch.first_seq} to {batch.last_seq} of a queue are no longer in {self._path}")
        crc, octets = row
        if checksums.of_batch(batch.summary, octets) != crc:
            raise self._damaged(batch, "they fail their checksum")
        return columns.decode(octets)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _damaged(self, batch: Batch, detail: str) -> StoreError:
        return schema.damaged(
            self._path, f"messages {batch.first_seq} to {batch.last_seq} of queue number {batch.queue_id}: {detail}"
        )
