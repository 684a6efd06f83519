"""The broker's side of the store: what was staged is handed over, and who waits for the disk hears of each commit.

A commit here is one of the store's and one of the streams' together.
"""

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable
from pathlib import Path

from jumpmq.broker.commit.receipts import DONE, PENDING, State
from jumpmq.store import Store, StoreError
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog

log = logging.getLogger(__name__)


STREAMS = "streams"
"""The streams' directory in the data directory."""

LARGE_BYTES = 64 << 10
"""Octets of bodies from which on a commit begins at once; a smaller one takes along what others have sent by now."""


class Commits:
    """Commits by number, growing: a source of receipts. Where nothing is durable there is one, 0, and it is done.

    Attributes:
        store: where durable things are; None where everything is in memory.
        streams: where streams keep their messages.
        before_flush: called before what is staged is handed over.
        on_commit: called in the event loop when a commit is on disk.
        completed: the last commit on disk.
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self._loop = asyncio.get_running_loop()
        self.streams = self._stream_files(None)
        self.before_flush: Callable[[], None] = _nothing
        self.on_commit: Callable[[], None] = _nothing
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._flushed = (0, 0)  # the last commit: its number in the store, and in the streams
        self._number = self.completed = 0
        self._open: deque[tuple[int, int, int]] = deque()  # a commit's number here, in the store, in the streams
        self._beginning = False
        self._others = _Sockets(self._loop)
        self._removed: deque[tuple[int, list[StreamLog]]] = deque()

    def open(self, directory: Path, linger_bytes: int) -> Store:
        """Open the store in a directory.

        Args:
            linger_bytes: octets up to which what nobody waits for may be put off.

        Raises:
            StoreError: it cannot be opened.
        """
        self.store = Store.open(
            directory,
            on_commit=lambda number: self._on_commit(),
            on_error=_log_error,
            linger_bytes=linger_bytes,
        )
        self._loop.add_reader(self.store.fileno(), self.store.completed)
        self.streams = self._stream_files(directory / STREAMS)
        return self.store

    def _stream_files(self, directory: Path | None) -> StreamFiles:
        return StreamFiles(directory, on_commit=self._on_streams, on_error=_log_error, watch=self._loop.add_reader)

    async def close(self) -> None:
        """Commit everything and close the store; other tasks go on meanwhile, but none may use it any more.

        Raises:
            StoreError: the last commit failed.
        """
        if self.streams.fileno is not None:
            self._loop.remove_reader(self.streams.fileno)
        await asyncio.to_thread(self.streams.close)
        if self.store is not None:
            store, self.store = self.store, None
            self._loop.remove_reader(store.fileno())
            await asyncio.to_thread(store.close)

    def state(self, number: int) -> State:
        """Whether a commit is on disk."""
        return DONE if number <= self.completed else PENDING

    @property
    def backlog(self) -> int:
        """Octets of bodies that wait for the disk."""
        return self.streams.staged_bytes + (self.store.staged_bytes if self.store is not None else 0)

    def flush(self, *, settlements: bool = False, waiting: bool = True) -> int:
        """Hand what was staged to the store; returns the commit that covers it. It has to be begun (:meth:`begin`).

        Args:
            settlements: whether what was acknowledged is worth a commit of its own.
            waiting: whether somebody waits for it; if not, it may be put off until the next flush.
        """
        streams, removed = self.streams.flush(), self.streams.take_removed()
        if self.store is None:
            self.streams.delete(removed)
            return 0
        self.before_flush()
        wanted = self.store.staging or (waiting and self.store.dirty)
        if not (settlements or wanted or removed or streams != self._flushed[1]):
            return self._number
        stored = self.store.flush(settlements=settlements, waiting=waiting, begin=False)
        if (stored, streams) != self._flushed:
            self._flushed = stored, streams
            self._number += 1
            self._open.append((self._number, stored, streams))
            if stored <= self.store.committed:
                self._complete()  # all of it may be on disk already, be it by more than one commit
        if removed:
            self._removed.append((self._number, removed))
        return self._number

    @property
    def more_to_read(self) -> bool:
        """Whether clients have sent something that is not read yet."""
        return self._others.readable

    def begin(self, *, alone: bool = False) -> None:
        """Begin a commit of what was flushed: at once, in this thread, if nobody has sent more meanwhile; else when
        that is read.

        Args:
            alone: whether it is known that nobody has.
        """
        if self.store is None or self._beginning:
            return
        if alone:
            self.store.begin(here=True)
        elif not self.store.begins:
            return
        elif self.store.staged_bytes >= LARGE_BYTES:
            self.store.begin()
        elif self._others.readable:
            self._beginning = True
            self._loop.call_soon(self._begin)
        else:
            self.store.begin(here=True)

    def _begin(self) -> None:
        self._beginning = False
        if self.store is not None:
            self.store.begin(here=not self._others.readable)

    def _complete(self) -> None:
        """Note which commits are on disk by now."""
        if self.store is not None:
            store, streams = self.store.committed, self.streams.committed
            while self._open and self._open[0][1] <= store and self._open[0][2] <= streams:
                self.completed, _, _ = self._open.popleft()

    async def wait(self) -> None:
        """Wait until everything staged so far is on disk."""
        commit = self.flush(settlements=True)
        self.begin()
        if commit > self.completed:
            waiter = self._loop.create_future()
            self._waiters.append((commit, waiter))
            await waiter

    def _on_streams(self) -> None:
        self._on_commit()
        self.flush()
        self.begin()

    def _on_commit(self) -> None:
        self._complete()
        completed = self.completed
        while self._removed and self._removed[0][0] <= completed:  # a crash before would bring the stream back, empty
            self.streams.delete(self._removed.popleft()[1])
        if self._waiters:
            self._tell_waiters(completed)
        self.on_commit()

    def _tell_waiters(self, completed: int) -> None:
        waiters, self._waiters = self._waiters, []
        for commit, waiter in waiters:
            if commit > completed:
                self._waiters.append((commit, waiter))
            elif not waiter.done():
                waiter.set_result(None)


class _Sockets:
    """Whether anything is there to be read on the sockets of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        backend: Callable[[], int] | None = getattr(loop, "_get_backend_id", None)
        self._poll = select.poll()
        self._known = backend is not None
        if backend is not None:
            self._poll.register(backend(), select.POLLIN)

    @property
    def readable(self) -> bool:
        """Whether there is, or, with another loop than uvloop's, might be."""
        return not self._known or bool(self._poll.poll(0))


def _log_error(error: StoreError) -> None:
    log.error("%s", error)


def _nothing() -> None:
    """Nobody asked."""
