"""The broker's side of the store: what was staged is handed over, and those who wait are told what is complete.

Complete is what no crash can take back: today what is on the disk of this node. A commit here is one of the store's, by
its receipt.
"""

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable
from pathlib import Path

from jumpmq.broker.commit.receipts import Numbered, Part
from jumpmq.queues.base import STORE
from jumpmq.store import Store, StoreError, stream_files
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import Segment

log = logging.getLogger(__name__)


LARGE_BYTES = 64 << 10
"""Octets of bodies from which on a commit begins at once; a smaller one takes along what others have sent by now."""


class Commits:
    """Commits by number, growing. Where nothing is durable there is one, 0, and it is complete.

    Attributes:
        store: where durable things are; None where everything is in memory.
        streams: where streams keep their messages.
        before_flush: called before what is staged is handed over.
        on_complete: called in the event loop when something is complete.
        on_failure: called once, with a sentence, when commits cannot go on: the broker has to end, and to start again.
        failure: that sentence; None while all is well.
        completed: the last commit that is complete.
        parts: what the store was given up to the last flush, by its bit.
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self._loop = asyncio.get_running_loop()
        self.streams = StreamFiles(None)
        self.before_flush: Callable[[], None] = _nothing
        self.on_complete: Callable[[], None] = _nothing
        self.on_failure: Callable[[str], None] = _ignore
        self.failure: str | None = None
        self._stored = Numbered()  # the source of receipts
        self.parts = {STORE: Part(self._stored, 0)}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []  # who waits for which commit
        self._flushed = self.completed = 0  # the last commit that was flushed, and the last that is complete
        self._awaited = 0  # the last commit that somebody waits for
        self._beginning = False  # whether a commit begins when what others have sent is read
        self._others = _Sockets(self._loop)  # whether other clients have sent something
        self._removed: deque[tuple[int, list[StreamLog], list[Segment]]] = (
            deque()
        )  # what goes when a commit of the store is complete
        self._retired: list[Segment] = []  # segments of streams that retention has let go of

    def open(self, directory: Path, linger_bytes: int) -> Store:
        """Open the store in a directory.

        Args:
            linger_bytes: octets up to which what is not waited for may be put off.

        Raises:
            StoreError: it cannot be opened.
        """
        self.store = Store.open(
            directory,
            on_commit=lambda number: self._or_fail(self._on_commit),
            on_error=_log_error,
            linger_bytes=linger_bytes,
        )
        self._loop.add_reader(self.store.fileno(), self._or_fail, self.store.completed)
        known, self.store.streams = self.store.streams, {}
        self.streams = StreamFiles(
            directory / stream_files.DIRECTORY,
            store=self.store,
            known=known,
            on_loss=self.store.losses.add,
            on_retire=self._retired.append,
        )
        return self.store

    def _or_fail(self, step: Callable[[], None]) -> None:
        """Take a step towards a commit. If it raises, what is staged, written and waited for may not fit together any
        more, so the broker has to go on from its log."""
        try:
            step()
        except Exception as error:
            self._fail_with(error)

    def _fail_with(self, error: Exception) -> None:
        log.critical("a step of a commit failed", exc_info=error)
        self.fail(f"commits cannot go on after {error!r}: the broker ends, to start again from its log")

    def fail(self, reason: str) -> None:
        """Say that commits cannot go on: see ``on_failure``."""
        if self.failure is None:
            self.failure = reason
            log.critical("%s", reason)
            self.on_failure(reason)

    async def close(self, *, clean: bool = True) -> None:
        """Commit everything and close the store; other tasks go on meanwhile, but none may use it any more.

        Args:
            clean: whether the store knows what was delivered.

        Raises:
            StoreError: the last commit failed.
        """
        self.streams.fall_silent()
        try:
            if self.store is not None:
                store, self.store = self.store, None
                self._loop.remove_reader(store.fileno())
                await asyncio.to_thread(store.close, clean=clean)
        finally:
            await asyncio.to_thread(self.streams.close)

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for a commit that is not complete."""
        return self._awaited > self.completed

    @property
    def error(self) -> StoreError | None:
        """Why the disk refused the last commit, which is tried again; None while all is well."""
        return None if self.store is None else self.store.error

    @property
    def is_writing(self) -> bool:
        """Whether the disk has not answered yet."""
        return self.store is not None and self.store.is_writing

    @property
    def is_held(self) -> bool:
        """Whether commits wait for more that belongs to the next one."""
        return self.store is not None and self.store.is_held

    @property
    def backlog(self) -> int:
        """Octets of bodies that wait for the disk."""
        return 0 if self.store is None else self.store.staged_bytes

    def flush(self, *, settlements: bool = False, waiting: bool = True) -> int:
        """Hand what was staged to the store; returns the commit that covers it. It has to be begun (:meth:`begin`).

        Args:
            settlements: whether what was acknowledged is worth a commit of its own.
            waiting: whether somebody waits for it; if not, it may be put off until the next flush.
        """
        try:
            commit = self._flush(settlements, waiting)
        except Exception as error:
            self._fail_with(error)
            raise
        if waiting:
            self._awaited = commit
        return commit

    def _flush(self, settlements: bool, waiting: bool) -> int:
        removed = self.streams.take_removed()
        if self.store is None:
            self.streams.flush()
            self.streams.delete(removed)
            return 0
        self.before_flush()
        retired, self._retired[:] = self._retired.copy(), []
        wanted = self.store.staging or (waiting and self.store.dirty)
        if not (settlements or wanted or removed or retired):
            return self._flushed
        stored = self.store.flush(settlements=settlements, waiting=waiting, begin=False)
        if stored != self._flushed:
            self._flushed = stored
            self.parts = {STORE: Part(self._stored, stored)}
        if removed or retired:
            self._removed.append((stored, removed, retired))
        return stored

    @property
    def more_to_read(self) -> bool:
        """Whether clients have sent something that is not read yet."""
        return self._others.readable

    def begin(self, *, alone: bool = False) -> None:
        """Begin a commit of what was flushed: at once, in this thread, if no client has sent more meanwhile; else when
        that is read.

        Args:
            alone: whether it is known that none has.
        """
        store = self.store
        if store is None or self._beginning:
            return
        try:
            if alone:
                store.begin(here=True)
            elif not store.begins:
                return
            elif store.staged_bytes >= LARGE_BYTES:
                store.begin()
            elif self._others.readable:
                self._beginning = True
                self._loop.call_soon(self._or_fail, self._begin)
            else:
                store.begin(here=True)
        except Exception as error:
            self._fail_with(error)
            raise

    def _begin(self) -> None:
        self._beginning = False
        if self.store is not None:
            self.store.begin(here=not self._others.readable)

    def _complete(self) -> None:
        """Note what is complete by now."""
        if self.store is not None:
            self._stored.completed = self.completed = self.store.committed

    @property
    def losses(self) -> list[tuple[str, float]]:
        """What is missing from the data directory and not acknowledged: sentences, each with when it was found."""
        return [] if self.store is None else self.store.losses.listed()

    def keep_losses(self) -> None:
        """Have what was found missing recorded."""
        if self.store is not None:
            self.store.keep_losses()

    def index_definitions(self) -> None:
        """Have what was declared leave memory once no more comes."""
        if self.store is not None:
            self.store.index_definitions()

    async def wait(self) -> None:
        """Wait until everything staged so far is complete."""
        commit = self.flush(settlements=True)
        self.begin()
        if commit > self.completed:
            waiter = self._loop.create_future()
            self._waiters.append((commit, waiter))
            await waiter

    def _on_commit(self) -> None:
        self._complete()
        completed = self.completed
        while (
            self._removed and self._removed[0][0] <= self._stored.completed
        ):  # a crash before would bring the stream back, empty
            _, streams, segments = self._removed.popleft()
            self.streams.delete(streams)
            for segment in segments:
                segment.remove()
        if self._waiters:
            self._tell_waiters(completed)
        self.on_complete()

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


def _ignore(reason: str) -> None:
    pass


def _nothing() -> None:
    pass
