"""Log maintenance: periodic indexing, removal of segments, and rewriting of mostly dead segments."""

import errno
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jumpmq.amqp.messages import Message
from jumpmq.store.background import Background
from jumpmq.store.batch import SPILLED, Batch
from jumpmq.store.changes import Definitions
from jumpmq.store.completion import CompleteCommit
from jumpmq.store.errors import StoreError, Unsynced
from jumpmq.store.files import Files
from jumpmq.store.index import Index, Update
from jumpmq.store.kinds import STREAM
from jumpmq.store.log import Log, LogSegment
from jumpmq.store.ranges import Ranges
from jumpmq.store.reader import BlockReader
from jumpmq.store.recovery import Recovery, segments_of
from jumpmq.store.stream_bounds import Known
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_redo import sync
from jumpmq.store.unindexed import Unindexed

log = logging.getLogger(__name__)

MOVE_BYTES = 4 << 20
"""Octets of bodies moved per commit, rounded up to whole batches."""

SPARSE = 0.5
"""Live share of a segment below which the live content is moved."""

MANY_DEFINITIONS = 5_000
"""Number of unindexed definitions from which on the log continues in a new segment, so that the index can take them.
Unindexed definitions take memory.
"""

QUIET = 2.0
"""Seconds without a new definition before many definitions are indexed."""

LOOK_INTERVAL = 1.0
"""Seconds between searches for mostly dead segments."""

NO_DESCRIPTOR = errno.EMFILE, errno.ENFILE
"""Errors of opening a file while clients use up all descriptors."""

BatchMoves = list[tuple[Batch, list[Message]]]


class LogUpkeep:
    """Tracks the live content of the log, and the changes not yet in the index.

    Args:
        log: the segments.
        index: the index.
        reader: reads messages to move.
        background: thread for the work.
        indexed: first segment that the index does not cover.
        on_moves: called with the remaining parts of batches to move.
        files: the file calls to use for streams.
    """

    def __init__(
        self,
        log: Log,
        index: Index,
        reader: BlockReader,
        background: Background,
        *,
        indexed: int,
        on_moves: Callable[[BatchMoves], None],
        files: Files,
    ) -> None:
        self._log = log
        self._index = index
        self._reader = reader
        self._background = background
        self._indexed = indexed
        self._on_moves = on_moves
        self._files = files
        self.kept_from = sys.maxsize  # segments from this number on are kept, dead or not
        self._unindexed = Unindexed()  # changes that are neither in the index nor in the pending snapshot
        self._defined_at = 0.0  # time of the last definition
        self._streams: dict[StreamLog, None] = {}  # streams with possibly unsynced files
        # Unopened streams with chunks in the log. Until they are open, the index must not cover these chunks: the
        # index's record of the stream is older than the chunks.
        self._unopened: set[int] = set()
        self._by_queue: dict[int, set[Batch]] = {}  # written batches, by the queue's number
        self._update: Update | None = None  # the pending snapshot
        self._due_at = 0  # receipt that must be complete before the snapshot is written
        self._retry_at = 0.0  # time of the next attempt after a failed write of the index
        self._look_at = 0.0  # time of the next search for mostly dead segments
        self._writing = False  # True while the index is being written
        self._moving = False  # True while batches to move are being read
        self._unmovable: set[Batch] = set()  # batches with unreadable blocks

    # --- effects of complete commits ---

    def adopt(self, found: Recovery, streams: Mapping[int, Known]) -> None:
        """Take over the state found at the start; changes from the log are new to the index.

        Args:
            streams: known state of streams, by the stream's number.
        """
        self._unindexed = found.unindexed
        self._unopened = {number for number, known in streams.items() if known.pieces}
        for batches in found.queues.values():
            for batch in batches:
                self._by_queue.setdefault(batch.queue_id, set()).add(batch)

    def forget_lost(self, lost: dict[int, Batch]) -> None:
        """Remove the missing parts of batches from the index.

        Args:
            lost: remaining messages of each batch, by id.
        """
        for id, left in lost.items():
            if left.remaining:
                self._unindexed.new[left] = None
                self._unindexed.changed[left] = None
            else:
                self._unindexed.gone.append(id)

    def note_definitions(self, definitions: Definitions, complete: CompleteCommit) -> None:
        """Record committed changes of definitions."""
        self._unindexed.definitions.absorb(definitions)
        self._defined_at = time.monotonic()

    @property
    def holds_definitions(self) -> bool:
        """True if many definitions wait for the index, and no new definition has arrived for :data:`QUIET` seconds."""
        if self._update is not None or len(self._unindexed.definitions) < MANY_DEFINITIONS:
            return False
        return time.monotonic() >= self._defined_at + QUIET

    def note_written(self, segment: LogSegment, batch: Batch, octets: int, complete: CompleteCommit) -> None:
        """Record committed messages of a batch."""
        segment.batches.add(batch)
        segment.live += octets
        self._unindexed.new[batch] = None
        if batch.queue_id < SPILLED:  # invented numbers are dropped at a start only: see adopt
            self._by_queue.setdefault(batch.queue_id, set()).add(batch)

    def note_streamed(self, log: StreamLog) -> None:
        """Record messages appended to a stream, or written again to the stream's files."""
        self._unopened.discard(log.number)
        if not log.is_gone:
            self._streams[log] = None

    def forget_unopened(self) -> None:
        """Forget unopened streams: they have no definition, and need no index."""
        self._unopened.clear()

    def forget_stream(self, log: StreamLog) -> None:
        """Release a removed stream. While a reference to the stream exists, its mapped files take disk space."""
        self._streams.pop(log, None)

    def note_settled(self, batch: Batch, count: int, complete: CompleteCommit) -> None:
        """Record committed settlements of a batch's messages."""
        self._unindexed.changed[batch] = None
        # One segment takes the whole reduction: the live octets of a segment are an estimate.
        for number in segments_of(batch):
            if (segment := self._log.segments.get(number)) is not None:
                segment.live -= batch.bytes * count / batch.count
                break

    def note_moved(
        self, segment: LogSegment, batch: Batch, position: int, length: int, complete: CompleteCommit
    ) -> None:
        """Record the committed new location of the rest of a batch."""
        # First out of the old segments, which the batch's positions still name.
        self._leave(batch, complete)
        batch.move(position, length, batch.first_seq)
        self.note_written(segment, batch, length, complete)
        self.compact()

    def _leave(self, batch: Batch, complete: CompleteCommit) -> None:
        """Remove a batch from its segments; segments without further content are removed."""
        for number in segments_of(batch):
            if (segment := self._log.segments.get(number)) is not None:
                segment.batches.discard(batch)
                self._remove_if_dead(segment, complete)

    def forget(self, batch: Batch, complete: CompleteCommit) -> None:
        """Forget a batch after the commit of the last settlement."""
        if not batch.positions:
            return
        self._leave(batch, complete)
        self._unindexed.forget(batch)
        self._unmovable.discard(batch)
        batches = self._by_queue.get(batch.queue_id)
        if batches is not None:
            batches.discard(batch)
            if not batches:
                del self._by_queue[batch.queue_id]

    def drop(self, queue_id: int, complete: CompleteCommit) -> None:
        """Forget a queue after the commit of the deletion."""
        for batch in list(self._by_queue.get(queue_id, ())):
            # Reduces the live octets of the segments, in contrast to `forget`.
            self.note_settled(batch, batch.remaining, complete)
            self.forget(batch, complete)
            batch.gone()

    # --- the index ---

    @property
    def behind(self) -> bool:
        """True if the log has continued in a new segment since the last snapshot."""
        return self._update is None and self._log.current is not None and self._log.current.number > self._indexed

    def snapshot(self, receipt: int, complete: CompleteCommit) -> None:
        """Record the next state of the index, which covers the log before the current segment.

        The snapshot includes uncommitted settlements. The update must therefore be written only after the commit of
        ``receipt``, which has the last of these settlements. No snapshot is made while a commit before the current
        segment is incomplete, or while a batch that began before the current segment has unwritten messages.
        """
        assert self._log.current is not None
        if self._unopened or complete < self._log.current.first_commit - 1:
            return
        limit = self._log.current.position(0)
        if not any(batch.messages is not None for batch in self._unindexed.new if batch.id < limit):
            self._update, self._due_at = self._make_update(self._log.current.number), receipt

    def _make_update(self, segment: int, commit: int = 0) -> Update:
        update = self._unindexed.take(segment, commit)
        # The record of a stream replaces the stream's chunks in the log: bounds and files to sync belong together.
        for log in self._streams:
            if not log.is_gone:
                update.definitions.put[STREAM, str(log.number)] = log.bounds.encode()
                update.files += log.take_unsynced()
        self._streams = {}
        return update

    @property
    def has_snapshot(self) -> bool:
        """True if an index write is pending."""
        return self._update is not None

    def is_due(self, committed: int) -> bool:
        """Return True if the snapshot may be written: all its settlements are committed, and no retry delay is
        running.

        Args:
            committed: last complete receipt.
        """
        return self._update is not None and committed >= self._due_at and time.monotonic() >= self._retry_at

    def write_index(self, complete: CompleteCommit) -> None:
        """Start writing the snapshot to the index. All settlements of the snapshot must be committed."""
        update = self._update
        if update is None or self._writing:
            return
        self._writing = True
        self._background.run(lambda: self._write(update), lambda result: self._on_index_written(result, complete))

    def _write(self, update: Update) -> None:
        try:
            sync(update.files, self._files)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise  # no sync was tried: the update is retried soon
            # Octets may be missing on disk even if a later sync succeeds.
            raise Unsynced(f"files of streams may not be on disk: {error}") from error
        # Only after the sync: a start no longer reads the chunks in the covered segments.
        self._index.write(update)
        while update.definitions.put:  # one by one: freeing many at once would block the broker's thread
            update.definitions.put.popitem()
        while update.definitions.removed:
            update.definitions.removed.pop()

    def _on_index_written(self, result: Any, complete: CompleteCommit) -> None:
        self._writing = False
        if isinstance(result, Unsynced):
            raise result
        if isinstance(result, Exception):
            # Nothing is lost: the log has all changes, and the update stays pending.
            log.warning("cannot write the index: %s", result)
            self._retry_at = time.monotonic() + 1.0
            return
        assert self._update is not None
        self._indexed, self._update = self._update.segment, None
        # The index covers more segments now: those without live content are no longer needed.
        for segment in list(self._log.segments.values()):
            self._remove_if_dead(segment, complete)
        self.compact()

    def close(self, commit: int | None) -> None:
        """Close the index. A clean stop writes a last update first, so that the next start reads next to nothing of the
        log.

        Args:
            commit: number of the commit that marks the stop as clean; None without such a commit.
        """
        try:
            if commit is not None and not self._unopened:
                # In order: the last update has only the changes since the pending update.
                if self._update is not None:
                    self._write(self._update)
                # Names a segment that only the next start creates: a clean stop has no log behind the index.
                last = max(self._log.segments, default=0)
                self._write(self._make_update(last + 1, commit))
                self._indexed = last + 1
        except (sqlite3.Error, OSError, Unsynced) as error:
            # The next start reads a longer part of the log instead.
            log.warning("cannot write the index: %s", error)
        self._index.close()

    # --- segments ---

    def keep_from(self, segment: int, complete: CompleteCommit) -> None:
        """Keep segments from a number on, dead or not: followers need them."""
        before, self.kept_from = self.kept_from, segment
        if segment > before:
            for one in list(self._log.segments.values()):
                self._remove_if_dead(one, complete)

    def _remove_if_dead(self, segment: LogSegment, complete: CompleteCommit) -> None:
        # A start replays the segments from `_indexed` on; followers fetch the segments from `kept_from` on.
        is_needed = segment is self._log.current or segment.number >= min(self._indexed, self.kept_from)
        dead = not segment.batches and not is_needed
        if dead and segment.number in self._log.segments:
            path = segment.path
            self._background.run(self._log.forget(segment), lambda result: _on_removed(path, result))

    def look(self) -> None:
        """Search for a mostly dead segment, unless done recently."""
        if time.monotonic() >= self._look_at:
            self.compact()

    def compact(self) -> None:
        """Start reading the live content of a mostly dead segment, to move it to the current segment."""
        self._look_at = time.monotonic() + LOOK_INTERVAL
        if self._moving:
            return
        for segment in self._log.segments.values():
            # A move from a segment that the index does not cover would free nothing: a start needs the segment.
            sparse = segment.number < self._indexed and segment.batches and segment.live < SPARSE * segment.end
            if sparse and (batches := self._movable(segment)):
                self._moving = True
                self._background.run(lambda batches=batches: self._read(batches), self._on_read)  # type: ignore[misc]
                return

    def _movable(self, segment: LogSegment) -> list[tuple[Batch, Any, Ranges]]:
        """Return some live content of a segment, with locations and settled ranges."""
        batches, octets = [], 0.0
        for batch in segment.batches:
            # The rest of a batch with unwritten messages is not final yet.
            if batch.messages is None and batch.remaining and batch not in self._unmovable:
                # Copied, because settlements continue during the read in another thread.
                batches.append((batch, batch.positions, batch.settled.copy()))
                octets += batch.bytes * batch.remaining / batch.count
                if octets >= MOVE_BYTES:
                    break
        return batches

    def _read(self, batches: list[tuple[Batch, Any, Ranges]]) -> BatchMoves:
        found = []
        for batch, positions, settled in batches:
            try:
                messages = self._reader.messages(batch, None, None)
            except StoreError:
                continue  # the batch was settled in the meantime
            left = [message for message in messages if message.seq not in settled]
            if not left or self._reader.is_damaged(batch):
                self._unmovable.add(batch)  # damaged batches stay
            # Other positions mean that the batch was moved or dropped during the read.
            elif batch.positions is positions:
                found.append((batch, left))
        return found

    def _on_read(self, result: Any) -> None:
        self._moving = False
        if isinstance(result, Exception):
            log.warning("cannot move messages to another segment: %s", result)
            return
        self._on_moves(result)


def _on_removed(path: Path, result: Any) -> None:
    if isinstance(result, Exception):
        log.warning("cannot remove %s: %s", path, result)
