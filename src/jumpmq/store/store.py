"""The store: the broker's durable state, in a log from which everything else can be rebuilt.

The broker's thread stages definitions, messages and settlements (:mod:`jumpmq.store.staging`). :meth:`Store.flush` ends
a turn; all changes of the turn go into one commit. A commit begins when the previous commit is on disk. The commit has
the changes of all queues in one frame. A dedicated thread appends the frame to the log, and syncs the log
(:mod:`jumpmq.store.pipeline`). Then ``on_commit`` is called, and the broker sends the confirms. More publishers at a
time mean more messages per commit: this is the reason for the store's speed.

A replay of the log gives the exact state. From time to time an index (SQLite) is updated, so that a start reads only
the later part of the log. Segments without live content are removed, and the live content of mostly dead segments is
moved to the current segment. A message settled before its write is never written.
"""

from __future__ import annotations

import json
import logging
import select
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store import definitions, kinds, losses, opening, schema
from jumpmq.store.background import Background
from jumpmq.store.batch import SPILLED, Batch
from jumpmq.store.column_layout import Layout
from jumpmq.store.completion import CompleteCommit, CompleteReceipt, Completion
from jumpmq.store.contents import BatchContents
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.index import Index
from jumpmq.store.lineage import Stretch
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.log import DIRECTORY, Log, segment_bytes_on
from jumpmq.store.losses import Losses
from jumpmq.store.pipeline import Pipeline
from jumpmq.store.reader import BlockReader
from jumpmq.store.recovery import Recovery
from jumpmq.store.reserve import Reserve
from jumpmq.store.staging import COMMIT_BYTES, LINGER_BYTES, Staging
from jumpmq.store.stream_bounds import Known
from jumpmq.store.stream_import import StreamOrigin
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.upkeep import LogUpkeep
from jumpmq.store.writer import ShipAhead, Writer

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class Store(Staging):
    """An open store, held by the current process alone.

    Call all methods in one thread, the broker's. Exceptions are ``read`` and ``arrow``: any thread may call these. The
    owner must call :meth:`completed` when :meth:`fileno` is readable.

    Attributes:
        clean: True if the last stop was clean, with every settlement in the log. Otherwise some messages may come
            again.
        whole: True if all definitions could be read.
        streams: known state of streams at the opening, by the stream's number.
        stream_sources: origins of imported streams at the opening, by the stream's number.
        is_copied: True if the home has copies. Copies receive the log alone, no other file.
        losses: unacknowledged losses; see :meth:`keep_losses`.
        completion: decides which commits are complete.
        is_closing: True once :meth:`close` was called, possibly by another thread.
    """

    def __init__(
        self,
        directory: Path,
        lock: DirectoryLock,
        found: Recovery,
        noted: list[tuple[Batch, int, int]],
        files: Files,
        segment_bytes: int,
        commit_bytes: int,
        linger_bytes: int,
        epoch: int,
        tell: int,
        ship: ShipAhead | None,
        completion: Completion,
        retry_interval: float,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None],
    ) -> None:
        super().__init__(noted, commit_bytes=commit_bytes, linger_bytes=linger_bytes)
        self.losses = Losses()
        recorded = _take(found.definitions, kinds.LOSS)  # recorded by an earlier version
        self.losses.restore({loss: json.loads(text) for loss, text in recorded} | dict(_read_losses(directory)))
        if recorded:
            self.losses.keep_again()
        self.streams: dict[int, Known] = found.streams()
        sources = _take(found.definitions, kinds.STREAM_SOURCE)
        self.stream_sources = {int(key): StreamOrigin.decode(text) for key, text in sources}
        self.is_copied = epoch > 0
        for kind in (kinds.STREAM, kinds.STREAM_FLOOR):
            _take(found.definitions, kind)
        for loss in found.losses:
            self.losses.add(loss)
        self.clean = found.clean
        self.whole = found.whole
        self._directory, self._recorded_losses = directory, [loss for loss, _ in recorded]
        self._lock = lock
        self.is_closing = False
        # Recovered content, until definitions() and batches() hand it over.
        self._definitions, self._batches = found.definitions, found.queues
        # Remaining parts of batches with lost blocks, by id, until the losses are acknowledged.
        self._lost = found.lost
        # The parts of the store; each part uses only parts above it.
        self._log = Log(directory / DIRECTORY, files, segment_bytes, epoch)
        # Also above the segment named by the index: a lower number would count as covered by the index.
        self._log.adopt(found.segments, after=max(found.highest_segment, found.replayed_from - 1))
        self._writer = Writer(files, tell, ship)
        completion.listen(wake=self._writer.wake)
        self.completion = completion
        self._reader = BlockReader(self._log, on_loss=self.losses.add)
        self._background = Background("jumpmq-background", self._writer.wake)  # writes the index, reads parts to move
        self._reading = Background("jumpmq-reading", self._writer.wake)  # reads ahead
        self._segments = Background("jumpmq-segments", self._writer.wake)  # creates segments
        self._contents = BatchContents(self._reader, self._reading, self._log.directory)
        self._upkeep = LogUpkeep(
            self._log,
            Index(directory / schema.FILE_NAME, files.noted),
            self._reader,
            self._background,
            indexed=found.replayed_from,
            on_moves=self.move,
            files=files,
        )
        self._upkeep.adopt(found, self.streams)
        if not self.losses:  # the losses were acknowledged, but the index has not been written since
            self._upkeep.forget_lost(self._lost)
            self._lost = {}
        self._reserve = Reserve(directory / DIRECTORY, files)
        self._pipeline = Pipeline(
            self,
            self._log,
            found.last_commit,
            self._upkeep,
            self._writer,
            self._reserve,
            self._segments,
            completion,
            retry_interval,
            on_commit,
            on_error,
        )
        self.keep_losses()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None] = lambda error: None,
        files: Files | None = None,
        segment_bytes: int | None = None,
        commit_bytes: int = COMMIT_BYTES,
        linger_bytes: int = LINGER_BYTES,
        epoch: int = 0,
        tell: int = -1,
        ship: ShipAhead | None = None,
        completion: Completion | None = None,
        retry_interval: float = 1.0,
    ) -> Store:
        """Open the store in ``directory``; missing parts are created.

        Args:
            directory: the broker's data directory.
            on_commit: called by :meth:`completed` with the receipt of a complete commit; the receipt covers all lower
                receipts, too.
            on_error: called at each failure of a commit. Nothing is lost: the store retries the commit, and the next
                call of ``on_commit`` reports the success.
            files: the file calls to use.
            segment_bytes: octets after which the log continues in another file; None for a size that fits the disk.
            commit_bytes: octets of bodies after which turns go into another commit.
            linger_bytes: octets of bodies up to which the commit of turns without confirms is delayed.
            epoch: epoch in which this process leads the home, below 2**32; 0 in a home without copies.
            tell: in a home with copies, a non-blocking descriptor, such as a socket's; else -1. The position behind
                each commit is written to the descriptor, as 8 octets in native order, after the commit's write and
                before its sync. A position that the descriptor does not accept is skipped. With ``tell``, commits pass
                through the system's cache, where other threads read them, and are never written by the broker's
                thread. After a failed sync, the copies may have commits that this disk lacks: :meth:`completed` raises
                :class:`Unsynced`, and the process must end.
            ship: receives small commits before their write, if the file has room. A failed write then counts as a
                failed sync.
            completion: decides which commits are complete; None: stored commits are complete.
            retry_interval: seconds between attempts of a failing commit.

        Raises:
            StoreError: the directory cannot be used, another broker uses the directory, or the store has another
                version.
        """
        files = files or Files()
        # Before any read: another process may be writing.
        lock = DirectoryLock(directory)
        try:
            opening.migrate(directory, lambda work: cls.open(work, on_commit=lambda receipt: None))
            noted: list[tuple[Batch, int, int]] = []
            found = opening.look(directory, files, noted.append)
            for warning in found.warnings:
                log.warning("%s", warning)
            # Before any append: with a commit behind an unsynced commit, a loss of the unsynced commit would be a gap.
            opening.write_tail_again(found, files)
            # After the recovery, which has to notice a missing index.
            opening.create(directory)
            linger_bytes = max(linger_bytes, commit_bytes)
            if segment_bytes is None:
                segment_bytes = segment_bytes_on(directory)
            sizes = segment_bytes, commit_bytes, linger_bytes, epoch, tell, ship
            completion = completion or Completion()
            return cls(directory, lock, found, noted, files, *sizes, completion, retry_interval, on_commit, on_error)
        except BaseException:
            lock.release()
            raise

    # --- recovered content ---

    def definitions(self) -> list[tuple[str, str, Any]]:
        """Hand over the definitions found at the opening, as (kind, key, value), in the order of first insertion."""
        found, self._definitions = self._definitions, {}
        values = definitions.parsed(list(found.values()))
        return [(*key, value) for key, value in zip(found, values, strict=True)]

    def batches(self) -> dict[int, list[Batch]]:
        """Hand over the batches found at the opening, by queue id and in order, without reading messages."""
        batches, self._batches = self._batches, {}
        spilled = [queue_id for queue_id in batches if queue_id >= SPILLED]
        self.drop_spilled(spilled)
        for queue_id in spilled:
            del batches[queue_id]
        return batches

    def drop_queue(self, queue_id: int) -> None:
        """Stage the removal of a queue's content, including content not handed over yet. The id must not be used again;
        the batches may still be settled.
        """
        self._batches.pop(queue_id, None)
        super().drop_queue(queue_id)

    # --- losses and streams ---

    def keep_losses(self) -> None:
        """Write losses found since the last call to the file of losses, for later runs. Call regularly."""
        self.losses.remind()
        if (found := self.losses.take_unkept()) is not None:
            self._background.run(lambda: losses.write(self._directory, found), self._on_losses_kept)

    def _on_losses_kept(self, result: Any) -> None:
        if isinstance(result, Exception):
            log.warning("cannot write %s: %s", self._directory / losses.FILE_NAME, result)
            self.losses.keep_again()
            return
        # Only now: until the file had the losses, the log had the only records of them.
        for loss in self._recorded_losses:
            self.delete(kinds.LOSS, loss)
        self._recorded_losses = []

    def acknowledge_losses(self) -> None:
        """Stop reporting the known losses, and remove the lost parts of batches from the index."""
        self.losses.acknowledge()
        self.keep_losses()
        self._upkeep.forget_lost(self._lost)
        self._lost = {}

    def bound_stream(self, log: StreamLog) -> None:
        """Stage a record of a stream's content, for a new stream or for files from another home. Appended messages
        need no call: they are in the log, and enter the index automatically.
        """
        self.put_text(kinds.STREAM, str(log.number), log.bounds.encode())

    def retain_stream(self, log: StreamLog) -> None:
        """Stage a record of the lowest offset that a stream's retention has left."""
        self.put_text(kinds.STREAM_FLOOR, str(log.number), str(log.first))

    def put_source(self, number: int, source: StreamOrigin | None) -> None:
        """Stage the origin of a stream's files; None removes the record."""
        if source is None:
            self.delete(kinds.STREAM_SOURCE, str(number))
        else:
            self.put_text(kinds.STREAM_SOURCE, str(number), source.encode())

    def sync_stream(self, log: StreamLog) -> None:
        """Record possibly unsynced files of a stream. They are synced before the index covers the log's copy."""
        self._upkeep.note_streamed(log)

    def streams_opened(self) -> None:
        """Note that all streams with a definition are open: the index may be written from now on."""
        self._upkeep.forget_unopened()

    def drop_stream(self, log: StreamLog) -> None:
        """Stage the removal of a stream."""
        self.delete(kinds.STREAM, str(log.number))
        self.delete(kinds.STREAM_FLOOR, str(log.number))
        self.drop_queue(log.number)
        self._upkeep.forget_stream(log)

    # --- committing ---

    def flush(self, *, settlements: bool = True, waiting: bool = True, begin: bool = True) -> int:
        """End a turn, and have everything staged committed as soon as the disk is free.

        Args:
            settlements: True if settlements alone are reason enough for a commit.
            waiting: True if a caller waits for the commit. Otherwise the commit is delayed until it is large enough, or
                until the next flush with ``waiting``: messages settled by then are never written.
            begin: True to begin the commit at once; otherwise the caller must call :meth:`begin` soon.

        Returns:
            The receipt of all staged changes; an earlier receipt if nothing is staged.
        """
        receipt = self.request(settlements=settlements, waiting=waiting)
        if begin:
            self.begin()
        return receipt

    @property
    def error(self) -> StoreError | None:
        """Error of the last commit attempt; None without an error."""
        return self._pipeline.error

    @property
    def is_writing(self) -> bool:
        """True while a disk operation awaited by commits is outstanding."""
        return self._pipeline.is_writing

    @property
    def is_incomplete(self) -> bool:
        """True if stored commits are not complete: their copies have not answered."""
        return self._pipeline.is_incomplete

    @property
    def hung_for(self) -> float:
        """Seconds for which the disk has not answered, in a home with copies; 0 without copies."""
        return self._writer.hung_for

    @property
    def begins(self) -> bool:
        """True if :meth:`begin` would begin a commit."""
        return self._pipeline.begins

    @property
    def last_commit(self) -> CompleteCommit:
        """Number of the last complete commit, counted over all openings."""
        return self._pipeline.last_complete

    def keep_from(self, segment: int) -> None:
        """Keep segments from a number on, consumed or not, for followers, until a call with a higher number."""
        self._upkeep.keep_from(segment, self._pipeline.last_complete)

    @property
    def lineage(self) -> tuple[Stretch, ...]:
        """Segments of the log in order, with the ends of their last commits on disk. Consumed segments may be
        missing.
        """
        return tuple(Stretch(one.number, one.epoch, one.salt, one.end) for one in list(self._log.segments.values()))

    def begin(self, *, here: bool = False) -> None:
        """Begin the next commit, if wanted and unobstructed: see :meth:`Pipeline.begin`."""
        self._pipeline.begin(here=here)

    def make_room(self) -> None:
        """Free room on a nearly full disk: see :meth:`Pipeline.make_room`. Call regularly while the disk is short."""
        self._pipeline.make_room()

    def index_definitions(self) -> None:
        """Move many definitions into the index once no more arrive: see :meth:`Pipeline.index_definitions`. Call
        regularly.
        """
        self._pipeline.index_definitions()

    def fileno(self) -> int:
        """Return a descriptor that is readable when :meth:`completed` has work."""
        return self._writer.fileno()

    def completed(self) -> None:
        """Process finished work, report completions, and begin waiting work."""
        # In this order: moved parts and new segments are in place before the next commit begins.
        self._pipeline.go_on()
        self._background.deliver()
        self._reading.deliver()
        self._segments.deliver()
        self._pipeline.begin_again()

    def complete(self) -> None:
        """Like :meth:`completed`, only for stored commits that have become complete."""
        self._pipeline.complete()
        self._pipeline.begin_again()

    def wait(self, receipt: int) -> None:
        """Block everything else until the given receipt is complete.

        Raises:
            StoreError: a commit failed.
        """
        while self.committed < receipt:
            select.select([self.fileno()], [], [])
            self.completed()
            if self.error is not None:
                raise self.error

    # --- reading ---

    def name_queues(self, queue_name: Callable[[int], str]) -> None:
        """Set the names of queues for reports of damage."""
        self._reader.name_queues(queue_name)

    def read(self, batch: Batch, first: int | None = None, last: int | None = None) -> list[Message]:
        """Return unsettled messages of a batch, in order: see :meth:`BatchContents.read`. Callable from any thread."""
        return self._contents.read(batch, first, last)

    def layouts(self, batch: Batch, first: int, last: int) -> list[Layout] | None:
        """Return messages of a batch as columns: see :meth:`BatchContents.layouts`."""
        return self._contents.layouts(batch, first, last)

    def may_expire(self, batch: Batch, first: int, last: int) -> bool:
        """Return False if no message expires: see :meth:`BlockReader.may_expire`."""
        return self._reader.may_expire(batch, first, last)

    def prefetching(self, ranges: list[tuple[Batch, int, int]]) -> Callable[[], None]:
        """Return a function that requests messages for the system's page cache. The function is for any thread, and
        may wait for the disk.

        Args:
            ranges: batch, first and last number.
        """
        return partial(self._reader.prefetch, self._reader.spans(ranges))

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], Any]
    ) -> None:
        """Like :meth:`read`, in a background thread: see :meth:`BatchContents.read_soon`."""
        self._contents.read_soon(ranges, then)

    def is_unread(self, batch: Batch) -> bool:
        """Return True if part of a batch was left out because of a read error: see :meth:`BatchContents.is_unread`."""
        return self._contents.is_unread(batch)

    def arrow(self, batch: Batch) -> pa.RecordBatch:
        """Return all messages of a batch as Arrow columns: see :meth:`BatchContents.arrow`. Callable from any
        thread.
        """
        return self._contents.arrow(batch)

    # --- the end ---

    def close(self, *, clean: bool = True) -> None:
        """Commit all staged changes, and release the directory.

        Args:
            clean: True to mark the stop as clean: all deliveries are recorded, for the next opening.

        Raises:
            StoreError: the last commit failed; the store is then as after a crash.
        """
        self.is_closing = True
        self.keep_losses()
        self.end_turn()
        # The commits come before the index, which must not get changes that the log lacks.
        last = self._pipeline.close(clean=clean)
        self._reading.close(deliver=False)
        # The thread that writes the index ends before the last update is written here.
        self._background.close()
        self._upkeep.close(last)
        self._reserve.release()
        self._writer.close()
        self._log.end()
        self._log.close()
        # Last: from here on another process may open the directory.
        self._lock.release()
        if self.error is not None:
            raise self.error


def _read_losses(directory: Path) -> list[tuple[str, float]]:
    """Return the recorded losses; nothing if the file cannot be read, because a start must not fail for that."""
    try:
        return losses.read(directory)
    except OSError as error:
        log.warning("cannot read %s: %s; the losses will be found again", directory / losses.FILE_NAME, error)
        return []


def _take(definitions: dict[tuple[str, str], str], kind: str) -> list[tuple[str, str]]:
    """Take the records of a kind out of definitions, as (key, JSON text)."""
    return [(key, definitions.pop((kind, key))) for one, key in list(definitions) if one == kind]
