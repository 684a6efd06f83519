"""The files of all streams, and the thread that writes them.

As in the store, what is staged is laid out when the thread is free: one commit takes all that was staged meanwhile, and
each touched stream's file is written and synced once. :attr:`StreamFiles.fileno` becomes readable when one is on disk.
Only then is it seen, and ``on_commit`` called.

A commit that fails (a full disk, mostly) is tried again every second, and confirms nothing before.
"""

from __future__ import annotations

import itertools
import logging
import select
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from jumpmq.amqp.messages import Message
from jumpmq.store.background import Background
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.layout import body_octets
from jumpmq.store.stream_bounds import Bounds, Handed
from jumpmq.store.stream_copy import SegmentCopy
from jumpmq.store.stream_log import StreamLog, is_foreign
from jumpmq.store.stream_segment import ChunkPlace, Segment
from jumpmq.store.writer import WRITTEN, Append, Writer

log = logging.getLogger(__name__)

DIRECTORY = "streams"
"""The streams' directory in the data directory."""

UNCLAIMED = "unclaimed-streams"
"""The directory beside it for streams that no definition names."""

COMING = ".coming"
"""Behind the number of a stream: directory of its files while they are copied from another home's disk."""

RETRY_INTERVAL = 1.0
"""Seconds between attempts of a commit that fails."""


@dataclass
class _Commit:
    """A commit on its way to disk: its number, what is to be written, and what is then seen of which stream."""

    number: int
    appends: list[Append] = field(default_factory=list)
    places: dict[StreamLog, list[ChunkPlace]] = field(default_factory=dict)
    octets: int = 0

    def add(self, log: StreamLog, appends: list[Append], places: list[ChunkPlace], octets: int) -> None:
        self.appends += appends
        self.places.setdefault(log, []).extend(places)
        self.octets += octets


class StreamFiles:
    """Streams under one directory, each in a directory of its number.

    Args:
        directory: None is a temporary one, which need not be on disk, and which goes at the close.
        on_commit: called when a commit is on disk, and seen.
        on_error: called each time a commit fails.
        watch: called once, with a descriptor and what to call whenever it is readable.
        files: the file calls to use.
        bounds: what the store says of the streams' files, by the stream's number.
        on_loss: told of what is found missing.
        on_retire: gets segments that retention has let go of, to be deleted.

    Attributes:
        committed: number of the last finished commit.
        error: why the last attempt of a commit failed; None while all is well.
        staged_bytes: octets of bodies that are staged or being written, and not yet on disk.
        appended: how often messages were staged.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        on_commit: Callable[[], None] = lambda: None,
        on_error: Callable[[StoreError], None] = lambda error: None,
        watch: Callable[[int, Callable[[], None]], object] = lambda file, readable: None,
        files: Files | None = None,
        bounds: Mapping[int, Bounds] = MappingProxyType({}),
        on_loss: Callable[[str], object] = log.error,
        on_retire: Callable[[Segment], object] = Segment.remove,
    ) -> None:
        self.committed = 0
        self.error: StoreError | None = None
        self.staged_bytes = self.appended = 0
        self._durable = directory is not None  # whether the directory stays
        self._directory = directory
        self._on_commit = on_commit  # told of each commit on disk
        self._on_error = on_error  # told of each that fails
        self._watch = watch
        self._files = Files() if files is None else files  # the file calls
        self._background = Background("jumpmq-streams", lambda: None)  # deletes files
        self._writer: Writer | None = None  # the thread that writes; None before the first commit
        self._bounds = bounds
        self._on_loss = on_loss
        self._on_retire = on_retire
        self._unbound: set[StreamLog] = set()  # those whose files have changed since the store noted what they hold
        self._logs: dict[int, StreamLog] = {}  # the streams by number
        self._staged: dict[StreamLog, list[Message]] = {}  # messages that wait for a commit
        self._number = 0  # of the last commit that was asked for
        self._requested = False  # whether what is staged is asked for
        self._laid_out: _Commit | None = None  # a commit whose layout failed halfway
        self._writing: _Commit | None = None  # the commit under way
        self._retry_at: float | None = None  # when it is tried again, by the monotonic clock
        self._removed: list[StreamLog] = []  # streams that :meth:`take_removed` has yet to return
        self._doomed: list[StreamLog] = []  # streams whose files go once nothing is written to them

    @property
    def fileno(self) -> int | None:
        """The descriptor that is to be watched; None before anything was written."""
        return None if self._writer is None else self._writer.fileno()

    @property
    def is_writing(self) -> bool:
        """Whether the disk has not answered yet."""
        return self._writer is not None and self._writer.is_working

    @property
    def covering(self) -> int:
        """The commit that covers all that was appended so far."""
        return self._number + (bool(self._staged) and not self._requested)

    def open(self, number: int, name: str = "") -> StreamLog:
        """The log of a stream, with what it has on disk.

        Args:
            name: what operators call it.

        Raises:
            StoreError: its directory cannot be made or read.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jumpmq-streams-"))
        directory, bounds = self._directory / str(number), self._bounds.get(number)
        try:
            if bounds is not None and is_foreign(directory, bounds):
                _set_aside(directory, self._directory.parent / UNCLAIMED, "has the files of another stream")
            log = StreamLog(
                directory,
                self._files,
                sync=self._durable,
                bounds=bounds,
                name=name,
                on_loss=self._on_loss,
                on_retire=lambda segment: self._retire(number, segment),
            )
        except OSError as error:
            raise StoreError(f"cannot open stream {number} in {self._directory}: {error}") from error
        self._logs[number] = log
        if bounds != log.bounds:
            self._unbound.add(log)
        return log

    def hand_over(self, log: StreamLog, offsets: dict[str, dict[str, int]]) -> Path:
        """Leave the files of a stream, to which nothing is written any more, to another process; returns their
        directory.

        Args:
            offsets: the records of consumer groups' offsets.

        Raises:
            OSError: the disk does not take what is to go along.
        """
        self._unbound.discard(log)
        return log.hand_over(offsets)

    def brought(self, number: int, directory: Path) -> Path:
        """The files that another process leaves, on the disk of this one's: a copy where they are elsewhere. It may
        take long, and any thread may call it.

        Raises:
            OSError: they cannot be had.
        """
        assert self._directory is not None
        if directory.stat().st_dev == self._directory.stat().st_dev:
            return directory
        copy = self._directory / f"{number}{COMING}"
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
        """The directory for files that are copied here from a stream of another home, which has this number there.

        Raises:
            OSError: it cannot be made.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jumpmq-streams-"))
        directory = self._directory / f"{number}{COMING}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def all_coming(self) -> list[int]:
        """The numbers of the streams of which there are such directories."""
        if self._directory is None or not self._directory.is_dir():
            return []
        found = [path.name.removesuffix(COMING) for path in self._directory.glob(f"*{COMING}")]
        return sorted(int(name) for name in found if name.isdigit())

    def forget_coming(self, number: int) -> None:
        """Delete what has been copied; any thread may call it."""
        if self._directory is not None:
            shutil.rmtree(self._directory / f"{number}{COMING}", ignore_errors=True)

    def segment_copy(self, number: int, first: int) -> SegmentCopy:
        """A segment among such files."""
        return SegmentCopy(self._files, self.coming(number), first)

    def finish_coming(self, number: int, handed: Handed | None) -> Path:
        """Have the names of what was copied on disk, and what the other home knew of it, if that is told; returns the
        directory. Any thread may call it.

        Raises:
            OSError: the disk does not take it.
        """
        directory = self.coming(number)
        if handed is not None:
            handed.write(directory)
        self._files.sync_directory(directory)
        return directory

    def take_over(self, number: int, directory: Path, name: str = "") -> StreamLog:
        """The log of a stream, which has been empty, with files that :meth:`brought` has found.

        Args:
            name: what operators call it.

        Raises:
            OSError, StoreError: they cannot be had.
        """
        assert self._directory is not None
        own = self._directory / str(number)
        self._logs[number].close()
        directory.replace(own)  # an empty one is there
        for changed in self._directory, directory.parent:
            self._files.sync_directory(changed)
        log = self.open(number, name)
        self._unbound.add(log)
        return log

    def _retire(self, number: int, segment: Segment) -> None:
        if number in self._logs:
            self._unbound.add(self._logs[number])
        self._on_retire(segment)

    def take_unbound(self) -> list[tuple[int, Bounds]]:
        """What the store is to note of streams whose files have changed since the last call."""
        changed, self._unbound = self._unbound, set()
        return [(log.number, log.bounds) for log in changed]

    def set_unclaimed_aside(self) -> None:
        """Move the directories of streams that were not opened to :data:`UNCLAIMED`, and say so in the log.

        They were deleted just before a crash, or their definitions are lost. Empty ones are deleted.
        """
        if not self._durable or self._directory is None or not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            if path.name.isdigit() and int(path.name) not in self._logs:
                try:
                    _set_aside(path, self._directory.parent / UNCLAIMED, _WITHOUT_DEFINITION)
                except OSError as error:
                    log.error("stream %s has no definition, and cannot be moved aside: %s", path, error)

    def append(self, log: StreamLog, messages: list[Message]) -> None:
        """Stage messages at the end of a stream."""
        self.appended += 1
        self._staged.setdefault(log, []).extend(messages)
        self.staged_bytes += body_octets(messages)

    def remove(self, number: int) -> None:
        """A stream is deleted: what is staged for it is dropped, its files stay until :meth:`delete_removed`."""
        log = self._logs.pop(number)
        self.staged_bytes -= body_octets(self._staged.pop(log, []))
        self._unbound.discard(log)
        self._removed.append(log)

    def take_removed(self) -> list[StreamLog]:
        """The streams that were removed since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def delete(self, logs: list[StreamLog]) -> None:
        """Delete the files of removed streams, once nothing is written to them any more."""
        self._doomed += logs
        for log in [log for log in self._doomed if not self._is_written(log)]:
            self._doomed.remove(log)
            log.close()
            self._background.run(log.remove, lambda result: None)

    def _is_written(self, log: StreamLog) -> bool:
        return any(one is not None and log in one.places for one in (self._writing, self._laid_out))

    def flush(self) -> int:
        """Have everything staged committed as soon as the writer is free; returns the commit that covers it."""
        if self._staged and not self._requested:
            self._requested = True
            self._number += 1
        if self._requested and self._writing is None and self._retry_at is None:
            self._begin()
        return self._number

    def completed(self) -> None:
        """Take notice of what the writer has finished: call it when the descriptor is readable."""
        if self._writer is None:
            return
        for result in self._writer.results():
            if result.error is not None:
                self._fail(result.error)
            elif self._writing is not None:
                self._finish(self._writing)
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._retry_at = None
            if self._writing is not None:
                self._write(self._writer, self._writing)
            else:
                self._begin()

    def close(self) -> None:
        """Commit everything, unless that fails, and end the thread. Nothing is reported any more."""
        self._on_commit = _nothing
        for log in self._logs.values():
            log.on_growth = _nobody
        self.flush()
        while self._writer is not None and self._writing is not None and self._retry_at is None:
            select.select([self._writer.fileno()], [], [], 1)
            self.completed()
        for log in self._logs.values():
            log.close()
        self._background.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if not self._durable and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _begin(self) -> None:
        """Lay out what is staged, and hand it to the writer."""
        if self._writer is None:
            self._writer = Writer(self._files)
            self._watch(self._writer.fileno(), self.completed)
        commit, self._laid_out = self._laid_out or _Commit(self._number), None
        try:
            while self._staged:
                log = next(iter(self._staged))
                appends, places = log.lay_out(self._staged[log])
                commit.add(log, appends, places, body_octets(self._staged.pop(log)))
        except OSError as error:
            self._laid_out = commit
            self._fail(error)
            return
        self._requested = False
        self._write(self._writer, commit)

    def _write(self, writer: Writer, commit: _Commit) -> None:
        self._writing = commit
        if commit.appends:
            writer.append(commit.appends)
        else:  # the streams that it was for were deleted before it was laid out
            writer.finish(WRITTEN)

    def _fail(self, error: OSError) -> None:
        assert self._writer is not None
        self.error = StoreError(
            f"cannot write to streams in {self._directory}: {error.strerror or error}; nothing more is confirmed until "
            "that is put right"
        )
        self._on_error(self.error)
        self._retry_at = time.monotonic() + RETRY_INTERVAL
        self._writer.wake_after(RETRY_INTERVAL)

    def _finish(self, commit: _Commit) -> None:
        self._writing, self.error = None, None
        self.committed = commit.number
        self.staged_bytes -= commit.octets
        for log, places in commit.places.items():
            log.publish(places)
            if log.number in self._logs:
                self._unbound.add(log)
        self.delete([])
        if self._requested:
            self._begin()
        self._on_commit()


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


def _nothing() -> None:
    """Not asked any more."""


def _nobody(begun: bool) -> None:
    """Not read any more."""
