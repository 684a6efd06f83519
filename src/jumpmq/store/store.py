"""The store: what the broker must not lose, in a log of which everything else can be made again.

How it works. The broker's thread stages work: definitions, messages, what was settled. ``flush`` ends a turn; what the
turn staged and settled belongs together, and one commit will hold all of it. A commit is cut when the last one is on
disk: one frame with what all queues had, appended to the log and synced by a thread that does nothing else. Then
``on_commit`` is called, and the broker confirms what it covers. The more publishers there are, the more messages share
a commit: that is where the speed comes from.

The log is the store: replaying it gives the exact state. Now and then an index is written (SQLite), so that a start
reads only what came after. Segments of the log in which nothing lives go, and what is left of one that is mostly dead
is rewritten. A message that is settled before it was written never reaches the disk.
"""

from __future__ import annotations

import json
import logging
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store import losses, opening, schema, stream_bounds
from jumpmq.store.background import Background
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Changes, Definitions
from jumpmq.store.commits import Prepared, prepare, preparing
from jumpmq.store.contents import Contents
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.index import Index
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.log import DIRECTORY, Log, segment_bytes_on
from jumpmq.store.losses import Losses
from jumpmq.store.reader import Reader
from jumpmq.store.records import GATHER
from jumpmq.store.recovery import Recovery
from jumpmq.store.reserve import Reserve
from jumpmq.store.stream_bounds import Bounds
from jumpmq.store.upkeep import SPARSE, Moves, Upkeep
from jumpmq.store.writer import NO_ROOM, WRITTEN, Result, Writer

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_BYTES = 8 << 20
"""Octets of bodies after which turns go into another commit: more would hold up the broker's thread."""

LARGE_BODY = 64 << 10
"""Octets of a body, on average, from which on the broker's thread has next to nothing to do for a commit."""

LARGE_COMMIT_FACTOR = 4
"""How many times as much such a commit may hold: the disk takes 32 MB at once 1.5 times as fast as four times 8."""

COMMIT_MESSAGES = 1 << 15
"""Messages after which they do."""

COMMIT_DEFINITIONS = 1 << 12
"""Changes of definitions after which they do."""

LINGER_BYTES = 32 << 20
"""Octets of bodies up to which turns without confirms are put off, unless told otherwise."""

COPIED_BYTES = 16 << 20
"""Octets of small bodies after which they do: the broker's thread copies them side by side."""

RETRY_INTERVAL = 1.0
"""Seconds between attempts of a commit that fails."""

SPILLED = 1 << 62
"""From here on the numbers of queues are made up, for messages that are here only for want of memory."""

log = logging.getLogger(__name__)


class Store:
    """An open store, held by this process alone.

    All methods are for one thread, the broker's, but ``read`` and ``arrow``, which any thread may call. The owner
    calls :meth:`completed` when :meth:`fileno` is readable.

    Attributes:
        clean: whether the last stop was clean: every settlement was noted. If not, some messages may come again.
        whole: whether all definitions could be read.
        committed: the last receipt that is on disk, and with it all lower ones.
        error: why the last attempt of a commit failed; None while all is well.
        stream_bounds: what was noted of streams' files, by the stream's number; see :meth:`bound_stream`.
        losses: what is missing, and not acknowledged; see :meth:`keep_losses`.
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
        on_commit: Callable[[int], None],
        on_error: Callable[[StoreError], None],
    ) -> None:
        self.losses = Losses()
        self.losses.restore((loss, json.loads(text)) for loss, text in _take(found.definitions, losses.KIND))
        self.stream_bounds = {
            int(number): Bounds.decode(text) for number, text in _take(found.definitions, stream_bounds.KIND)
        }
        for loss in found.losses:
            self.losses.add(loss)
        self.clean = found.clean
        self.whole = found.whole
        self.committed = 0
        self.error: StoreError | None = None
        self._directory = directory
        self._lock = lock
        self._on_commit = on_commit
        self._on_error = on_error
        self._found = found
        self._noted = noted
        self._turn = Changes(0)
        self._next = Changes(1)
        self._sealed: deque[Changes] = deque()
        self._commit_bytes = commit_bytes
        self._linger_bytes = linger_bytes
        self._moves: Moves = []
        self._requested = False
        self._writing: Prepared | None = None
        self._preparing: Iterator[None] | None = None
        self._retry_at: float | None = None
        self._full = False
        self._growing: dict[int, Batch] = {}
        self._next_spill = SPILLED
        self._number = found.last_commit
        self._log = Log(directory / DIRECTORY, files, segment_bytes)
        self._log.adopt(found.segments, after=max(found.highest_segment, found.replayed_from - 1))
        self._reserve = Reserve(directory / DIRECTORY, files)
        self._reader = Reader(self._log, on_loss=self.losses.add)
        self._writer = Writer(files)
        self._background = Background("jumpmq-background", self._writer.wake)
        self._reading = Background("jumpmq-reading", self._writer.wake)
        self._contents = Contents(self._reader, self._reading, self._log.directory)
        self._segments = Background("jumpmq-segments", self._writer.wake)
        self._turning = False
        self._make_room_at = 0.0
        self._held = 0
        self._streamed = 0  # the last commit of the streams that is on disk
        self._leaves_out = False  # whether the last commit lacks settlements that the batches have: no index may say so
        self._upkeep = Upkeep(
            self._log,
            Index(directory / schema.FILE_NAME, files.noted),
            self._reader,
            self._background,
            indexed=found.replayed_from,
            on_moves=self._move,
        )
        self._upkeep.adopt(found)
        self._lost = found.lost
        self.keep_losses()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        on_commit: Callable[[int], None],
        on_error: Callable[[StoreError], None] = lambda error: None,
        files: Files | None = None,
        segment_bytes: int | None = None,
        commit_bytes: int = COMMIT_BYTES,
        linger_bytes: int = LINGER_BYTES,
    ) -> Store:
        """Open the store in ``directory``; what is missing of it is made.

        Args:
            directory: the broker's data directory.
            on_commit: called by :meth:`completed` with the receipt of a commit that is on disk; it covers all lower
                ones too.
            on_error: called each time a commit fails. Nothing is lost: the store tries again every second, and the next
                ``on_commit`` says that the trouble is over.
            files: the file calls to use.
            segment_bytes: octets after which the log goes on in another file; unless given, what fits the disk.
            commit_bytes: octets of bodies after which turns go into another commit.
            linger_bytes: octets of bodies up to which turns without confirms are put off.

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
            opening.create(directory)
            linger_bytes = max(linger_bytes, commit_bytes)
            if segment_bytes is None:
                segment_bytes = segment_bytes_on(directory)
            return cls(
                directory, lock, found, noted, files, segment_bytes, commit_bytes, linger_bytes, on_commit, on_error
            )
        except BaseException:
            lock.release()
            raise

    # --- what there is ---

    @property
    def staged_bytes(self) -> int:
        """Octets of messages that are staged or being written, and not yet on disk."""
        waiting = self._turn.octets + self._next.octets
        for changes in self._sealed:
            waiting += changes.octets
        if self._writing is not None and self._writing.changes.receipt > self.committed:
            waiting += self._writing.changes.octets
        return waiting

    @property
    def staging(self) -> bool:
        """Whether anything was staged or settled since the last flush."""
        return bool(self._noted or self._turn)

    @property
    def dirty(self) -> bool:
        """Whether a flush would write anything, if only which messages were settled."""
        return bool(self._turn or self._next or self._sealed or self._noted)

    def _waiting(self) -> tuple[Changes, ...]:
        """All that is staged and not being written, in order."""
        return (*self._sealed, self._next, self._turn)

    def definitions(self) -> list[tuple[str, str, Any]]:
        """Hand over the definitions found at the opening, as (kind, key, value), in the order of first insertion."""
        definitions, self._found.definitions = self._found.definitions, {}
        return [(*key, json.loads(value)) for key, value in definitions.items()]

    def batches(self) -> dict[int, list[Batch]]:
        """Hand over the batches found at the opening, by queue id and in order; their messages are not read."""
        batches, self._found.queues = self._found.queues, {}
        for queue_id in [queue_id for queue_id in batches if queue_id >= SPILLED]:
            self._next_spill = max(self._next_spill, queue_id)
            self.drop_queue(queue_id)
            del batches[queue_id]
        return batches

    # --- staging ---

    def put(self, kind: str, key: str, value: Any) -> None:
        """Stage a definition, new or changed; the value is taken as it is now.

        Raises:
            TypeError, ValueError: JSON cannot hold the value, or UTF-8 the key.
        """
        key.encode()
        self._turn.definitions.put[kind, key] = json.dumps(value, separators=(",", ":"))

    def put_text(self, kind: str, key: str, value: str) -> None:
        """As :meth:`put`, with a value that is JSON text already."""
        self._turn.definitions.put[kind, key] = value

    def delete(self, kind: str, key: str) -> None:
        """Stage the removal of a definition; one that is not there is no error."""
        self._turn.definitions.delete((kind, key))

    def change(self, definitions: Definitions) -> None:
        """Stage many changes of definitions, which are laid out already; they belong to the store from then on."""
        self._turn.definitions.absorb(definitions)

    def append(self, queue_id: int, messages: list[Message]) -> None:
        """Stage messages, by ascending ``seq``, at the end of a queue; sets their ``batch``.

        A message's slots that the log holds (all but ``redelivered`` and what the broker hangs on) must not change from
        here on.
        """
        growing = self._growing
        while messages:
            if (batch := growing.get(queue_id)) is None:
                batch = growing[queue_id] = Batch(queue_id, self._noted.append)
            taken, octets = batch.take(messages)
            if taken:
                self._turn.stage(batch, messages[0].seq, taken, octets)
            if taken == len(messages):
                return
            del growing[queue_id]
            messages = messages[taken:]

    def spill(self, messages: list[Message]) -> None:
        """As :meth:`append`, for messages that are not persistent: this process may read them back, a start drops them.

        They need not follow what was spilled before.
        """
        self._next_spill += 1
        self.append(self._next_spill, messages)

    def drop_queue(self, queue_id: int) -> None:
        """Stage the removal of all that a queue has. Its id is not used again, its batches may still be settled."""
        self._growing.pop(queue_id, None)
        self._turn.drop(queue_id)

    def keep_losses(self) -> None:
        """Stage a record of what was found missing since the last call, so that later runs know of it too. To be called
        now and then."""
        self.losses.remind()
        for loss, found_at in self.losses.take_unkept():
            self.put(losses.KIND, loss, found_at)

    def acknowledge_losses(self) -> None:
        """Stage that what is missing is no longer told of."""
        acknowledged, forgotten = self.losses.acknowledge()
        for loss, found_at in acknowledged.items():
            self.put(losses.KIND, loss, -found_at)
        for loss in forgotten:
            self.delete(losses.KIND, loss)
        self._upkeep.forget_lost(self._lost)
        self._lost = {}

    def bound_stream(self, number: int, bounds: Bounds) -> None:
        """Stage what is on disk of a stream."""
        self.put_text(stream_bounds.KIND, str(number), bounds.encode())

    def drop_stream(self, number: int) -> None:
        """Stage that a stream is gone."""
        self.delete(stream_bounds.KIND, str(number))

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
        self._end_turn()
        changes = self._next
        receipt = changes.receipt
        if not (changes if settlements else changes.pressing):
            receipt -= 1
        elif waiting or _is_much(changes, self._linger_bytes):
            self._requested = True
        if begin:
            self.begin()
        return receipt

    def part(self) -> None:
        """What is staged from now on belongs to another turn than what was settled until now, and the other way round,
        though both end with the next flush."""
        self._settle_noted()
        self._turn.parted = self._turn.count

    def hold(self) -> None:
        """What is staged and settled from now on goes into one commit, which begins after :meth:`release`: it belongs
        together, over several turns."""
        self._held += 1

    def release(self) -> None:
        """All is staged and settled that belongs together."""
        self._end_turn()
        self._held -= 1

    def follow_streams(self, number: int) -> None:
        """What was staged and settled up to now goes to disk after this commit of the streams: messages that were
        settled must not be gone where what came of them is not there."""
        if number > self._streamed:
            self._next.streams = number

    def streams_committed(self, number: int) -> None:
        """The commits of the streams up to this one are on disk."""
        self._streamed = number

    @property
    def _follows(self) -> bool:
        """Whether what is staged waits for a commit of the streams."""
        return self._next.streams > self._streamed

    def relieve(self) -> None:
        """While the streams cannot be written, note what makes room and depends on nothing that waits for them. To be
        called now and then."""
        waits = self._writing is not None or self._retry_at is not None or self._turning or self._sealed
        if self._follows and not waits and not self._held and (relief := self._next.without_staged()):
            self._write(prepare(relief, relief=True))

    @property
    def is_held(self) -> bool:
        """Whether commits wait for :meth:`release`."""
        return self._held > 0

    @property
    def is_writing(self) -> bool:
        """Whether the disk has not answered yet to something that commits wait for."""
        return self._writer.is_working or (self._turning and self._segments.is_working)

    @property
    def begins(self) -> bool:
        """Whether :meth:`begin` would begin a commit."""
        waits = self._writing is not None or self._retry_at is not None or self._turning
        return not waits and (bool(self._sealed) or (self._requested and not self._held and not self._follows))

    def begin(self, *, here: bool = False) -> None:
        """Begin the next commit, if one is wanted and nothing is in its way.

        Args:
            here: whether this thread may do it, as no client waits for it: a small commit on a quick disk, that is.
        """
        if self._writing is not None or self._retry_at is not None or self._turning:
            return
        if self._sealed:
            self._prepare(self._sealed.popleft())
        elif self._requested and not self._held and not self._follows:
            changes, self._next = self._next, Changes(self._next.receipt + 1)
            self._requested = False
            self._prepare(changes, here)

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`completed` has something to do."""
        return self._writer.fileno()

    def completed(self) -> None:
        """Take note of what was finished since, tell of it, and begin what waits for that."""
        for result in self._writer.results():
            self._conclude(result)
        if self._preparing is not None:
            self._prepare_on()
        self._background.deliver()
        self._reading.deliver()
        self._segments.deliver()
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._retry()
        else:
            self.begin()

    def wait(self, receipt: int) -> None:
        """Let nothing else happen until that receipt is on disk.

        Raises:
            StoreError: a commit failed.
        """
        while self.committed < receipt:
            select.select([self.fileno()], [], [])
            self.completed()
            if self.error is not None:
                raise self.error

    def _end_turn(self) -> None:
        self._settle_noted()
        turn = self._turn
        if turn:
            turn.receipt = self._next.receipt
            if turn.definitions.put and (turn.count or self._held):
                turn.kept_with.update(turn.definitions.put)
            if turn.dropped:
                self._discard(turn)
            if self._next.untouched:
                self._turn, self._next = self._next, turn
            else:
                self._next.absorb(turn)
                self._turn = Changes(0)
            if turn.settles:
                self._next.leave_out(turn)
            waits = self.error is not None or self._held or self._follows
            if not waits and _is_much(self._next, self._most_octets()):
                self._sealed.append(self._next)
                self._next = Changes(self._next.receipt + 1)
        if self._moves:
            self._stage_moves()

    def _settle_noted(self) -> None:
        if self._noted:
            self._turn.settle(self._noted, bound=bool(self._held))
            self._noted.clear()

    def _most_octets(self) -> int:
        """Octets of bodies after which turns go into another commit."""
        if not self._requested:
            return self._linger_bytes
        return self._commit_bytes * (LARGE_COMMIT_FACTOR if self._next.octets >= LARGE_BODY * self._next.count else 1)

    def _discard(self, turn: Changes) -> None:
        """Forget what was to be written of the queues that the turn dropped, but for what goes into earlier commits: a
        crash between these and the drop must find it."""
        for queue_id in turn.dropped:
            self._next.discard(queue_id)
        earlier = [changes.staged for changes in self._sealed]
        if self._writing is not None:
            earlier.append(self._writing.changes.staged)
        for batch in turn.discarded | self._next.discarded:
            if batch.messages is not None:
                batch.messages = batch.messages[: sum(staged.get(batch, 0) for staged in earlier)] or None

    def _prepare(self, changes: Changes, here: bool = False) -> None:
        """Have changes laid out and written: at once, but where :meth:`hold` let them become far more than others."""
        if changes.count <= 2 * COMMIT_MESSAGES:
            self._write(prepare(changes), here)
        else:
            self._writing = Prepared(changes)
            self._preparing = preparing(self._writing)
            self._prepare_on()

    def _prepare_on(self) -> None:
        """Lay out some more; :meth:`completed` goes on with the rest."""
        assert self._preparing is not None and self._writing is not None
        for _ in self._preparing:
            self._writer.wake()
            return
        self._preparing = None
        self._write(self._writing)

    def _write(self, prepared: Prepared, here: bool = False) -> None:
        self._writing = prepared
        if not prepared.blocks:
            self._writer.finish(WRITTEN)
            return
        try:
            if self._log.current is None:
                self._log.begin(self._number + 1)
                self._reserve.make()
        except OSError as error:
            self._writer.finish(Result(error))
            return
        segment, file = self._log.current, self._log.current_file
        assert segment is not None and file is not None
        prepared.write = prepared.place(self._number + 1, segment, file.descriptor, allocation=self._log.allocation)
        if here and self._writer.is_quick(prepared.write.commit.length):
            self._conclude(self._writer.write(prepared.write))
            self.begin()
        else:
            self._writer.submit(prepared.write)

    def _conclude(self, result: Result) -> None:
        """The commit that was being written is on disk, or not."""
        prepared = self._writing
        assert prepared is not None
        if result.error is None:
            self._on_written(prepared)
            self._writing = None
        else:
            self._writing = None
            self._on_failed(prepared, result)

    def _on_written(self, prepared: Prepared) -> None:
        """Tell of a commit, and then take note of it, while those who waited for it go on."""
        changes, upkeep = prepared.changes, self._upkeep
        if not prepared.relief:
            self.error = None
            self.committed = changes.receipt
            self._call(self._on_commit, changes.receipt)
        if prepared.write is not None:
            self._number += 1
            segment = self._log.current
            assert segment is not None
            segment.end += prepared.write.commit.length
            if prepared.write.allocate is not None:
                segment.allocated = sum(prepared.write.allocate)
            segment.zeroed = max(segment.zeroed, segment.end + prepared.write.zeros)
            for batch, block, _ in prepared.moved:
                upkeep.note_moved(segment, batch, segment.position(block.offset), block.length)
            for batch, block, first in prepared.written:
                batch.add_block(segment.position(block.offset), block.length, first)
                upkeep.note_written(segment, batch, block.length)
        for batch, count in changes.staged.items():
            batch.written(count)
        if changes.definitions:
            upkeep.note_definitions(changes.definitions)
        if changes.settles:
            self._note_settled(changes)
        for queue_id in changes.dropped:
            upkeep.drop(queue_id)
        self._keep_up()

    def _note_settled(self, changes: Changes) -> None:
        """Forget batches that are settled whole, unless the last of that is not committed yet."""
        emptied = []
        for batch, ranges in changes.settlements():
            if batch.positions:
                self._upkeep.note_settled(batch, changes.settled_before(batch, ranges).count)
            if not batch.remaining and batch.messages is None:
                emptied.append(batch)
        if not emptied:
            return
        pending = {batch for batch, _, _ in self._noted}
        for waiting in self._waiting():
            pending.update(waiting.settled, waiting.bound)
        dropped = {queue_id for waiting in self._waiting() for queue_id in waiting.dropped}
        for batch in emptied:
            if batch not in pending and batch.queue_id not in dropped:
                if self._growing.get(batch.queue_id) is batch:
                    del self._growing[batch.queue_id]
                self._upkeep.forget(batch)

    def _keep_up(self) -> None:
        """Go on in another segment where this one is full, and write the index where it is due."""
        if self._leaves_out:
            return
        segment, upkeep = self._log.current, self._upkeep
        crowded = self._full and segment is not None and not segment.batches and segment.blocks > 0
        if self._log.full or crowded:
            self._begin_segment()
        if upkeep.behind:
            upkeep.snapshot(self._next.receipt + 1)
        if upkeep.has_snapshot and (upkeep.is_due(self.committed) or not self._settles):
            upkeep.write_index()
        upkeep.look()

    @property
    def _settles(self) -> bool:
        """Whether anything that was settled or dropped is not committed yet."""
        return bool(self._noted) or any(one.settles or one.dropped for one in self._waiting())

    def make_room(self) -> None:
        """The disk is short: go on in another segment where little lives in this one, so that it can go. To be called
        now and then, as there may be nothing to commit."""
        now = time.monotonic()
        if now < self._make_room_at or self._writing is not None or self._full or self._turning:
            return
        self._make_room_at = now + RETRY_INTERVAL
        segment = self._log.current
        if segment is not None and segment.blocks > 0 and segment.live < SPARSE * segment.end:
            self._begin_segment()
        else:
            self._keep_up()

    def _begin_segment(self) -> None:
        """Have a segment made to go on in; only the next commit waits for it."""
        if not self._turning:
            self._turning = True
            opening = self._log.next_opening(self._number + 1)
            self._segments.run(lambda: self._log.make(opening), self._on_segment)

    def _on_segment(self, result: Any) -> None:
        self._turning = False
        if isinstance(result, Exception):
            return  # the one that is there takes more than it should
        before = self._log.current
        self._log.enter(*result)
        self._growing.clear()
        self._keep_up()
        if before is not None:
            self._segments.run(lambda: self._log.cut(before), lambda result: None)

    def _move(self, moves: Moves) -> None:
        """Have what is left of batches rewritten, together with all that was settled before it was read: where a
        turn is under way, when that ends."""
        self._moves = moves
        if not (self._turn or self._noted):
            self._stage_moves()

    def _stage_moves(self) -> None:
        for batch, messages in self._moves:
            if batch.remaining and batch.positions:
                self._next.moved[batch] = messages
        self._moves = []
        self._requested = bool(self._next.moved) or self._requested

    # --- when the disk fails ---

    def _on_failed(self, prepared: Prepared, result: Result) -> None:
        error = result.error
        assert error is not None
        changes = prepared.changes
        for later in (*self._sealed, self._next):
            changes.absorb(later)
        self._next = changes
        self._sealed.clear()
        for batch in changes.discarded:
            batch.messages = None
        self._full = error.errno in NO_ROOM
        if result.unsafe:
            self._log.abandon()
        if self._full:
            self._reserve.release()
        self._wait_to_retry()
        self.error = StoreError(
            f"cannot write to {self._log.directory}: {error.strerror or error}; nothing more is confirmed until that "
            "is put right"
        )
        self._call(self._on_error, self.error)

    def _wait_to_retry(self) -> None:
        self._retry_at = time.monotonic() + RETRY_INTERVAL
        self._writer.wake_after(RETRY_INTERVAL)

    def _retry(self) -> None:
        """Try again; on a full disk first what makes room."""
        self._retry_at = None
        if self._writing is not None:
            return
        if self._turning or self._held:
            self._wait_to_retry()
            return
        self._requested = bool(self._next)
        if self._full and (relief := self._next.without_staged()):
            self._write(prepare(relief, relief=True))
            self._wait_to_retry()
        else:
            self._full = not self._reserve.make()
            self.begin()

    def _call(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            callback(argument)
        except Exception:
            log.exception("a callback of the store failed")

    # --- reading ---

    def name_queues(self, queue_name: Callable[[int], str]) -> None:
        """From now on what is damaged is told with what operators call the queue of a number."""
        self._reader.queue_name = queue_name

    def read(self, batch: Batch, first: int | None = None, last: int | None = None) -> list[Message]:
        """The messages of a batch that are not settled, in order: see :meth:`Contents.read`. Any thread may call it."""
        return self._contents.read(batch, first, last)

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], Any]
    ) -> None:
        """As :meth:`read`, by a thread: see :meth:`Contents.read_soon`."""
        self._contents.read_soon(ranges, then)

    def is_unread(self, batch: Batch) -> bool:
        """Whether something of a batch was left out as the disk did not give it: see :meth:`Contents.is_unread`."""
        return self._contents.is_unread(batch)

    def arrow(self, batch: Batch) -> pa.RecordBatch:
        """All messages of a batch as Arrow columns: see :meth:`Contents.arrow`. Any thread may call it."""
        return self._contents.arrow(batch)

    # --- the end ---

    def close(self, *, clean: bool = True) -> None:
        """Commit everything, mark the stop as clean, and give the directory back. What was settled together with what
        the streams have not on disk is left out, and is there again at the next opening.

        Args:
            clean: whether to mark it so: everything that was delivered is known at the next opening.

        Raises:
            StoreError: the last commit failed; the store is then as after a crash.
        """
        self.keep_losses()
        self._end_turn()
        self._wait_for_writer()
        self._segments.close()
        while self._sealed and self.error is None:
            self._write(prepare(self._sealed.popleft()))
            self._wait_for_writer()
        if self._follows:
            self._next.bound.clear()
            self._leaves_out, clean = True, False
        worth = bool(self._next) or (self._log.current is not None)
        if worth:
            self._finish(clean)
        self._reading.close(deliver=False)
        self._background.close()
        self._upkeep.close(self._number if worth and clean and self.error is None else None)
        self._reserve.release()
        self._writer.close()
        self._log.end()
        self._log.close()
        self._lock.release()
        if self.error is not None:
            raise self.error

    def _finish(self, clean: bool) -> None:
        """The last commit."""
        self._retry_at, self._requested = None, False
        changes, self._next = self._next, Changes(self._next.receipt + 1)
        self._on_commit, on_commit = (lambda receipt: None), self._on_commit
        self._write(prepare(changes, final=clean))
        self._wait_for_writer()
        if self.error is None:
            self._call(on_commit, changes.receipt)

    def _wait_for_writer(self) -> None:
        while self._preparing is not None:
            self._prepare_on()
        while self._writing is not None:
            select.select([self.fileno()], [], [])
            for result in self._writer.results():
                self._conclude(result)


def _take(definitions: dict[tuple[str, str], str], kind: str) -> list[tuple[str, str]]:
    """Take the records of a kind out of definitions, as (key, JSON text)."""
    return [(key, definitions.pop((kind, key))) for one, key in list(definitions) if one == kind]


def _is_much(changes: Changes, octets: int) -> bool:
    """Whether a commit should hold no more: ``octets`` of bodies, or fewer where they have to be copied together."""
    count = changes.count
    if octets > COPIED_BYTES and changes.octets < GATHER * count:
        octets = COPIED_BYTES
    return changes.octets >= octets or count >= COMMIT_MESSAGES or len(changes.definitions) >= COMMIT_DEFINITIONS
