"""Recovery of a data directory's state at opening: the index, and the log behind the index.

Recovery changes no file. Only the last commit is read with its bodies, because only the last commit can be unfinished:
a commit begins after the previous commit is on disk.
"""

import json
import logging
import sys
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from jumpmq.store import definitions, index, kinds, records, schema
from jumpmq.store.batch import Batch
from jumpmq.store.errors import Damaged, StoreError
from jumpmq.store.files import Files
from jumpmq.store.log import DIRECTORY, OFFSET_BITS, LogSegment, file_name
from jumpmq.store.ranges import Ranges
from jumpmq.store.records import CHUNK_AT, DEFINITIONS, DROPPED, FRAME, MESSAGES, MOVED, SETTLED, STREAM, BlockHead
from jumpmq.store.scan import FoundCommit, OpenSegment, Place, SegmentFile, given_up, removed_before
from jumpmq.store.stream_bounds import Bounds, Known, StreamChunk
from jumpmq.store.unindexed import Unindexed

log = logging.getLogger(__name__)

_FIRST_SEQ = attrgetter("first_seq")

NAMED = 20
"""Maximum number of queues named with a loss of the log."""


class Recovery:
    """The state described by the files of a directory.

    Args:
        directory: the data directory.
        files: the file calls to use.
        note: called by the batches with each settlement.
        without_index: True to use only the existing segments of the log, and the copy of the definitions.
        before: first segment to leave out, for a copy whose log another process writes; None to read the whole log. All
            commits in earlier segments are complete, so an unfinished or damaged commit there is a loss.

    Attributes:
        definitions: JSON text by (kind, key), in order.
        queues: batches with unsettled messages by queue id, in order.
        segments: the log's files, in order.
        last_commit: number of the last commit in the log.
        tail: the last replayed commit, as (segment, offset); None if the index covers the log.
        clean: True if the last stop was clean.
        replayed_from: first segment that the index does not cover.
        highest_segment: highest number of a segment's file.
        warnings: sentences about damage, with the action taken.
        losses: sentences about missing content.
        lost: remaining parts of batches with missing blocks, by the batch's id in the index.
        whole: True if no definition is missing.
        unindexed: changes that are not in the index yet.

    Raises:
        Damaged: the index cannot be used, and must be set aside.
        StoreError: the files cannot be read, or have another version.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        note: Callable[[tuple[Batch, int, int]], object],
        *,
        without_index: bool = False,
        before: int | None = None,
    ) -> None:
        self.definitions: dict[tuple[str, str], str] = {}
        self.queues: dict[int, list[Batch]] = {}
        self.segments: list[LogSegment] = []
        self.last_commit = 0
        self.tail: tuple[LogSegment, int] | None = None
        self._gapless_from: int | None = None  # from this segment on, no segment may be missing; None if unknown
        self._stopped_at = 0  # number of the last commit, if the index was written at a clean stop; else 0
        self.clean = True
        self.replayed_from = 0
        self.warnings: list[str] = []
        self.losses: list[str] = []
        self.lost: dict[int, Batch] = {}
        self.unindexed = Unindexed()
        self.highest_segment = 0
        self._files = files
        self._note = note
        self._before = before
        self._by_id: dict[int, Batch] | None = None
        self._pieces: dict[int, list[StreamChunk]] = {}  # chunks not in the index, by stream
        self._gaps: list[Gap] = []  # missing stretches of the log
        self._has_index = self._has_copy = False
        # Queues with a batch begun after the last missing stretch; None if no stretch is missing. The first block of
        # another queue begins a new batch, because the batch's real beginning may be lost.
        self._begun: set[int] | None = None
        self._parts: set[Batch] = set()  # batches whose beginning is lost
        self.whole = True
        self._defined_from = 0
        path = directory / schema.FILE_NAME
        lost = self._read_index(path) if path.exists() and not without_index else None
        if lost is None:
            self._begun = set()
        else:
            self._has_index = True
        # The index is read first: the copy replaces only lost or older definitions of the index.
        self._read_copy(directory / definitions.FILE_NAME, lost)
        # Without an indexed segment, the log of a copy has to begin at segment 1.
        if before is not None:
            self._gapless_from = self.replayed_from or 1
        # The replay begins at the segment named by the index. Afterwards all batches are known, so that a missing
        # segment counts as a loss of the unsettled messages only.
        self._replay(directory / DIRECTORY)
        # Missing blocks shorten their batches, so the comparison comes before the registration with the segments.
        self._hold_against_files(directory / DIRECTORY)
        self._settle_accounts()
        if self.segments and not self._has_index and not without_index:
            self.warnings.append(f"{path} is missing, and is rebuilt from the log. Some messages may come again")
        # A log that begins with commit 1 has all definitions; a later beginning needs the index or the copy.
        if self.segments and self.segments[0].first_commit > 1 and not (self._has_index or self._has_copy):
            self.losses.append(
                f"{path} and {directory / definitions.FILE_NAME} are missing or damaged: definitions from before "
                f"commit {self.segments[0].first_commit} are lost"
            )

    def _read_index(self, path: Path) -> list[str]:
        """Take over the index; return the lost definitions."""
        try:
            found = index.read(path, self._note)
        except StoreError as error:
            # Next to a log of this version, a header of another format or version means damage.
            if not isinstance(error, Damaged) and _is_ours(path.with_name(DIRECTORY)):
                raise schema.damaged(path, "its header") from error
            raise
        self.definitions, self.queues = found.definitions, index.restored_order(found.batches)
        self.replayed_from = self._defined_from = found.segment
        # 0 in a new index, which says nothing about the beginning of the log.
        self._gapless_from = found.segment or None
        self.last_commit = self._stopped_at = found.commit
        self.warnings += found.warnings
        return found.lost

    def _read_copy(self, path: Path, lost: list[str] | None) -> None:
        """Take the definitions from the copy if the index is damaged, outdated or missing."""
        try:
            copy = definitions.look(path)
            self._has_copy = copy is not None and copy.whole
            if copy is not None and not copy.whole:
                self.warnings.append(f"{path}, the copy of the definitions, is damaged")
            # A damaged copy replaces a missing index only: the definitions of a readable index are kept, even with
            # losses.
            if copy is None or (lost is not None and not copy.whole):
                self.whole = lost == []
                self.losses += lost or []
            elif lost != [] or copy.segment > self._defined_from:
                self._take_copy(copy)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}; correct the cause") from error

    def _take_copy(self, copy: definitions.ScannedFile) -> None:
        before, self.definitions = self.definitions, copy.definitions()
        # The index still has the former definitions: its next update writes the differences.
        self.unindexed.definitions.removed = before.keys() - self.definitions.keys()
        self.unindexed.definitions.put = {key: one for key, one in self.definitions.items() if before.get(key) != one}
        if self._defined_from < copy.segment:
            if self._gapless_from is not None:
                self.warnings.append(f"the index is older than {copy.path}. Some messages may come again")
            # Segments between the index's and the copy's may have been removed as consumed: a missing segment proves no
            # loss.
            self._defined_from, self._gapless_from = copy.segment, None
        self.whole = copy.whole

    # --- the log ---

    def _replay(self, directory: Path) -> None:
        paths = sorted(directory.glob("*.log")) if directory.exists() else []
        if self._before is not None:
            paths = [path for path in paths if int(path.stem) <= self._before]
        opened = [(path, self._open(path)) for path in paths]
        known = sorted(((path, file) for path, file in opened if file is not None), key=_number)
        # The numbers of files with a damaged opening count too, so that no new segment reuses such a number.
        numbers = [int(path.stem) for path in paths if path.stem.isdigit()] + [_number(one) for one in known]
        self.highest_segment = max(numbers, default=0)
        synced = removed_before([_number(one) for one in known])
        last = next((place for place in reversed(range(len(known))) if known[place][1].has_commits), 0)
        for place, (path, file) in enumerate(known):
            assert file.opening is not None
            segment = LogSegment(path, file.opening)
            segment.end = segment.allocated = file.size
            if self.segments and self.segments[-1].number == segment.number:
                self.warnings.append(f"{path} is a copy of {self.segments[-1].path}, and is left out")
                continue
            self._miss_before(segment)
            # The segment `before` is not replayed. Its opening only shows whether commits in front of it are missing.
            if self._before is not None and segment.number >= self._before:
                break
            self.segments.append(segment)
            # Without a clean stop the index names no last commit, so the last segment is read for the number at least.
            is_last = place >= last  # later files exist, but have no commits
            if segment.number >= self.replayed_from or (is_last and not self.last_commit):
                following = (one for _, one in known[place + 1 :])
                # In a copy no commit counts as unfinished: all commits before the limit are complete, and damage is a
                # loss.
                limit = given_up(following, synced) if self._before is None else sys.maxsize
                self._replay_segment(segment, file, limit)
        for _, file in known:
            file.close()
        # The index names an existing segment to continue with. Only after a clean stop, the next start creates it.
        start = self._gapless_from
        if start is not None and start > self.highest_segment and not self._stopped_at:
            path = directory / file_name(start)
            self._miss(f"{path}, the last file of the log, is missing, with all its commits")
            self.highest_segment = start

    def _miss_before(self, segment: LogSegment) -> None:
        """Record the commits missing between the replayed log and a segment."""
        start = self._gapless_from
        if start is None or segment.number < start:
            return
        if self._stopped_at or any(one.number >= start for one in self.segments):
            if segment.first_commit > self.last_commit + 1:
                before = self.segments[-1].path if self.segments else "its beginning"
                commits = f"commits {self.last_commit + 1} to {segment.first_commit - 1}"
                self._miss(f"{commits} of the log are missing, between {before} and {segment.path}")
        elif segment.number > start:
            path = segment.path.with_name(file_name(start))
            self._miss(f"{path} is missing, with all commits up to {segment.first_commit - 1}")

    def _miss(self, what: str) -> None:
        """Record a missing part of the log; later records tell which messages are missing."""
        self.whole = False
        self._begun = set()
        self._gaps.append(Gap(what, {queue: batches[-1].last_seq for queue, batches in self.queues.items()}))

    def _open(self, path: Path) -> OpenSegment | None:
        try:
            file = OpenSegment(self._files, path)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}; correct the cause") from error
        if file.opening is None:
            if not file.is_blank:  # else the power or the disk failed while the file was made
                self.whole = False
                self.losses.append(f"{path} is damaged at its beginning; the whole file is unusable")
            file.close()
            return None
        return file

    def _replay_segment(self, segment: LogSegment, file: SegmentFile, limit: int | None) -> None:
        """Apply a segment's commits.

        Args:
            limit: number of the first abandoned commit: later segments have commits with the same numbers. None in the
                last segment, where the last commit may be unfinished.
        """
        applies = segment.number >= self.replayed_from
        waiting: FoundCommit | None = None
        segment.end = records.OPENING_SIZE
        # A segment without commits still tells the number of the last commit before it.
        self.last_commit = max(self.last_commit, segment.first_commit - 1)
        for found in file.commits():
            if limit is not None and found.number >= limit:
                break
            # One commit behind: only the end of the file shows which commit is the last, and only the last one is
            # verified.
            if waiting is not None:
                self._take(segment, file, waiting, applies)
            waiting = found
        if waiting is None:
            # The segment was begun after the last recorded stop, so that stop no longer counts as clean.
            self.clean = False
        elif limit is None and not waiting.damaged and not file.is_whole(waiting):
            self.warnings.append(
                f"{segment.path}: commit {waiting.number} at octet {waiting.offset} is unfinished or damaged, and is "
                "left out"
            )
            return
        else:
            self._take(segment, file, waiting, applies)
        if limit is None and applies and any(file.octets(segment.end, FRAME.size)):
            self.warnings.append(
                f"{segment.path}: the octets behind commit {self.last_commit}, from octet {segment.end} on, are an "
                "unfinished or damaged commit, and are left out"
            )

    def _take(self, segment: LogSegment, file: SegmentFile, found: FoundCommit, applies: bool) -> None:
        segment.end = found.end
        segment.blocks += len(found.blocks)
        if applies and (found.damaged or (self._before is not None and not file.is_whole(found))):
            self._miss(
                f"{segment.path} is damaged between octets {found.offset} and {found.end}: {len(found.blocks)} "
                "undamaged parts are used, the others are left out"
            )
        self.last_commit, self.tail = found.number, (segment, found.offset)
        self.clean = bool(found.blocks) and found.blocks[-1].head.kind == records.CLEAN
        if applies:
            for place in found.blocks:
                self._apply(segment, file, place)

    def _apply(self, segment: LogSegment, file: SegmentFile, place: Place) -> None:
        kind = place.head.kind
        if kind in (MESSAGES, MOVED):
            self._apply_messages(segment, file, place)
        elif kind == STREAM:
            self._apply_chunk(segment, file, place)
        # Definitions in earlier segments are older than those of the index or of the copy.
        elif kind in (SETTLED, DROPPED) or (kind == DEFINITIONS and segment.number >= self._defined_from):
            octets = file.block(place)
            if octets is None:
                self.whole = self.whole and kind != DEFINITIONS
                self.losses.append(f"{segment.path} is damaged at octet {place.offset}: {_LOST[kind]}")
                return
            content = octets[records.BLOCK.size : records.BLOCK.size + place.head.length]
            _APPLY[kind](self, content)

    def _apply_chunk(self, segment: LogSegment, file: SegmentFile, place: Place) -> None:
        head = place.head
        at = CHUNK_AT.unpack(file.octets(place.offset + records.BLOCK.size, CHUNK_AT.size))
        # The location only: the octets are written to the stream's file when the stream is opened.
        piece = StreamChunk(
            segment.path, place.offset, head.extent, segment.salt, head.first, head.first + head.rows, *at
        )
        self._pieces.setdefault(head.queue, []).append(piece)

    def streams(self) -> dict[int, Known]:
        """Return the known state of streams, by stream number."""
        found = {
            int(key): Bounds.decode(text) for (kind, key), text in self.definitions.items() if kind == kinds.STREAM
        }
        for number, bounds in found.items():
            was_given = self.clean and not bounds.end and number not in self._pieces  # files added while stopped
            if self._gaps or was_given:  # the streams' files may have more messages than log and index
                found[number] = bounds._replace(is_exact=False)
        nothing = Bounds(0, 0, 0, 0, 0)
        floors = {int(key): int(text) for (kind, key), text in self.definitions.items() if kind == kinds.STREAM_FLOOR}
        numbers = found.keys() | self._pieces.keys()
        return {one: Known(found.get(one, nothing), self._pieces.get(one, ()), floors.get(one, 0)) for one in numbers}

    def _apply_messages(self, segment: LogSegment, file: SegmentFile, place: Place) -> None:
        head, position = place.head, segment.position(place.offset)
        start = place.offset + records.BLOCK.size
        last = head.first + head.rows - 1
        batch: Batch | None
        if head.kind == MOVED:
            id = int.from_bytes(file.octets(start, 8), "little", signed=True)  # possibly damaged
            batch = self._batch(id)
            if batch is not None:
                batch.move(position, head.extent, head.first)
                self.unindexed.new[batch] = None
                return
            # The former blocks are unknown: the moved block begins the batch, and has all remaining messages.
            start += 8
        if head.flags & records.GAPS:
            last = int.from_bytes(file.octets(start, 8), "little")
        # Moved messages have old numbers, which say nothing about a gap.
        if head.kind == MESSAGES and self._gaps:
            self._gaps[-1].follow(head.queue, head.first)
        batches = self.queues.setdefault(head.queue, [])
        continues = head.kind == MESSAGES and batches and not head.flags & records.NEW
        if continues and batches[-1].positions[-1] >= position:
            return  # the index already has this block: the index may cover more than the segment that it names
        if head.kind == MOVED:
            self._supersede(batches, head.first, last)
        lost = self._begun is not None and head.queue not in self._begun
        if head.flags & records.NEW or not batches or head.kind == MOVED or lost:
            batch = Batch(head.queue, self._note)
            batch.first_seq = head.first
            # A moved batch may be older than batches already found.
            if batches and batches[-1].first_seq > head.first:
                insort(batches, batch, key=_FIRST_SEQ)
            else:
                batches.append(batch)
            if head.kind == MESSAGES and not head.flags & records.NEW:
                self._parts.add(batch)
            if head.kind == MESSAGES and self._begun is not None:
                self._begun.add(head.queue)
        else:
            batch = batches[-1]
            # The segments of the settled blocks may be removed: the batch restarts without the locations of these
            # blocks.
            if batch.remaining <= 0:
                batch.begin_again(head.first)
                self.unindexed.changed[batch] = None
        self._extend(batch, position, head, last)
        if head.kind == MOVED:  # keep the former id: a later move names the batch by this id
            batch.id = id
            assert self._by_id is not None
            self._by_id[id] = batch

    def _supersede(self, batches: list[Batch], first: int, last: int) -> None:
        """Forget parts of a batch whose beginning was removed with its segment: the moved block has all remaining
        messages.
        """
        parts = [batch for batch in batches if batch.first_seq <= last and batch.last_seq >= first]
        for part in self._parts.intersection(parts):
            batches.remove(part)
            self.unindexed.forget(part)

    def _extend(self, batch: Batch, position: int, head: BlockHead, last: int) -> None:
        batch.add_block(position, head.extent, head.first)
        batch.last_seq = last
        batch.count += head.rows
        batch.remaining += head.rows
        batch.bytes += head.octets
        self.unindexed.new[batch] = None
        if self._by_id is not None:
            self._by_id[batch.id] = batch

    def _batch(self, id: int) -> Batch | None:
        if self._by_id is None:
            self._by_id = {batch.id: batch for batches in self.queues.values() for batch in batches}
        return self._by_id.get(id)

    def _settle(self, content: bytes) -> None:
        for queue, first, last in records.settled_in(content):
            batches = self.queues.get(queue, [])
            place = max(bisect_right(batches, first, key=_FIRST_SEQ) - 1, 0)
            while place < len(batches) and batches[place].first_seq <= last:
                if batches[place].last_seq >= first:
                    batches[place].replay_settled(first, last)
                    self.unindexed.changed[batches[place]] = None
                place += 1

    def _define(self, content: bytes) -> None:
        for kind, key, *value in json.loads(content):
            if value:
                self.definitions[kind, key] = self.unindexed.definitions.put[kind, key] = value[0]
            else:
                self.definitions.pop((kind, key), None)
                self.unindexed.definitions.delete((kind, key))
                # Chunks before the removal of a stream must not be written to the stream's files again.
                if kind == kinds.STREAM:
                    self._pieces.pop(int(key), None)

    def _drop(self, content: bytes) -> None:
        for queue in memoryview(content).cast("q"):
            for batch in self.queues.pop(queue, ()):
                self.unindexed.forget(batch)
            self._pieces.pop(queue, None)

    # --- comparison with the files ---

    def _hold_against_files(self, directory: Path) -> None:
        """Report content of the log known to the index but missing in the files; the rest of the affected batches
        stays.
        """
        segments = {segment.number: segment for segment in self.segments}
        queue_name = definitions.QueueNaming(self.definitions)
        self.losses += [gap.described(queue_name) for gap in self._gaps]
        for queue, batches in self.queues.items():
            for place, batch in enumerate(batches):
                # Most batches are in one file, where the last block proves the earlier blocks.
                if batch.remaining <= 0 or _is_covered(batch, segments):
                    continue
                missing = [
                    row for row, one in enumerate(batch.positions) if not _has(segments, one, batch.lengths[row])
                ]
                if missing:
                    for number, ranges in _unsettled(batch, missing):
                        numbers = ", ".join(f"{first} to {last}" for first, last in ranges)
                        self.losses.append(
                            f"messages {numbers} of {queue_name(queue)} are missing: "
                            f"{_state(directory, segments.get(number), number)}"
                        )
                    # Under the same id: the index keeps the whole batch until the loss is acknowledged.
                    left = batches[place] = self.lost[batch.id] = self._without(batch, missing, segments)
                    for noted in (self.unindexed.new, self.unindexed.changed):
                        if batch in noted:
                            del noted[batch]
                            noted[left] = None

    def _without(self, batch: Batch, missing: list[int], segments: dict[int, LogSegment]) -> Batch:
        """Return the rest of a batch with missing blocks, under the same id."""
        left = Batch(batch.queue_id, self._note)
        bounds = []  # lowest and highest number of each remaining block
        for row, position in enumerate(batch.positions):
            segment = segments.get(position >> OFFSET_BITS)
            if row in missing or segment is None:
                continue
            file = OpenSegment(self._files, segment.path)
            octets = file.octets(position - segment.position(0), batch.lengths[row])
            file.close()
            if not records.block_is_whole(octets, segment.salt):
                continue  # a read of the block reports the damage
            content = records.Content(octets)
            left.add_block(position, batch.lengths[row], batch.firsts[row])
            bounds.append((batch.firsts[row], content.last))
            left.first_seq, left.last_seq = left.first_seq if left.count else batch.firsts[row], content.last
            left.count += content.head.rows
            left.bytes += content.head.octets
        # Settlements of missing blocks would reduce the count of remaining messages.
        kept = Ranges()
        for first, last in batch.settled:
            for row_first, row_last in bounds:
                if first <= row_last and last >= row_first:
                    kept.add(max(first, row_first), min(last, row_last))
        left.restore_settled(kept)
        left.id, left.closed = batch.id, True
        return left

    def _settle_accounts(self) -> None:
        """Forget fully settled batches, and register live batches with the segments."""
        segments = {segment.number: segment for segment in self.segments}
        for queue_id, batches in list(self.queues.items()):
            if self._before is not None:
                self.unindexed.open.add(batches[-1])
            # The index keeps a batch with missing blocks until the loss is acknowledged.
            settled = [batch.id for batch in batches if batch.remaining <= 0 and batch not in self.unindexed.open]
            self.unindexed.gone += [id for id in settled if id not in self.lost]
            kept = [batch for batch in batches if batch.remaining > 0]
            if kept:
                self.queues[queue_id] = kept
            else:
                del self.queues[queue_id]
            for batch in kept:
                register(batch, segments)


class Gap:
    """A missing stretch of the log.

    Args:
        what: sentence about the missing stretch.
        known: highest number of a message before the gap by queue, for queues with batches before the gap.
    """

    def __init__(self, what: str, known: dict[int, int]) -> None:
        self._what = what
        self._known = known
        self._followed: set[int] = set()
        self._messages: list[tuple[int, int | None, int]] = []

    def follow(self, queue: int, first: int) -> None:
        """Record the first message of a queue behind the gap."""
        if queue not in self._followed:
            self._followed.add(queue)
            last = self._known.get(queue)
            if first > (last or 0) + 1:
                self._messages.append((queue, None if last is None else last + 1, first - 1))

    def described(self, queue_name: Callable[[int], str]) -> str:
        """Return a sentence with the missing part, and the messages possibly missing."""
        parts = [
            f"messages {'' if first is None else f'{first} '}to {last} of {queue_name(queue)}"
            for queue, first, last in self._messages[:NAMED]
        ]
        if len(self._messages) > NAMED:
            parts.append(f"messages of {len(self._messages) - NAMED} more queues")
        return f"{self._what}; possibly missing: {', '.join(parts)}" if parts else self._what


def _number(opened: tuple[Path, OpenSegment]) -> int:
    assert opened[1].opening is not None
    return opened[1].opening.segment


def _has(segments: dict[int, LogSegment], position: int, length: int) -> bool:
    """Return True if a file has the octets of a block."""
    segment = segments.get(position >> OFFSET_BITS)
    return segment is not None and position + length <= segment.position(segment.end)


def _is_covered(batch: Batch, segments: dict[int, LogSegment]) -> bool:
    """Return True if one file has all blocks of a batch."""
    positions = batch.positions
    one_file = positions[0] >> OFFSET_BITS == positions[-1] >> OFFSET_BITS
    return one_file and _has(segments, positions[-1], batch.lengths[-1])


def _rows(batch: Batch) -> list[tuple[int, int]]:
    """Return the lowest and the highest possible message number of each block of a batch."""
    ends = [first - 1 for first in batch.firsts[1:]] + [batch.last_seq]
    return list(zip(batch.firsts, ends, strict=False))


def _unsettled(batch: Batch, rows: list[int]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield the unsettled numbers of some blocks of a batch, as ranges, by segment."""
    bounds, found = _rows(batch), dict[int, list[tuple[int, int]]]()
    for row in rows:
        first, last = bounds[row]
        ranges = found.setdefault(batch.positions[row] >> OFFSET_BITS, [])
        for settled_first, settled_last in batch.settled:
            if settled_last < first or settled_first > last:
                continue
            if settled_first > first:
                _join(ranges, first, settled_first - 1)
            first = settled_last + 1
        if first <= last:
            _join(ranges, first, last)
    return ((number, ranges) for number, ranges in found.items() if ranges)


def _join(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = ranges[-1][0], last
    else:
        ranges.append((first, last))


def _state(directory: Path, segment: LogSegment | None, number: int) -> str:
    """Return the problem of a segment with missing messages."""
    if segment is None:
        return f"{directory / file_name(number)} is missing or unreadable"
    return f"{segment.path} ends at octet {segment.end}, before these messages"


def segments_of(batch: Batch) -> range:
    """Return the numbers of the segments of a batch: mostly a single segment."""
    return range(batch.positions[0] >> OFFSET_BITS, (batch.positions[-1] >> OFFSET_BITS) + 1)


def register(batch: Batch, segments: dict[int, LogSegment]) -> None:
    """Register a batch as live content of the segments."""
    numbers = segments_of(batch)
    for number in numbers:
        if number in segments:
            segments[number].batches.add(batch)
            segments[number].live += batch.bytes * batch.remaining / batch.count / len(numbers)


_APPLY: dict[int, Callable[[Recovery, bytes], Any]] = {
    SETTLED: Recovery._settle,
    DEFINITIONS: Recovery._define,
    DROPPED: Recovery._drop,
}
_LOST = {
    SETTLED: "acknowledgements are lost, and their messages are delivered again",
    DEFINITIONS: "declarations and deletions are lost",
    DROPPED: "deletions of queues are lost, and the queues' messages stay",
}


def _is_ours(directory: Path) -> bool:
    """Return True if a directory holds a segment written by this version."""
    for path in directory.glob("*.log"):
        with path.open("rb") as file:
            if records.Opening.decode(file.read(records.OPENING_SIZE)) is not None:
                return True
    return False
