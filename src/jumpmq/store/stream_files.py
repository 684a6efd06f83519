"""The files of all streams.

Appended messages go to the store: its commits write them to the log and to the streams' files. Without a store,
messages are written to the files at the end of each turn, without a sync; failed writes are retried each second.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.store.background import Background
from jumpmq.store.completion import NOT_KEPT
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.stream_bounds import HandedFiles, Known
from jumpmq.store.stream_copy import SegmentCopy
from jumpmq.store.stream_import import ImportedChunk, StreamOrigin
from jumpmq.store.stream_log import StreamLog, is_foreign
from jumpmq.store.stream_redo import redo, sync
from jumpmq.store.stream_segment import StreamSegment

log = logging.getLogger(__name__)

DIRECTORY = "streams"
"""The streams' directory in the data directory."""

UNCLAIMED = "unclaimed-streams"
"""Sibling directory for streams without a definition."""

COMING = ".coming"
"""Suffix of a directory with files being copied from another home's disk; the stream's number precedes it."""

RETRY_INTERVAL = 1.0
"""Seconds between attempts of failing writes without a store."""


class Keeper(Protocol):
    """Interface of the store required by the files."""

    @property
    def is_copied(self) -> bool:
        """True in a home with copies. Copies receive the log alone, no other file."""

    def import_chunks(self, log: StreamLog, chunks: list[ImportedChunk]) -> None:
        """Stage chunks of another home at the end of a stream."""

    def put_source(self, number: int, source: StreamOrigin | None) -> None:
        """Stage the origin of a stream's files; None removes the record."""

    def append_to_stream(self, log: StreamLog, messages: list[Message]) -> None:
        """Stage messages at the end of a stream."""

    def bound_stream(self, log: StreamLog) -> None:
        """Stage a record of a stream's content."""

    def retain_stream(self, log: StreamLog) -> None:
        """Stage a record of the lowest offset that a stream's retention has left."""

    def sync_stream(self, log: StreamLog) -> None:
        """Record possibly unsynced files of a stream."""

    def drop_stream(self, log: StreamLog) -> None:
        """Stage the removal of a stream."""


class StreamFiles:
    """Streams below a single directory, in subdirectories by number.

    Args:
        directory: directory of all streams; None for a temporary directory, deleted by :meth:`close`.
        store: store of appended messages; None without durability.
        files: the file calls to use.
        known: state of streams found by the store, by the stream's number.
        sources: origins of imported streams, by number. Streams still served by other homes are opened at once.
        on_loss: called with a sentence about each loss.
        on_retire: called with each segment removed by retention, to delete the file once the removal is complete.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        store: Keeper | None = None,
        files: Files | None = None,
        known: Mapping[int, Known] = MappingProxyType({}),
        sources: Mapping[int, StreamOrigin] = MappingProxyType({}),
        on_loss: Callable[[str], object] = log.error,
        on_retire: Callable[[StreamSegment], object] = StreamSegment.remove,
    ) -> None:
        self._is_kept = directory is not None  # False for a temporary directory
        self._directory = directory
        self._store = store
        self._files = Files() if files is None else files  # the file calls
        self._background = Background("jumpmq-streams", lambda: None)  # deletes files
        self._known = dict(known)  # state of streams that are not open yet
        self._sources = dict(sources)  # origins of imported streams, by number
        self._on_loss = on_loss
        self._on_retire = on_retire
        self._logs: dict[int, StreamLog] = {}  # the streams by number
        self._removed: list[StreamLog] = []  # streams that :meth:`take_removed` has yet to return
        self._staged: dict[StreamLog, list[Message]] = {}  # messages to write at the end of the turn, without a store
        self._retry_at = 0.0  # time of the next write after a failed write, by the monotonic clock
        for number in self.all_importing():
            self.open(number)

    @property
    def is_copied(self) -> bool:
        """True in a home with copies: streams that move to this home are imported through the log."""
        return self._store is not None and self._store.is_copied

    def open(self, number: int, name: str = "") -> StreamLog:
        """Return the log of a stream, with the content on disk.

        Args:
            name: name of the stream for operators.

        Raises:
            StoreError: the stream's directory cannot be created or read.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jumpmq-streams-"))
        source = self._sources.get(number, StreamOrigin(number))
        directory, known = self._directory / str(source.number), self._known.pop(source.number, None)
        try:
            # Set aside before the redo, which would write this stream's chunks into the files of another stream.
            if known is not None and is_foreign(directory, known):
                _set_aside(directory, self._directory.parent / UNCLAIMED, "has the files of another stream")
            log = StreamLog(
                directory,
                self._files,
                known=known,
                name=name,
                on_loss=self._on_loss,
                on_retire=lambda segment: self._retire(number, segment),
            )
        except OSError as error:
            raise StoreError(f"cannot open stream {number} in {self._directory}: {error}") from error
        self._logs[number] = log
        log.handed = source.handed or log.handed
        log.go_on_at(source.end)
        if self._store is not None:
            # The files may have unsynced chunks of the redo, so the index must not cover the log's copy yet.
            self._store.sync_stream(log)
            # With exact bounds, the next start can tell uncommitted chunks from lost ones.
            if known is None or not known.bounds.is_exact or log.handed is not None:
                self._store.bound_stream(log)
        return log

    def hand_over(self, log: StreamLog, offsets: dict[str, dict[str, int]], *, leave: bool) -> Path:
        """End the writes to a stream, so that another process can continue. Return the directory of the files.

        Args:
            offsets: records of consumer groups' offsets.
            leave: True if the other process takes the files themselves. Otherwise the files are copied, and stay in the
                store's records until they are deleted.

        Raises:
            OSError: the files cannot be synced, or the information for the other process cannot be written.
        """
        # Before the drop, which ends the redo from this store's log.
        self.sync(log)
        if self._store is not None and leave:
            self._store.drop_stream(log)
        return log.hand_over(offsets)

    def sync(self, log: StreamLog) -> None:
        """Sync the files of a stream without further writes. May take long; callable from any thread.

        Raises:
            OSError: a file cannot be synced.
        """
        sync(log.paths, self._files)

    def brought(self, number: int, directory: Path) -> Path:
        """Return a directory on this process's disk with the files handed over by another process. Files on another
        disk are copied. May take long; callable from any thread.

        Raises:
            OSError: the files cannot be read, copied or synced.
        """
        assert self._directory is not None
        if directory.stat().st_dev == self._directory.stat().st_dev:
            return directory
        copy = self._directory / f"{number}{COMING}"
        # From an interrupted attempt.
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        for path in copy.iterdir():
            file = self._files.open(path)
            try:
                self._files.sync(file)
            finally:
                self._files.close(file)
        self._files.sync_directory(copy)
        return copy

    def coming(self, number: int) -> Path:
        """Return the directory for files copied from another home's stream, named by the stream's number at the remote
        home.

        Raises:
            OSError: the directory cannot be created.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jumpmq-streams-"))
        directory = self._directory / f"{number}{COMING}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def all_coming(self) -> list[int]:
        """Return the numbers of the streams with a directory of copied files, or with imported chunks."""
        if self._directory is None or not self._directory.is_dir():
            return []
        found = [path.name.removesuffix(COMING) for path in self._directory.glob(f"*{COMING}")]
        return sorted({*self.all_importing(), *(int(name) for name in found if name.isdigit())})

    def forget_coming(self, number: int) -> None:
        """Delete the copied files; callable from any thread."""
        if self._directory is not None:
            shutil.rmtree(self._directory / f"{number}{COMING}", ignore_errors=True)

    def segment_copy(self, number: int, first: int) -> SegmentCopy:
        """Return a segment of a stream being copied."""
        return SegmentCopy(self._files, self.coming(number), first)

    def finish_coming(self, number: int, handed: HandedFiles | None) -> Path:
        """Write the other home's information, if given, and sync the names of the copied files. Return the directory.
        Callable from any thread.

        Raises:
            OSError: the information cannot be written, or the directory cannot be synced.
        """
        directory = self.coming(number)
        if handed is not None:
            handed.write(directory)
        self._files.sync_directory(directory)
        return directory

    # --- streams imported through the log ---

    def all_importing(self) -> list[int]:
        """Return the numbers of the streams being imported. The numbers are those at the serving homes."""
        return [number for number, source in self._sources.items() if number == source.number]

    def importing(self, number: int, first: int) -> StreamLog:
        """Return the log of a stream that is being imported.

        Args:
            number: number of the stream at the serving home.
            first: lowest offset of the stream at the serving home. Earlier messages are dropped here, too.

        Raises:
            StoreError: the stream's directory cannot be created or read.
        """
        assert self._store is not None
        if number not in self._sources:
            self.forget_coming(number)
            self._put_source(number, StreamOrigin(number))
            self.open(number)
        log = self._logs[number]
        log.retain_from(first)
        if not log.segment_count:
            self._store.bound_stream(log)
        return log

    def import_chunks(self, log: StreamLog, chunks: list[ImportedChunk]) -> None:
        """Append chunks of another home to a stream, with the store's next commit."""
        assert self._store is not None
        if not log.segment_count and (first := chunks[0].place.first) > log.end:
            log.go_on_at(first)  # the serving home has lost the files before
            self._store.bound_stream(log)
        self._store.import_chunks(log, chunks)

    def forget_importing(self, number: int) -> None:
        """Delete the imported chunks, if any, of a stream whose move was cancelled."""
        if number in self._sources:
            self.remove(number)

    def adopt(self, number: int, imported: int, handed: HandedFiles) -> StreamLog:
        """Return the log of a formerly empty stream, with all imported chunks.

        Args:
            imported: number of the stream at the previous home.
            handed: information of the previous home.
        """
        empty, log = self._logs[number], self._logs.pop(imported)
        empty.close()
        empty.is_gone = True
        empty.remove()
        self._put_source(imported, None)
        self._put_source(number, StreamOrigin(log.number, handed, handed.bounds.end))
        log.handed = handed
        # The end at the previous home counts even if the last messages are lost: no offset is used twice.
        log.go_on_at(handed.bounds.end)
        self._logs[number] = log
        return log

    def forget_handed(self, number: int, log: StreamLog) -> None:
        """Forget the information received with the files of a stream, after its use."""
        log.forget_handed()
        if (source := self._sources.get(number)) is not None:
            self._put_source(number, source._replace(handed=None))

    def _put_source(self, number: int, source: StreamOrigin | None) -> None:
        assert self._store is not None
        if source is None:
            del self._sources[number]
        else:
            self._sources[number] = source
        self._store.put_source(number, source)

    def take_over(self, number: int, directory: Path, name: str = "") -> StreamLog:
        """Return the log of a formerly empty stream, with files found by :meth:`brought`.

        Args:
            name: name of the stream for operators.

        Raises:
            OSError, StoreError: the files cannot be moved or opened.
        """
        assert self._directory is not None
        own = self._directory / str(number)
        self._logs[number].close()
        self._logs[number].is_gone = True
        directory.replace(own)  # replaces an empty directory
        # Old and new parent: a crash must not lose the name in between.
        for changed in self._directory, directory.parent:
            self._files.sync_directory(changed)
        return self.open(number, name)

    def _retire(self, number: int, segment: StreamSegment) -> None:
        if self._store is not None and number in self._logs:
            # Staged before the removal of the file, which waits for the commit with this record.
            self._store.retain_stream(self._logs[number])
        self._on_retire(segment)

    def set_unclaimed_aside(self) -> None:
        """Move the directories of unopened streams to :data:`UNCLAIMED`, and log the move. Empty directories are
        deleted.

        An unopened stream was deleted just before a crash, or its definition is lost.
        """
        if not self._is_kept or self._directory is None or not self._directory.is_dir():
            return
        opened = {log.number for log in self._logs.values()}
        for path in self._directory.iterdir():
            if path.name.isdigit() and int(path.name) not in opened:
                try:
                    # The files have to be complete without the log, whose copy goes with its segments.
                    if (known := self._known.pop(int(path.name), None)) is not None:
                        redo(path, known, self._files)
                    _set_aside(path, self._directory.parent / UNCLAIMED, _WITHOUT_DEFINITION)
                except OSError as error:
                    log.error("stream %s has no definition, and cannot be moved aside: %s", path, error)

    def append(self, log: StreamLog, messages: list[Message]) -> None:
        """Append messages to a stream, at the end of the turn or with the store's next commit."""
        if self._store is not None:
            self._store.append_to_stream(log, messages)
        else:
            self._staged.setdefault(log, []).extend(messages)

    def flush(self) -> None:
        """End a turn: without a store, write the appended messages."""
        if not self._staged or time.monotonic() < self._retry_at:
            return
        for log in list(self._staged):
            try:
                laid = log.lay_out(self._staged[log])
                for one in laid.appends:
                    if one.allocate is not None:
                        self._files.allocate(one.file, *one.allocate)
                    self._files.write(one.file, one.offset, one.buffers)
            except OSError as error:
                log.put_back()
                self._on_error(error)
                return
            del self._staged[log]
            log.written()
            log.publish(laid.places, NOT_KEPT)

    def _on_error(self, error: OSError) -> None:
        log.error("cannot write to streams in %s: %s; the write is retried", self._directory, error.strerror or error)
        self._retry_at = time.monotonic() + RETRY_INTERVAL

    def remove(self, number: int) -> None:
        """Remove a deleted stream. Messages appended in the current turn are dropped; the files stay until
        :meth:`delete`.
        """
        log = self._logs.pop(number)
        log.is_gone = True
        self._staged.pop(log, None)
        if self._store is not None:
            self._store.drop_stream(log)
            if number in self._sources:
                self._put_source(number, None)
        self._removed.append(log)

    def take_removed(self) -> list[StreamLog]:
        """Return the streams removed since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def delete(self, logs: list[StreamLog]) -> None:
        """Delete the files of removed streams. No write to these streams may be under way."""
        for log in logs:
            log.close()
            self._background.run(log.remove, lambda result: None)

    def fall_silent(self) -> None:
        """Stop notifications of streams' growth."""
        for log in self._logs.values():
            log.fall_silent()

    def close(self) -> None:
        """Release all files. The store must be closed."""
        self.fall_silent()
        self.flush()
        for log in self._logs.values():
            log.close()
        self._background.close()
        if not self._is_kept and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


_WITHOUT_DEFINITION = "has no definition: it was deleted just before a crash, or its definition is lost"


def _set_aside(path: Path, unclaimed: Path, why: str) -> None:
    if not any(path.iterdir()):
        path.rmdir()
        return
    unclaimed.mkdir(mode=0o700, exist_ok=True)
    names = itertools.chain([path.name], (f"{path.name}-{number}" for number in itertools.count(2)))
    to = next(free for name in names if not (free := unclaimed / name).exists())
    path.rename(to)
    log.warning(
        "stream %s %s. Its files are now in %s: delete them, or give them to a new stream as in docs/durability.md",
        path.name,
        why,
        to,
    )
