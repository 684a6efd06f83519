"""The threads of a copy's directory: waiting tasks are performed together, with one sync.

Results are passed to the event loop in the order of the tasks. Tasks that arrive during a sync are performed together
after the sync: one ``fdatasync`` for all commits that arrived meanwhile. Most commits fit into allocated room. The
store's compiled thread writes these: it waits for the disk without holding the interpreter lock.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.replication.actions import Append, Begin, Cut, Note, Open, Sync
from jumpmq.replication.lineage import Stretch
from jumpmq.store._worker import Worker
from jumpmq.store.background import Background


class Remove(NamedTuple):
    """Remove consumed segments."""

    segments: tuple[int, ...]


class Know(NamedTuple):
    """Write the home's configuration, as JSON text, into the note."""

    configuration: str


Task = Know | Note | Cut | Sync | Open | Append | Begin | Remove

TaskResult = tuple[Task, int | Stretch | OSError]
"""A task with its result: the position up to which the log is synced; for :class:`Begin` the new segment; for a failed
:class:`Note` the error."""


class DiskThread:
    """Performs tasks on a directory.

    Args:
        directory: directory used exclusively, until the last answer.
        loop: event loop for the callbacks.
        on_answers: called with the results of a batch.
        on_failure: called with the error that ended a batch; no further task is performed.
        on_work: called when a batch begins (True) and ends (False).
    """

    def __init__(
        self,
        directory: CopyDirectory,
        loop: asyncio.AbstractEventLoop,
        on_answers: Callable[[list[TaskResult]], None],
        on_failure: Callable[[Exception], None],
        on_work: Callable[[bool], None],
    ) -> None:
        self._directory = directory
        self._on_answers = on_answers
        self._on_failure = on_failure
        self._on_work = on_work
        self._loop = loop
        self._writer: _CompiledThread | None = None  # created at the first use
        self._thread = Background("jumpmq-copy", self._wake)
        self._waiting: list[Task] = []  # tasks for the next batch
        self._works = self._failed = self._closed = False

    def do(self, task: Task) -> None:
        """Perform a task after all earlier tasks."""
        if self._failed or self._closed:
            return
        self._waiting.append(task)
        if not self._works:
            self._begin()

    def end(self) -> None:
        """Stop performing tasks, and drop the results of the current batch."""
        self._closed = True
        self._waiting.clear()
        if self._writer is not None:
            self._writer.end()

    def close(self) -> None:
        """Wait for the current batch, after :meth:`end`. May block for the disk."""
        self._thread.close(deliver=False)
        if self._writer is not None:
            self._writer.close()

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._thread.deliver)

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        self._works = True
        self._on_work(True)
        appended = [task.octets for task in batch if isinstance(task, Append)]
        placed = self._directory.place(appended) if len(appended) == len(batch) else None
        if placed is None:
            self._thread.run(lambda: perform(self._directory, batch), self._done)
        else:
            self._writer = self._writer or _CompiledThread(self._loop, self._on_appended)
            self._writer.append(*placed)

    def _on_appended(self, error: int) -> None:
        if error:
            self._done(OSError(error, os.strerror(error)))
        else:
            self._done([(Sync(), self._directory.end)])

    def _done(self, result: list[TaskResult] | Exception) -> None:
        self._works = False
        if self._closed:
            return
        self._on_work(False)
        if isinstance(result, Exception):
            self._failed = True
            self._on_failure(result)
            return
        if self._waiting:
            self._begin()  # the disk works while the results are processed
        self._on_answers(result)


class _CompiledThread:
    """The compiled writing thread, with callbacks in an event loop.

    Args:
        on_result: called after each write with the error number; 0 for success.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_result: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_result = on_result
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._worker = Worker(self._writable)
        loop.add_reader(self._readable, self._look)

    def append(self, file: int, offset: int, buffers: list[bytes]) -> None:
        """Write and sync octets; the last write must have been finished."""
        self._worker.append(file, offset, buffers)

    def end(self) -> None:
        """Stop calling the callbacks."""
        self._loop.remove_reader(self._readable)

    def close(self) -> None:
        """Wait for the current write, after :meth:`end`. May block for the disk."""
        self._worker.close()
        os.close(self._readable)
        os.close(self._writable)

    def _look(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._readable, 64)
        if (result := self._worker.take()) is not None:
            self._on_result(result[0])


def perform(directory: CopyDirectory, batch: Sequence[Task]) -> list[TaskResult]:
    """Perform tasks in order, with a sync where a task requires one, and at the end.

    Raises:
        OSError: a write to the log failed; later tasks are not performed.
    """
    answers: list[TaskResult] = []
    for place, task in enumerate(batch):
        match task:
            case Open():
                directory.open_segment(task.stretch)
            case Append():
                directory.append(task.position, task.octets)
            case Note():
                answers.append((task, _noted(directory, task)))
            case Know():
                with contextlib.suppress(OSError):  # the next note may fit; the file is unchanged
                    directory.know(task.configuration)
            case Cut():
                directory.cut(task.position)
                answers.append((task, directory.end))
            case Begin():
                answers.append((task, directory.begin(task.epoch)))
            case Remove():
                directory.remove(task.segments)
        writes = isinstance(task, (Open, Append, Sync))
        if writes and not any(isinstance(later, (Open, Append, Sync)) for later in batch[place + 1 : place + 2]):
            directory.sync()
            answers.append((Sync(), directory.end))
    return answers


def _noted(directory: CopyDirectory, note: Note) -> int | OSError:
    """Write a note, and return the end of the log. A failed write leaves the previous note and the log intact."""
    try:
        directory.note(note.epoch, note.mark)
    except OSError as error:
        return error
    return directory.end
