"""The pipeline of a commit: from staged changes to disk, one commit at a time.

::

                 begin                     laid out              on disk
        IDLE ─────────────▶ PREPARING ─────────────▶ WRITING ─────────────▶ IDLE
          ▲                                             │ │
          │    the next segment exists                  │ │ on disk, and the segment is full
          ├──────────────────────────────── ROLLING ◀───│─┘
          │    a second has passed                      │ failed
          └──────────────────────────────── RETRYING ◀──┤ │ failed, and copies may have the commit STOPPED ◀───┘

Most commits are laid out at once, and skip PREPARING. A commit begins in IDLE only; any other state is the reason for
the next commit's delay. :attr:`~jumpmq.store.staging.Staging.wanted` is True if a commit is due. On a full disk,
changes that free room are written first: the state goes from RETRYING to WRITING, possibly to ROLLING, and back to
RETRYING.
"""

import enum
import logging
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from jumpmq.store.background import Background
from jumpmq.store.changes import Changes
from jumpmq.store.commits import Prepared, preparing
from jumpmq.store.completion import MOST_COMMITS, CompleteCommit, CompleteReceipt, Completion, receipt_of
from jumpmq.store.errors import StoreError, Unsynced
from jumpmq.store.log import Log
from jumpmq.store.reserve import Reserve
from jumpmq.store.staging import COMMIT_MESSAGES, Staging
from jumpmq.store.upkeep import SPARSE, LogUpkeep
from jumpmq.store.writer import NO_ROOM, WRITTEN, Result, Writer

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class PipelineStep(enum.Enum):
    """The step under way; the module's docstring shows the transitions."""

    IDLE = "idle"
    PREPARING = "preparing"
    WRITING = "writing"
    RETRYING = "waiting to retry"
    ROLLING = "rolling a segment"
    STOPPED = "stopped for good"


# Globals, because access to a member of an enumeration is slower.
IDLE, PREPARING, WRITING, RETRYING, ROLLING, STOPPED = PipelineStep


class Pipeline:
    """Writes commits in sequence, and keeps the log small.

    Attributes:
        state: the step under way.
        error: error of a commit's last attempt; None after a success.

    Args:
        staging: supplies the content of commits.
        log: the log to write to.
        number: number of the last commit on disk.
        upkeep: writes the index, and removes and compacts segments.
        writer: writes commits to disk.
        reserve: file to give up on a full disk.
        segments: thread that creates segments.
        completion: tells which commits are complete.
        retry_interval: seconds between attempts of a failing commit.
        on_commit: called with the receipt of each complete commit.
        on_error: called after each failure of a commit.
    """

    def __init__(
        self,
        staging: Staging,
        log: Log,
        number: int,
        upkeep: LogUpkeep,
        writer: Writer,
        reserve: Reserve,
        segments: Background,
        completion: Completion,
        retry_interval: float,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None],
    ) -> None:
        self.state = IDLE
        self.error: StoreError | None = None
        self._staging = staging
        self._log = log
        self._number = number  # number of the last commit on disk
        self._completion = completion
        self._retry_interval = retry_interval
        completion.begin(number)
        self._stored: deque[Prepared] = deque()  # commits on disk, but not complete
        self._stored_bytes = 0  # octets of the commits in _stored
        self._upkeep = upkeep
        self._writer = writer
        self._reserve = reserve
        self._segments = segments
        self._on_commit = on_commit
        self._on_error = on_error
        self._prepared: Prepared | None = None  # the commit being prepared or written
        self._steps: Iterator[None] | None = None  # remaining steps of a commit being prepared
        self._retry_at: float | None = None  # time of the next attempt of a failed commit
        self._is_full = False  # True after a failure for want of room, until room is reserved again
        self._is_torn = False  # True if the log may end with a failed commit, until another commit overwrites that end
        self._relieved = False  # True if changes that free room were written since the last attempt
        self._make_room_at = 0.0  # time of the next attempt to free room; earlier attempts would be of no use

    # --- beginning ---

    @property
    def begins(self) -> bool:
        """True if :meth:`begin` would begin a commit."""
        return self.state is IDLE and self._staging.wanted and self._may_store

    @property
    def _may_store(self) -> bool:
        """True if the stored but incomplete commits leave room for more."""
        return len(self._stored) < MOST_COMMITS and self._stored_bytes < self._completion.most_bytes

    @property
    def is_incomplete(self) -> bool:
        """True if stored commits are not complete: their copies have not answered."""
        return bool(self._stored)

    @property
    def last_complete(self) -> CompleteCommit:
        """The number of the last complete commit."""
        number = self._stored[0].number - 1 if self._stored else self._number
        complete = self._completion.of(number)
        assert complete is not None
        return complete

    @property
    def is_writing(self) -> bool:
        """True while a disk operation awaited by commits is outstanding."""
        return self._writer.is_working or (self.state is ROLLING and self._segments.is_working)

    def begin(self, *, here: bool = False) -> None:
        """Begin the next commit, if a commit is wanted and nothing delays it.

        Args:
            here: True if this thread may write a small commit itself on a fast disk, because no client waits for the
                thread.
        """
        if self.state is IDLE and self._may_store and (changes := self._staging.take()) is not None:
            self._prepare(Prepared(changes), here)

    def go_on(self) -> None:
        """Process finished writes, and begin waiting work.

        :meth:`Store.completed` calls this before ``begin_again``, when the writer's descriptor is readable.
        """
        for result in self._writer.results():
            self._conclude(result)
        self.complete()
        if self.state is PREPARING:
            self._prepare_on()

    def complete(self) -> None:
        """Process stored commits that have become complete."""
        if self._stored:
            self._complete()
            # A write under way keeps up at its end: the write has its place in the current segment.
            if self.state is IDLE:
                self._keep_up()

    def begin_again(self) -> None:
        """Begin a commit, or retry a failed commit."""
        if self.state is RETRYING and self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._retry()
        else:
            self.begin()

    # --- preparing ---

    def _prepare(self, prepared: Prepared, here: bool = False) -> None:
        """Lay out and write a commit. A commit that has outgrown the usual size, because it was held, is laid out in
        parts.
        """
        self.state, self._prepared, self._steps = PREPARING, prepared, preparing(prepared)
        self._prepare_on(here, at_once=prepared.changes.count <= 2 * COMMIT_MESSAGES)

    def _prepare_on(self, here: bool = False, at_once: bool = False) -> None:
        """Lay out the next part; :meth:`go_on` continues with the rest."""
        assert self._steps is not None and self._prepared is not None
        try:
            for _ in self._steps:
                if not at_once:
                    # Other clients are served between two parts: the event loop returns by the writer's descriptor.
                    self._writer.wake()
                    return
        except OSError as error:  # a stream's file cannot be opened
            # Reported as a failed write, so that the changes are put back and retried.
            self.state = WRITING
            self._writer.finish(Result(error))
            return
        self._steps = None
        self._write(self._prepared, here)

    # --- writing ---

    def _write(self, prepared: Prepared, here: bool = False) -> None:
        self.state, self._prepared = WRITING, prepared
        # An empty commit notifies waiting callers, without a write. Behind a torn end even an empty commit is written,
        # because a start could otherwise replay the failed commit.
        if not prepared.blocks and not self._is_torn:
            self._writer.finish(WRITTEN)
            return
        try:
            # Before the first commit, and after a write that left the content of the file unknown.
            if self._log.current is None:
                self._log.begin(self._number + 1)
                # Room for settlements is reserved before messages can fill the disk.
                self._reserve.make()
        except OSError as error:
            self._writer.finish(Result(error))
            return
        segment, file = self._log.current, self._log.current_file
        assert segment is not None and file is not None
        prepared.write = prepared.place(self._number + 1, segment, file.descriptor, allocation=self._log.allocation)
        if here and self._writer.is_quick(prepared.write.commit.length):
            self._conclude(self._writer.write(prepared.write))
            # No descriptor reports a write of this thread, so the next commit begins here.
            self.begin()
        else:
            self._writer.submit(prepared.write)

    def _conclude(self, result: Result) -> None:
        """Process the result of the current write."""
        prepared, self._prepared = self._prepared, None
        assert prepared is not None
        if result.error is None:
            self._on_written(prepared)
        else:
            if result.is_told:
                self._stop(result.error)
            self._on_failed(prepared, result.error, result.unsafe)

    def _on_written(self, prepared: Prepared) -> None:
        """Process a stored commit.

        If the commit is complete at once, waiting callers are notified before the index notes the commit: clients
        continue in the meantime.
        """
        # A relief proves nothing about the failed commit, which is still unwritten.
        if not prepared.relief:
            self.error = None
            self._staging.recover()
        if prepared.write is not None:
            self._number += 1
            self._completion.stored(self._number, prepared.write.position)
        prepared.number = self._number
        # Commits complete in order: behind an incomplete commit, this commit has to wait too.
        complete = None if self._stored else self._completion.of(self._number)
        if complete is not None:
            # Confirms come first: they do not depend on the notes, and clients can continue.
            self._tell(prepared, complete)
            self._note_places(prepared)
            self._staging.written()
            self._take_note(prepared, complete)
        else:
            # Stored, but not complete: the place in the log is noted, but index and clients are not notified.
            self._note_places(prepared)
            self._staging.stored()
            self._stored.append(prepared)
            self._stored_bytes += prepared.changes.octets
            self._complete()
        # First the end of this commit's state: `_keep_up` may begin to roll a segment.
        self._rest()
        self._keep_up()

    def _complete(self) -> None:
        """Note commits that have become complete for the index, and notify waiting callers.

        The index notes a commit first: notified callers may begin another commit, which may be complete and noted at
        once.
        """
        while self._stored and (complete := self._completion.of(self._stored[0].number)) is not None:
            prepared = self._stored.popleft()
            self._stored_bytes -= prepared.changes.octets
            self._staging.forget_stored()
            self._take_note(prepared, complete)
            self._tell(prepared, complete)

    def _tell(self, prepared: Prepared, complete: CompleteCommit) -> None:
        """Report a complete commit: streams show the commit, and waiting callers are notified."""
        # A relief covers no receipt: its changes are only a part of the failed commit.
        if not prepared.relief:
            receipt = receipt_of(prepared.changes.receipt, complete)
            self._staging.succeed(receipt)
            # Before the confirms: a client that reads the stream after its confirm finds the message.
            for stream, places in prepared.streams:
                stream.publish(places, complete)
            self._call(self._on_commit, receipt)

    def _note_places(self, prepared: Prepared) -> None:
        """Record the location of a commit in the log, and of its messages."""
        for stream, _ in prepared.streams:
            stream.written()
        if prepared.write is not None:
            self._is_torn = False
            segment = prepared.segment = self._log.current
            assert segment is not None
            segment.blocks += len(prepared.written) + len(prepared.moved)
            for _, places in prepared.streams:
                segment.blocks += len(places)
            segment.end += prepared.write.commit.length
            if prepared.write.allocate is not None:
                segment.allocated = sum(prepared.write.allocate)
            segment.zeroed = max(segment.zeroed, segment.end + prepared.write.zeros)
            for batch, block, first in prepared.written:
                batch.add_block(segment.position(block.offset), block.length, first)
        # Behind the locations: readers in other threads find a message in memory until its location is known.
        for batch, count in prepared.changes.staged.items():
            batch.written(count)

    def _take_note(self, prepared: Prepared, complete: CompleteCommit) -> None:
        """Add a complete commit to the index, and permit the removal of segments consumed by the commit."""
        changes, segment = prepared.changes, prepared.segment
        if segment is not None:
            for stream, _ in prepared.streams:
                self._upkeep.note_streamed(stream)
            for batch, block, _ in prepared.moved:
                self._upkeep.note_moved(segment, batch, segment.position(block.offset), block.length, complete)
            for batch, block, _ in prepared.written:
                self._upkeep.note_written(segment, batch, block.length, complete)
        if changes.definitions:
            self._upkeep.note_definitions(changes.definitions, complete)
        if changes.settles:
            self._note_settled(changes, complete)
        for queue_id in changes.dropped:
            self._upkeep.drop(queue_id, complete)
        for act in changes.gone:
            act()

    def _note_settled(self, changes: Changes, complete: CompleteCommit) -> None:
        """Forget batches with all messages settled, except batches with settlements that are not complete yet."""
        emptied = []
        for batch, ranges in changes.settlements():
            # A batch without a location was never written, so the index does not need its settlements.
            if batch.positions:
                self._upkeep.note_settled(batch, changes.settled_before(batch, ranges).count, complete)
            if not batch.remaining and batch.messages is None:
                emptied.append(batch)
        if not emptied:
            return
        # `remaining` also counts staged settlements. A crash before their commit brings the messages back.
        pending, dropped = self._staging.pending()
        for batch in emptied:
            if batch not in pending and batch.queue_id not in dropped:
                self._staging.close_batch(batch)
                self._upkeep.forget(batch, complete)

    def _rest(self) -> None:
        """Become idle; a failed commit still waits for the next attempt."""
        self.state = IDLE if self._retry_at is None else RETRYING

    # --- rolling a segment ---

    def _keep_up(self) -> None:
        """Continue in a new segment when the current segment is full, and write the index when due."""
        # Once per interval: on a disk that is still full, every attempt fails.
        if self._is_full and self.error is None and time.monotonic() >= self._make_room_at:
            self._make_room_at = time.monotonic() + self._retry_interval
            self._is_full = not self._reserve.make()
        segment, upkeep, staging = self._log.current, self._upkeep, self._staging
        # On a full disk the current segment may be consumed as a whole, but only an earlier segment can be removed.
        crowded = self._is_full and segment is not None and not segment.batches and segment.blocks > 0
        if self._log.full or crowded:
            self._roll()
        if upkeep.behind:
            upkeep.snapshot(staging.next_receipt + 1, self.last_complete)
        # Without uncommitted settlements, no part of the snapshot waits for a commit.
        if upkeep.has_snapshot and (upkeep.is_due(staging.committed) or not (staging.settles or self._stored)):
            upkeep.write_index(self.last_complete)
        if not self._stored or not any(one.moved for one in self._stored):  # otherwise the same parts move twice
            upkeep.look()

    def make_room(self) -> None:
        """Free room on a nearly full disk: if the current segment has little live data, continue in a new segment.

        The old segment can then be removed. Called regularly: without new commits nothing else would start a segment.
        """
        now = time.monotonic()
        if now < self._make_room_at or self.state is not IDLE or self._is_full:
            return
        self._make_room_at = now + self._retry_interval
        segment = self._log.current
        if segment is not None and segment.blocks > 0 and segment.live < SPARSE * segment.end:
            self._roll()
        else:
            self._keep_up()

    def index_definitions(self) -> None:
        """Continue in a new segment if the index lacks many definitions, and no more definitions arrive. Called
        regularly.
        """
        idle = self.state is IDLE and self._log.current is not None
        if idle and self._upkeep.holds_definitions:
            self._roll()

    def _roll(self) -> None:
        """Create a new segment in the background; only the next commit waits."""
        if self.state is not ROLLING:
            self.state = ROLLING
            opening = self._log.next_opening(self._number + 1)
            self._segments.run(lambda: self._log.make(opening), self._on_segment)

    def _on_segment(self, result: Any) -> None:
        self._rest()
        if isinstance(result, Exception):
            return  # the current segment grows beyond its size
        before = self._log.current
        self._log.enter(*result)
        # A batch that continued in the new segment would keep the old segment until its later messages are consumed.
        self._staging.close_batches()
        self._keep_up()
        if before is not None:
            self._segments.run(lambda: self._log.cut(before), lambda result: None)

    # --- when the disk fails ---

    def _on_failed(self, prepared: Prepared, error: OSError, unsafe: bool) -> None:
        self._staging.put_back(prepared.changes)
        for stream, _ in prepared.streams:
            stream.put_back()
        self._is_torn = True
        self._is_full = error.errno in NO_ROOM
        # The system's cache may count octets as written that the disk lacks: the retry needs another file.
        if unsafe:
            self._log.abandon()
            self._staging.close_batches()
        # The freed room is for settlements, which the next attempt writes first.
        if self._is_full:
            self._reserve.release()
        self._wait_to_retry()
        self._rest()
        self.error = StoreError(
            f"cannot write to {self._log.directory}: {error.strerror or error}; nothing more is confirmed until a "
            "write succeeds"
        )
        self._call(self._on_error, self.error)

    def _stop(self, error: OSError) -> NoReturn:
        """Stop writing. A retry is not possible: the copies may have the failed commit, and a new commit with the same
        number would differ.

        Raises:
            Unsynced: always.
        """
        self.state = STOPPED
        self.error = Unsynced(
            f"cannot sync {self._log.directory}: {error.strerror or error}; the copies may have commits that this disk "
            "lacks"
        )
        raise self.error

    def _wait_to_retry(self) -> None:
        self._retry_at = time.monotonic() + self._retry_interval
        self._writer.wake_after(self._retry_interval)

    def _retry(self) -> None:
        """Retry the failed commit. On a full disk, commit changes that free room first, once per attempt: clients
        may go on settling messages.
        """
        # A held commit is still incomplete: a retry now would write only a part of the commit.
        if self._staging.is_held:
            self._wait_to_retry()
            return
        self._staging.request_again()
        if self._is_full and not self._relieved and (relief := self._staging.take_relief()):
            self._relieved = True
            # The next attempt is due before the write of the relief begins, so that the state returns to RETRYING
            # afterwards.
            self._wait_to_retry()
            self._prepare(Prepared(relief, relief=True))
        else:
            self._relieved = False
            self._retry_at = None
            self._rest()
            self.begin()

    def _call(self, callback: Callable[[_T], None], argument: _T) -> None:
        try:
            callback(argument)
        except Exception:
            log.exception("a callback of the store failed")

    # --- the end ---

    def close(self, *, clean: bool) -> int | None:
        """Write all staged changes, in as many commits as needed.

        Args:
            clean: True if the last commit marks the stop as clean.

        Returns:
            The number of the commit that marks the stop as clean; None without such a commit.
        """
        if self.state is STOPPED:
            assert self.error is not None
            raise self.error
        # Only one commit may be taken at a time.
        self._finish()
        self._segments.close()
        # After a failure all staged changes are in one commit, the last one.
        while self.error is None and (changes := self._staging.take_full()) is not None:
            self._prepare(Prepared(changes))
            self._finish()
        changes = self._staging.take_last()
        if not changes and self._log.current is None:
            return None
        # The last commit has a single attempt: the caller gets the error.
        self._retry_at = None
        self._on_commit, on_commit = (lambda receipt: None), self._on_commit
        self._prepare(Prepared(changes, final=clean))
        self._finish()
        if self.error is not None or not self._wait_for_completion():
            return None
        self._call(on_commit, self._staging.committed)
        return self._number if clean else None

    def _wait_for_completion(self) -> bool:
        """Wait up to the completion's ``patience`` until all stored commits are complete; return True on success."""
        until = time.monotonic() + self._completion.patience
        while self._stored and (left := until - time.monotonic()) > 0:
            select.select([self._writer.fileno()], [], [], left)
            self._writer.results()
            self._complete()
        return not self._stored

    def _finish(self) -> None:
        """Wait for the current commit."""
        while self.state is PREPARING:
            self._prepare_on()
        while self.state is WRITING:
            select.select([self._writer.fileno()], [], [])
            for result in self._writer.results():
                self._conclude(result)
