"""Checkpoints: moving what the write-ahead log gathered into the file, beside the commits instead of between them.

A checkpoint of tens of megabytes takes a tenth of a second, for which no publisher should wait. So a second connection
does it in a thread of its own, while commits go on at the log's end. What they add meanwhile is little, and the writer
moves that itself right after: then all of the log is in the file, and the next commit starts the log anew from its
beginning. Without that last step the log would grow as long as the broker is busy.
"""

import logging
import sqlite3
import threading
from pathlib import Path

from jumpmq.store import schema

log = logging.getLogger(__name__)


class Checkpointer:
    """Moves the log when it has grown enough. All but its thread's work is called by the writer's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._grown = 0
        self._thread: threading.Thread | None = None

    def after_commit(self, connection: sqlite3.Connection, size: int) -> None:
        """A commit of roughly ``size`` octets was written by ``connection``."""
        self._grown += size
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
            self.move(connection)
        elif self._grown >= schema.LOG_BYTES:
            self._thread = threading.Thread(target=self._run, name="jumpmq-checkpoint", daemon=True)
            self._thread.start()

    def move(self, connection: sqlite3.Connection) -> None:
        """Move the log now; the next commit then begins it anew."""
        self._grown = 0
        _move(connection)

    def close(self) -> None:
        """Wait for a checkpoint under way."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        connection = schema.connect(self._path)
        try:
            _move(connection)
        finally:
            connection.close()


def _move(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    except sqlite3.Error as error:
        # Nothing is lost: the log holds it all, and the next checkpoint tries again.
        log.warning("cannot move the write-ahead log: %s", error)
