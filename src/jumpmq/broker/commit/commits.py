"""The broker's side of the store: passes staged changes to the store, and notifies callers that wait for commits.

The steps of a commit, from the end of a turn to its confirms:

1. :meth:`Turns._end` calls :meth:`Commits.flush`, which closes the staged changes of the turn (``Store.flush``) under a
   number, the *receipt*.
2. :meth:`Publisher.assign_receipts` assigns the receipt to the publishes of the turn.
3. :meth:`Commits.begin` begins the commit (``Store.begin``, ``Pipeline.begin``) if the disk is free. If other clients
   have sent data, a small commit first waits for their turns.
4. ``Pipeline._prepare`` lays the changes out; ``Pipeline._write`` has them written and synced by the writing thread
   (``store/worker.py``), or by the caller if the commit is small and of a single client. Further turns are staged
   meanwhile. With copies, ``Writer.submit`` ships a small commit to the followers first.
5. ``Pipeline._on_written`` notes the locations in the log, and calls ``Completion.stored``.
6. ``Pipeline._complete`` asks the completion which commits are *complete*: no crash can undo them. Without copies these
   are the stored commits; with copies, those that the copies in the set have stored, too
   (:class:`~jumpmq.store.completion.ByPosition`).
7. ``Pipeline._take_note`` passes a complete commit to the index; ``Pipeline._tell`` shows it to streams, and calls
   :meth:`Commits._on_commit`.
8. :meth:`Turns._on_complete` finds the channels with complete receipts: :meth:`Publisher.send_confirms`.

Steps 5 to 8 keep this order: the index and consumers of streams must not get changes that a crash may still undo, and a
confirm must not be sent before the index would find its message.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from jumpmq.broker.commit.receipts import Numbered, Part
from jumpmq.queues.base import STORE
from jumpmq.store import Store, StoreError, stream_files
from jumpmq.store.completion import NO_RECEIPT, CompleteReceipt
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import StreamSegment

log = logging.getLogger(__name__)


LARGE_BYTES = 64 << 10
"""Octets of bodies from which a commit begins at once; a smaller commit includes messages received from other clients
by now.
"""


class OpenStore(Protocol):
    """Opens the store in a directory; see :meth:`Store.open`."""

    def __call__(
        self,
        directory: Path,
        *,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None],
        linger_bytes: int,
    ) -> Store: ...


class Commits:
    """Numbered commits, growing. Without durable state there is a single commit, 0, already complete.

    Args:
        open_store: opens the store; in a home with copies, it also connects the store with the copies.
        on_failure: called once, with the reason, when commits cannot continue: the broker has to stop and start again.

    Attributes:
        store: the store; None if everything is in memory.
        streams: the files of streams.
        failure: the reason why commits cannot continue; None without a failure.
        completed: number of the last complete commit.
        parts: the store's part up to the last flush, by the store's bit.
    """

    def __init__(
        self, open_store: OpenStore = Store.open, on_failure: Callable[[str], None] = lambda reason: None
    ) -> None:
        self.store: Store | None = None
        self._open_store = open_store
        self._loop = asyncio.get_running_loop()
        self.streams = StreamFiles(None)
        self._before_flush: Callable[[], None] = _nothing  # called before staged changes are passed to the store
        self._on_complete: Callable[[], None] = _nothing  # called when a commit is complete
        self._on_failure = on_failure
        self.failure: str | None = None
        self._stored = Numbered()  # the source of receipts
        self.parts = {STORE: Part(self._stored, 0)}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []  # callers waiting for a commit, with its number
        self._flushed = 0  # the last flushed commit
        self.completed = NO_RECEIPT
        self._awaited = 0  # last awaited commit
        self._beginning = False  # True if a commit begins after data of other clients is read
        self._others = _Sockets(self._loop)  # tells whether other clients have sent data
        self._retired: list[StreamSegment] = []  # segments of streams removed by retention

    def listen(
        self, *, before_flush: Callable[[], None] | None = None, on_complete: Callable[[], None] | None = None
    ) -> None:
        """Set the functions called in the event loop before and after a commit.

        Args:
            before_flush: called before staged changes are passed to the store, and may stage further changes.
            on_complete: called when a commit is complete.
        """
        self._before_flush = before_flush or self._before_flush
        self._on_complete = on_complete or self._on_complete

    def open(self, directory: Path, linger_bytes: int) -> Store:
        """Open the store in a directory.

        Args:
            linger_bytes: octets up to which a commit is delayed if nobody waits for it.

        Raises:
            StoreError: the store cannot be opened.
        """
        self.store = self._open_store(
            directory,
            on_commit=lambda number: self._or_fail(self._on_commit),
            on_error=_log_error,
            linger_bytes=linger_bytes,
        )
        self._loop.add_reader(self.store.fileno(), self._or_fail, self.store.completed)
        self.store.completion.listen(look=self.look)
        known, self.store.streams = self.store.streams, {}
        self.streams = StreamFiles(
            directory / stream_files.DIRECTORY,
            store=self.store,
            known=known,
            sources=self.store.stream_sources,
            on_loss=self.store.losses.add,
            on_retire=self._retired.append,
        )
        return self.store

    def look(self) -> bool:
        """Process commits that have become complete; return False while the store is being closed."""
        if self.store is None:
            return False
        self._or_fail(self.store.complete)
        return True

    def _or_fail(self, step: Callable[[], None]) -> None:
        """Take a step towards a commit. After an exception, the staged, written and awaited changes may be
        inconsistent, so the broker has to continue from its log."""
        try:
            step()
        except Exception as error:
            self._fail_with(error)

    def _fail_with(self, error: Exception) -> None:
        log.critical("a step of a commit failed", exc_info=error)
        self.fail(f"commits cannot go on after {error!r}: the broker ends, to start again from its log")

    def fail(self, reason: str) -> None:
        """Report the failure of commits: see the argument ``on_failure``."""
        if self.failure is None:
            self.failure = reason
            log.critical("%s", reason)
            self._on_failure(reason)

    async def close(self, *, clean: bool = True) -> None:
        """Commit everything and close the store; other tasks continue meanwhile, but must no longer use the store.

        Args:
            clean: True if the store knows which messages were delivered.

        Raises:
            StoreError: the last commit failed.
        """
        self.streams.fall_silent()
        try:
            if self.store is not None:
                # From here on the store belongs to the closing thread: no turn may stage changes, and no callback may
                # look.
                store, self.store = self.store, None
                self._loop.remove_reader(store.fileno())
                await asyncio.to_thread(store.close, clean=clean)
        finally:
            # Behind the store, whose last commit writes to the streams' files.
            await asyncio.to_thread(self.streams.close)

    @property
    def is_awaited(self) -> bool:
        """True if an incomplete commit is awaited."""
        return self._awaited > self.completed

    @property
    def error(self) -> StoreError | None:
        """Error of the last commit, refused by the disk and retried; None without an error."""
        return None if self.store is None else self.store.error

    @property
    def is_writing(self) -> bool:
        """True while a disk write is outstanding."""
        return self.store is not None and self.store.is_writing

    @property
    def is_incomplete(self) -> bool:
        """True if commits are on this disk, but not yet on the disks of enough copies."""
        return self.store is not None and self.store.is_incomplete

    @property
    def hung_for(self) -> float:
        """Seconds for which the disk has not answered, in a home with copies; 0 without copies."""
        return 0.0 if self.store is None else self.store.hung_for

    @property
    def is_held(self) -> bool:
        """True while commits wait for more changes of the next commit."""
        return self.store is not None and self.store.is_held

    @property
    def backlog(self) -> int:
        """Octets of bodies waiting for the disk."""
        return 0 if self.store is None else self.store.staged_bytes

    def flush(self, *, settlements: bool = False, waiting: bool = True) -> int:
        """Pass staged changes to the store; return the commit with the changes, to be begun with :meth:`begin`.

        Args:
            settlements: True if acknowledgements alone are reason enough for a commit.
            waiting: True if somebody waits for the commit; if not, it may be delayed until the next flush.
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
        self._before_flush()
        # Emptied in place: all streams append their removed segments to this list.
        retired, self._retired[:] = self._retired.copy(), []
        wanted = self.store.staging or (waiting and self.store.dirty)
        if not (settlements or wanted or removed or retired):
            return self._flushed
        if removed or retired:  # a crash before would bring the stream back, empty
            self.store.when_complete(partial(self._or_fail, partial(self._delete, removed, retired)))
        stored = self.store.flush(settlements=settlements, waiting=waiting, begin=False)
        if stored != self._flushed:
            self._flushed = stored
            self.parts = {STORE: Part(self._stored, stored)}
        return stored

    def _delete(self, streams: list[StreamLog], segments: list[StreamSegment]) -> None:
        """Delete the files of removed streams, and of segments dropped by retention."""
        self.streams.delete(streams)
        for segment in segments:
            segment.remove()

    @property
    def more_to_read(self) -> bool:
        """True if data sent by clients is not read yet."""
        return self._others.readable

    def begin(self, *, alone: bool = False) -> None:
        """Begin a commit of the flushed changes.

        The commit begins at once, in the calling thread, if no client has sent more data; else after that data is read.

        Args:
            alone: True if the caller knows that no client has sent more data.
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
        """Record completed commits."""
        if self.store is not None:
            self._stored.completed = self.completed = self.store.committed

    @property
    def losses(self) -> list[tuple[str, float]]:
        """Return the unacknowledged losses of the data directory: sentences, with the time of detection."""
        return [] if self.store is None else self.store.losses.listed()

    def keep_losses(self) -> None:
        """Write detected losses to the file of losses."""
        if self.store is not None:
            self.store.keep_losses()

    def index_definitions(self) -> None:
        """Move the definitions out of memory once no more arrive."""
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
        if self._waiters:
            self._tell_waiters(completed)
        self._on_complete()

    def _tell_waiters(self, completed: CompleteReceipt) -> None:
        waiters, self._waiters = self._waiters, []
        for commit, waiter in waiters:
            if commit > completed:
                self._waiters.append((commit, waiter))
            elif not waiter.done():
                waiter.set_result(None)


class _Sockets:
    """Readability of the sockets of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        backend: Callable[[], int] | None = getattr(loop, "_get_backend_id", None)
        self._poll = select.poll()
        self._known = backend is not None
        if backend is not None:
            # The event loop's epoll descriptor is readable if any socket of the loop is.
            self._poll.register(backend(), select.POLLIN)

    @property
    def readable(self) -> bool:
        """True if data is readable or, with an event loop other than uvloop, may be readable."""
        return not self._known or bool(self._poll.poll(0))


def _log_error(error: StoreError) -> None:
    log.error("%s", error)


def _nothing() -> None:
    pass
