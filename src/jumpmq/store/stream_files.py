"""The files of all streams, and the thread that writes them.

As in the store, the broker's thread stages, ``flush`` wakes the writer, and one commit takes all that was staged
meanwhile: each touched stream's file is written and synced once. ``on_commit`` then says that it is done. What a
commit has put on disk, the broker's thread makes visible with :meth:`StreamFiles.publish`.

A commit that fails (a full disk, mostly) is tried again every second, and confirms nothing before.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from jumpmq.amqp.messages import Message
from jumpmq.store.errors import StoreError
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import ChunkPlace

RETRY_INTERVAL = 1.0
"""Seconds between attempts of a commit that fails."""


class StreamFiles:
    """Streams under one directory, each in a directory of its number.

    All methods are for one thread, the broker's.

    Args:
        directory: None is a temporary one, which nobody waits for to be on disk, and which goes at the close.
        on_commit: called in the writer's thread with the number of a commit when it is on disk.
        on_error: called in the writer's thread each time a commit fails.

    Attributes:
        committed: number of the last finished commit.
        staged_bytes: octets of bodies that are staged or being written, and not yet on disk.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        on_commit: Callable[[int], None] = lambda number: None,
        on_error: Callable[[StoreError], None] = lambda error: None,
    ) -> None:
        self.committed = 0
        self.staged_bytes = 0
        self._durable = directory is not None
        self._directory = directory
        self._on_commit = on_commit
        self._on_error = on_error
        self._wakened = threading.Condition()
        self._thread: threading.Thread | None = None
        self._staged: dict[StreamLog, list[Message]] = {}
        self._removed: list[StreamLog] = []
        self._number = 0
        self._requested = self._closing = False
        self._written: list[tuple[StreamLog, list[ChunkPlace], int]] = []
        self._logs: dict[int, StreamLog] = {}

    def open(self, number: int) -> StreamLog:
        """The log of a stream, with what it has on disk.

        Raises:
            StoreError: its directory cannot be made or read.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jumpmq-streams-"))
        try:
            log = StreamLog(self._directory / str(number), sync=self._durable)
        except OSError as error:
            raise StoreError(f"cannot open stream {number} in {self._directory}: {error}") from error
        self._logs[number] = log
        return log

    def remove_others(self) -> None:
        """Delete the directories of streams that nobody opened: they were deleted just before a crash."""
        if self._durable and self._directory is not None and self._directory.is_dir():
            for path in self._directory.iterdir():
                if not path.name.isdigit() or int(path.name) not in self._logs:
                    shutil.rmtree(path, ignore_errors=True)

    def append(self, log: StreamLog, messages: list[Message]) -> None:
        """Stage messages at the end of a stream."""
        with self._wakened:
            self._staged.setdefault(log, []).extend(messages)
        self.staged_bytes += _octets(messages)

    def remove(self, number: int) -> None:
        """Delete a stream with what is staged for it."""
        log = self._logs.pop(number)
        with self._wakened:
            self.staged_bytes -= _octets(self._staged.pop(log, []))
            self._removed.append(log)

    def flush(self) -> int:
        """Have everything staged committed as soon as the writer is free; returns the commit that covers it."""
        if not self._staged and not self._removed:  # only this thread adds to them
            return self._number
        with self._wakened:
            if not self._staged and not self._removed:
                return self._number
            if not self._requested:
                self._requested = True
                self._number += 1
                self._wakened.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jumpmq-streams", daemon=True)
            self._thread.start()
        return self._number

    def publish(self) -> None:
        """Make visible what is on disk, and tell the streams that grew."""
        with self._wakened:
            written, self._written = self._written, []
        for log, places, octets in written:
            self.staged_bytes -= octets
            log.publish(places)

    def close(self) -> None:
        """Commit everything and end the thread."""
        self.flush()
        with self._wakened:
            self._closing = True
            self._wakened.notify()
        if self._thread is not None:
            self._thread.join()
        for log in self._logs.values():
            log.close()
        if not self._durable and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # --- the writer's thread ---

    def _run(self) -> None:
        while True:
            with self._wakened:
                while not self._requested and not self._closing:
                    self._wakened.wait()
                if not self._requested:
                    return
                staged, self._staged = self._staged, {}
                removed, self._removed = self._removed, []
                self._requested = False
                number = self._number
            for log, messages in staged.items():
                if not self._write(log, messages):
                    return
            for log in removed:
                log.remove()
            self.committed = number
            self._on_commit(number)

    def _write(self, log: StreamLog, messages: list[Message]) -> bool:
        """Write until it is done; false where the close does not wait for it."""
        while True:
            try:
                places = log.write(messages)
            except Exception as error:  # whatever it is: the thread must live on
                self._on_error(StoreError(f"cannot write to a stream: {error}; nothing more is confirmed until then"))
                with self._wakened:
                    if self._closing or self._wakened.wait_for(lambda: self._closing, RETRY_INTERVAL):
                        return False
                continue
            with self._wakened:
                self._written.append((log, places, _octets(messages)))
            return True


def _octets(messages: list[Message]) -> int:
    return sum(len(message.body) for message in messages)
