"""The store: the broker's durable state, in a log from which everything else can be rebuilt.

How it works. The broker's thread stages work: definitions, messages, what was settled (:mod:`jumpmq.store.staging`).
``flush`` ends a turn; what the turn staged and settled belongs together, and one commit will hold all of it. A commit
is cut when the last one is on disk: one frame with what all queues had, appended to the log and synced by a thread that
does nothing else (:mod:`jumpmq.store.pipeline`). Then ``on_commit`` is called, and the broker confirms what it covers.
The more publishers there are, the more messages share a commit: that is where the speed comes from.

The log is the store: replaying it gives the exact state. Now and then an index is written (SQLite), so that a start
reads only what came after. Segments of the log in which nothing lives go, and what is left of one that is mostly dead
is rewritten. A message that is settled before it was written never reaches the disk.
"""

from __future__ import annotations

import json
import logging
import select
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store import definitions, kinds, losses, opening, schema
from jumpmq.store.background import Background
from jumpmq.store.batch import SPILLED, Batch
from jumpmq.store.column_layout import Layout
from jumpmq.store.completion import Complete, CompleteReceipt, Completion
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
from jumpmq.store.writer import Ship, Writer

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class Store(Staging):
    """An open store, held by the current process alone.

    All methods are for one thread, the broker's, but ``read`` and ``arrow``, which any thread may call. The owner
    calls :meth:`completed` when :meth:`fileno` is readable.

    Attributes:
        clean: whether the last stop was clean: every settlement was noted. If not, some messages may come again.
        whole: whether all definitions could be read.
        streams: what was found of streams at the opening, by the stream's number.
        stream_sources: origins of imported streams at the opening, by the stream's number.
        is_copied: whether the home has copies, which have nothing but its log.
        losses: what is missing, and not acknowledged; see :meth:`keep_losses`.
        completion: tells which commits are complete.
        is_closing: whether :meth:`close` was called, perhaps by another thread.
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
        ship: Ship | None,
        completion: Completion,
        retry_interval: float,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None],
    ) -> None:
        super().__init__(noted, commit_bytes=commit_bytes, linger_bytes=linger_bytes)
        self.losses = Losses()
        recorded = _take(found.definitions, kinds.LOSS)  # by an earlier version
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
        # What was found, until it is handed over:
        self._definitions, self._batches = found.definitions, found.queues
        self._lost = (
            found.lost
        )  # what is left of batches of which something is missing, by id; until that is acknowledged
        # The parts, each with what it needs of those above it:
        self._log = Log(directory / DIRECTORY, files, segment_bytes, epoch)
        self._log.adopt(found.segments, after=max(found.highest_segment, found.replayed_from - 1))
        self._writer = Writer(files, tell, ship)
        completion.wake = self._writer.wake
        self.completion = completion
        self._reader = BlockReader(self._log, on_loss=self.losses.add)
        self._background = Background("jumpmq-background", self._writer.wake)  # the index, and what is to be moved
        self._reading = Background("jumpmq-reading", self._writer.wake)  # reads ahead
        self._segments = Background("jumpmq-segments", self._writer.wake)  # makes segments
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
        if not self.losses:  # what is missing was acknowledged, and the index not written since
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
        ship: Ship | None = None,
        completion: Completion | None = None,
        retry_interval: float = 1.0,
    ) -> Store:
        """Open the store in ``directory``; missing parts are created.

        Args:
            directory: the broker's data directory.
            on_commit: called by :meth:`completed` with the receipt of a commit that is complete; it covers all lower
                ones too.
            on_error: called each time a commit fails. Nothing is lost: the store tries again, and the next
                ``on_commit`` says that the trouble is over.
            files: the file calls to use.
            segment_bytes: octets after which the log goes on in another file; unless given, what fits the disk.
            commit_bytes: octets of bodies after which turns go into another commit.
            linger_bytes: octets of bodies up to which turns without confirms are put off.
            epoch: in which this process leads the home, below 2**32; 0 in a home without copies.
            tell: in a home with copies, a descriptor that does not block, such as a socket's; else -1. It gets the
                position behind each commit, in 8 octets as the machine has them, once the commit is written and before
                it is synced; what it does not take is left out. Commits then go through the system's cache, where
                others read them, and never through the thread of the broker. A sync that fails leaves the copies with
                what this disk may not have: :meth:`completed` raises :class:`Unsynced`, and the process is to end.
            ship: gets small commits before they are written, where the file has room for them. A write that fails then
                counts as a sync that fails.
            completion: tells which commits are complete; unless given, those on disk are.
            retry_interval: seconds between attempts of a failing commit.

        Raises:
            StoreError: the directory cannot be used, another broker uses it, or its store is not one of this version.
        """
        files = files or Files()
        lock = DirectoryLock(directory)
        try:
            opening.migrate(directory, lambda work: cls.open(work, on_commit=lambda receipt: None))
            noted: list[tuple[Batch, int, int]] = []
            found = opening.look(directory, files, noted.append)
            for warning in found.warnings:
                log.warning("%s", warning)
            # Before anything is appended: a commit behind an unsynced one would make its loss a hole.
            opening.write_tail_again(found, files)
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

    # --- what was found ---

    def definitions(self) -> list[tuple[str, str, Any]]:
        """Hand over the definitions found at the opening, as (kind, key, value), in the order of first insertion."""
        found, self._definitions = self._definitions, {}
        values = definitions.parsed(list(found.values()))
        return [(*key, value) for key, value in zip(found, values, strict=True)]

    def batches(self) -> dict[int, list[Batch]]:
        """Hand over the batches found at the opening, by queue id and in order; their messages are not read."""
        batches, self._batches = self._batches, {}
        spilled = [queue_id for queue_id in batches if queue_id >= SPILLED]
        self.drop_spilled(spilled)
        for queue_id in spilled:
            del batches[queue_id]
        return batches

    def drop_queue(self, queue_id: int) -> None:
        """Stage the removal of a queue's content, found at the opening or not. The id is not used again, the batches
        may still be settled."""
        self._batches.pop(queue_id, None)
        super().drop_queue(queue_id)

    # --- what is missing, and what is on disk of streams ---

    def keep_losses(self) -> None:
        """Write losses found since the last call to their file, for later runs. To be called at intervals."""
        self.losses.remind()
        if (found := self.losses.take_unkept()) is not None:
            self._background.run(lambda: losses.write(self._directory, found), self._on_losses_kept)

    def _on_losses_kept(self, result: Any) -> None:
        if isinstance(result, Exception):
            log.warning("cannot write %s: %s", self._directory / losses.FILE_NAME, result)
            self.losses.keep_again()
            return
        for loss in self._recorded_losses:
            self.delete(kinds.LOSS, loss)
        self._recorded_losses = []

    def acknowledge_losses(self) -> None:
        """Report the losses no longer."""
        self.losses.acknowledge()
        self.keep_losses()
        self._upkeep.forget_lost(self._lost)
        self._lost = {}

    def bound_stream(self, log: StreamLog) -> None:
        """Stage a record of a stream's content: for a new stream, or for files from a remote home. Appended messages
        are in the log, and enter the index automatically."""
        self.put_text(kinds.STREAM, str(log.number), log.bounds.encode())

    def retain_stream(self, log: StreamLog) -> None:
        """Stage a record of how much retention has left of a stream."""
        self.put_text(kinds.STREAM_FLOOR, str(log.number), str(log.first))

    def put_source(self, number: int, source: StreamOrigin | None) -> None:
        """Stage the origin of a stream's files; None for none any more."""
        if source is None:
            self.delete(kinds.STREAM_SOURCE, str(number))
        else:
            self.put_text(kinds.STREAM_SOURCE, str(number), source.encode())

    def sync_stream(self, log: StreamLog) -> None:
        """Record possibly unsynced files of a stream: to be synced before the index passes the log's copy."""
        self._upkeep.note_streamed(log)

    def streams_opened(self) -> None:
        """All streams with a definition are open: the index may be written from now on."""
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
            settlements: whether a commit is worth while if there is nothing but settlements to write.
            waiting: whether somebody waits for it. If not, it is put off until there is more, or the next flush of
                somebody who waits: what is settled by then need not be written.
            begin: whether to begin now; else the caller is to call :meth:`begin` soon.

        Returns:
            The receipt that covers all that is staged; an earlier one where nothing is.
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
    def last_commit(self) -> Complete:
        """Number of the last complete commit, counted over all openings."""
        return self._pipeline.last_complete

    def keep_from(self, segment: int) -> None:
        """Keep segments from a number on, consumed or not, until this is called with a higher one: followers need their
        octets."""
        self._upkeep.keep_from(segment, self._pipeline.last_complete)

    @property
    def lineage(self) -> tuple[Stretch, ...]:
        """Segments of the log in order, with the ends of what is on disk; consumed ones may be missing between them."""
        return tuple(Stretch(one.number, one.epoch, one.salt, one.end) for one in list(self._log.segments.values()))

    def begin(self, *, here: bool = False) -> None:
        """Begin the next commit, if wanted and unobstructed: see :meth:`Pipeline.begin`."""
        self._pipeline.begin(here=here)

    def make_room(self) -> None:
        """While the disk is short, make room: see :meth:`Pipeline.make_room`. To be called now and then."""
        self._pipeline.make_room()

    def index_definitions(self) -> None:
        """Move many definitions into the index once no more arrive: see :meth:`Pipeline.index_definitions`. To be
        called now and then."""
        self._pipeline.index_definitions()

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`completed` has something to do."""
        return self._writer.fileno()

    def completed(self) -> None:
        """Process finished work, report completions, and begin waiting work."""
        self._pipeline.go_on()
        self._background.deliver()
        self._reading.deliver()
        self._segments.deliver()
        self._pipeline.begin_again()

    def complete(self) -> None:
        """As :meth:`completed`, for commits alone that were on disk and have become complete."""
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
        self._reader.queue_name = queue_name

    def read(self, batch: Batch, first: int | None = None, last: int | None = None) -> list[Message]:
        """Return unsettled messages of a batch, in order: see :meth:`BatchContents.read`. Callable from any thread."""
        return self._contents.read(batch, first, last)

    def layout(self, batch: Batch, first: int, last: int) -> Layout | None:
        """Return messages of a batch as columns: see :meth:`BatchContents.layout`."""
        return self._contents.layout(batch, first, last)

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], Any]
    ) -> None:
        """As :meth:`read`, by a thread: see :meth:`BatchContents.read_soon`."""
        self._contents.read_soon(ranges, then)

    def is_unread(self, batch: Batch) -> bool:
        """Return True if part of a batch was left out because of a read error: see :meth:`BatchContents.is_unread`."""
        return self._contents.is_unread(batch)

    def arrow(self, batch: Batch) -> pa.RecordBatch:
        """All messages of a batch as Arrow columns: see :meth:`BatchContents.arrow`. Any thread may call it."""
        return self._contents.arrow(batch)

    # --- the end ---

    def close(self, *, clean: bool = True) -> None:
        """Commit everything, mark the stop as clean, and give the directory back.

        Args:
            clean: whether to mark it so: everything that was delivered is known at the next opening.

        Raises:
            StoreError: the last commit failed; the store is then as after a crash.
        """
        self.is_closing = True
        self.keep_losses()
        self.end_turn()
        last = self._pipeline.close(clean=clean)
        self._reading.close(deliver=False)
        self._background.close()
        self._upkeep.close(last)
        self._reserve.release()
        self._writer.close()
        self._log.end()
        self._log.close()
        self._lock.release()
        if self.error is not None:
            raise self.error


def _read_losses(directory: Path) -> list[tuple[str, float]]:
    """Return the recorded losses; a file that cannot be read holds up nothing."""
    try:
        return losses.read(directory)
    except OSError as error:
        log.warning("cannot read %s: %s; what is missing is found again", directory / losses.FILE_NAME, error)
        return []


def _take(definitions: dict[tuple[str, str], str], kind: str) -> list[tuple[str, str]]:
    """Take the records of a kind out of definitions, as (key, JSON text)."""
    return [(key, definitions.pop((kind, key))) for one, key in list(definitions) if one == kind]
