"""What a data directory holds when it is opened: the index, and the log from where the index ends.

Nothing is changed by looking. Bodies are not read, but those of the last commit: only that one can be unfinished, as
none is begun before the one before it is on disk.
"""

import json
import logging
from bisect import bisect_right, insort
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from jumpmq.store import definitions, index, records, schema
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Definitions
from jumpmq.store.errors import Damaged, StoreError
from jumpmq.store.files import Files
from jumpmq.store.log import DIRECTORY, OFFSET_BITS, Segment
from jumpmq.store.records import DEFINITIONS, DROPPED, MESSAGES, MOVED, SETTLED, Head
from jumpmq.store.scan import Found, Place, SegmentFile

log = logging.getLogger(__name__)

_FIRST_SEQ = attrgetter("first_seq")


class Recovery:
    """The state that the files of a directory describe.

    Args:
        directory: the data directory.
        files: the file calls to use.
        note: what the batches call when something of them is settled.
        without_index: look at the log alone, as far as it goes back, and at the copy of the definitions.

    Attributes:
        definitions: JSON text by (kind, key), in order.
        queues: batches by queue id, in order, as long as something of them is left.
        segments: the log's files, in order.
        last_commit: number of the last commit in the log.
        clean: whether the last stop was clean.
        replayed_from: the first segment that the index does not cover.
        highest_segment: the highest number that a file of the log has.
        warnings: what is damaged, and what was done about it.
        whole: whether no definition is missing.
        new_definitions, new, changed, gone: what the index does not know yet: definitions, batches with blocks, batches
            of which something was settled, ids of those of which nothing is left.

    Raises:
        Damaged: the index cannot be used, and must be set aside.
        StoreError: the files cannot be read, or are none of this version.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        note: Callable[[tuple[Batch, int, int]], object],
        *,
        without_index: bool = False,
    ) -> None:
        self.definitions: dict[tuple[str, str], str] = {}
        self.queues: dict[int, list[Batch]] = {}
        self.segments: list[Segment] = []
        self.last_commit = 0
        self.clean = True
        self.replayed_from = 0
        self.warnings: list[str] = []
        self.new_definitions = Definitions()
        self.new: set[Batch] = set()
        self.changed: set[Batch] = set()
        self.gone: list[int] = []
        self.highest_segment = 0
        self._files = files
        self._note = note
        self._by_id: dict[int, Batch] | None = None
        # Behind what is missing: queues of which a batch has begun since, and parts whose beginning is unknown.
        self._begun: set[int] | None = None
        self._parts: set[Batch] = set()
        self.whole = True
        self._defined_from = 0
        path = directory / schema.FILE_NAME
        lost = self._read_index(path) if path.exists() and not without_index else None
        if lost is None:
            self._begun = set()
        self._read_copy(directory / definitions.FILE_NAME, lost)
        self._replay(directory / DIRECTORY)
        self._settle_accounts()

    def _read_index(self, path: Path) -> list[str]:
        """Take what the index says; returns which definitions it has lost."""
        try:
            found = index.read(path, self._note)
        except StoreError as error:
            # Where there is a log of ours, a header that says something else is a damaged one.
            if not isinstance(error, Damaged) and _is_ours(path.with_name(DIRECTORY)):
                raise schema.damaged(path, "its header") from error
            raise
        self.definitions, self.queues = found.definitions, index.restored_order(found.batches)
        self.replayed_from = self._defined_from = found.segment
        self.last_commit = found.commit
        self.warnings += found.warnings
        return found.lost

    def _read_copy(self, path: Path, lost: list[str] | None) -> None:
        """Take the definitions from their copy where the index is damaged, behind it, or not there."""
        try:
            copy = definitions.read(path)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}; put that right") from error
        if copy is not None and not copy.whole:
            self.warnings.append(f"{path}, the copy of the definitions, is damaged")
        if copy is None or (lost is not None and not copy.whole):
            self.whole = lost == []
            self.warnings += lost or []
        elif lost != [] or copy.segment > self._defined_from:
            before, self.definitions = self.definitions, copy.definitions
            self.new_definitions.removed = before.keys() - self.definitions.keys()
            self.new_definitions.put = {key: one for key, one in self.definitions.items() if before.get(key) != one}
            self._defined_from = max(copy.segment, self._defined_from)
            self.whole = copy.whole

    # --- the log ---

    def _replay(self, directory: Path) -> None:
        paths = sorted(directory.glob("*.log")) if directory.exists() else []
        self.highest_segment = max((int(path.stem) for path in paths if path.stem.isdigit()), default=0)
        opened = [(path, self._open(path)) for path in paths]
        known = [(path, file) for path, file in opened if file is not None]
        expected = self.replayed_from
        for place, (path, file) in enumerate(known):
            assert file.opening is not None
            following = known[place + 1][1].opening if place + 1 < len(known) else None
            segment = Segment(path, file.opening)
            segment.end = segment.allocated = file.size
            self.segments.append(segment)
            if segment.number > expected:
                self._begun = set()
            expected = max(expected, segment.number + 1)
            if segment.number >= self.replayed_from or (following is None and not self.last_commit):
                limit = None if following is None else following.first_commit
                self._replay_segment(segment, file, limit)
        for _, file in known:
            file.close()

    def _open(self, path: Path) -> "OpenSegment | None":
        try:
            file = OpenSegment(self._files, path)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}; put that right") from error
        if file.opening is None:
            if file.size > records.OPENING_SIZE and any(file.octets(0, 4096)):
                self.warnings.append(f"{path} is damaged at its beginning; nothing of it can be used")
            file.close()
            return None
        return file

    def _replay_segment(self, segment: Segment, file: SegmentFile, limit: int | None) -> None:
        """Take in a segment's commits.

        Args:
            limit: commits from this number on were given up and written again; None in the last segment, whose last
                commit may be unfinished.
        """
        applies = segment.number >= self.replayed_from
        waiting: Found | None = None
        segment.end = records.OPENING_SIZE
        for found in file.commits():
            if limit is not None and found.number >= limit:
                break
            if waiting is not None:
                self._take(segment, file, waiting, applies)
            waiting = found
        if waiting is None:
            self.last_commit, self.clean = max(self.last_commit, segment.first_commit - 1), False
            return
        if limit is None and not waiting.damaged and not file.is_whole(waiting):
            self.warnings.append(
                f"{segment.path}: commit {waiting.number} at octet {waiting.offset} was never finished; it is left out"
            )
            return
        self._take(segment, file, waiting, applies)

    def _take(self, segment: Segment, file: SegmentFile, found: Found, applies: bool) -> None:
        segment.end = found.end
        segment.blocks += len(found.blocks)
        if applies and found.damaged:
            self._begun = set()
            self.warnings.append(
                f"{segment.path} is damaged between octets {found.offset} and {found.end}: {len(found.blocks)} parts "
                "of what was there are whole, the others are left out"
            )
        self.last_commit = found.number
        self.clean = bool(found.blocks) and found.blocks[-1].head.kind == records.CLEAN
        if applies:
            for place in found.blocks:
                self._apply(segment, file, place)

    def _apply(self, segment: Segment, file: SegmentFile, place: Place) -> None:
        kind = place.head.kind
        if kind in (MESSAGES, MOVED):
            self._apply_messages(segment, file, place)
        elif kind in (SETTLED, DROPPED) or (kind == DEFINITIONS and segment.number >= self._defined_from):
            octets = file.block(place)
            if octets is None:
                self.warnings.append(f"{segment.path} is damaged at octet {place.offset}: {_LOST[kind]}")
                return
            content = octets[records.BLOCK.size : records.BLOCK.size + place.head.length]
            _APPLY[kind](self, content)

    def _apply_messages(self, segment: Segment, file: SegmentFile, place: Place) -> None:
        head, position = place.head, segment.position(place.offset)
        start = place.offset + records.BLOCK.size
        last = head.first + head.rows - 1
        batch: Batch | None
        if head.kind == MOVED:
            id = int.from_bytes(file.octets(start, 8), "little")
            batch = self._batch(id)
            if batch is not None:
                batch.move(position, head.extent, head.first)
                self.new.add(batch)
                return
            start += 8
        if head.flags & records.GAPS:
            last = int.from_bytes(file.octets(start, 8), "little")
        batches = self.queues.setdefault(head.queue, [])
        continues = head.kind == MESSAGES and batches and not head.flags & records.NEW
        if continues and batches[-1].positions[-1] >= position:
            return  # the index, which has only batches that began before, was ahead
        if head.kind == MOVED:
            self._supersede(batches, head.first, last)
        lost = self._begun is not None and head.queue not in self._begun
        if head.flags & records.NEW or not batches or head.kind == MOVED or lost:
            batch = Batch(head.queue, self._note)
            batch.first_seq = head.first
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
        self._extend(batch, position, head, last)
        if head.kind == MOVED:  # by the number that it had, should it be moved again
            batch.id = id
            assert self._by_id is not None
            self._by_id[id] = batch

    def _supersede(self, batches: list[Batch], first: int, last: int) -> None:
        """Forget parts of a batch whose beginning went with its segment: all that was left of it lies elsewhere now."""
        parts = [batch for batch in batches if batch.first_seq <= last and batch.last_seq >= first]
        for part in self._parts.intersection(parts):
            batches.remove(part)
            self.new.discard(part)
            self.changed.discard(part)
            self.gone.append(part.id)

    def _extend(self, batch: Batch, position: int, head: Head, last: int) -> None:
        batch.add_block(position, head.extent, head.first)
        batch.last_seq = last
        batch.count += head.rows
        batch.remaining += head.rows
        batch.bytes += head.octets
        self.new.add(batch)
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
                    self.changed.add(batches[place])
                place += 1

    def _define(self, content: bytes) -> None:
        for kind, key, *value in json.loads(content):
            if value:
                self.definitions[kind, key] = self.new_definitions.put[kind, key] = value[0]
            else:
                self.definitions.pop((kind, key), None)
                self.new_definitions.delete((kind, key))

    def _drop(self, content: bytes) -> None:
        for queue in memoryview(content).cast("q"):
            self.gone += [batch.id for batch in self.queues.pop(queue, ())]

    # --- what is left ---

    def _settle_accounts(self) -> None:
        """Forget what is settled whole, and have every segment know what lives in it."""
        segments = {segment.number: segment for segment in self.segments}
        for queue_id, batches in list(self.queues.items()):
            self.gone += [batch.id for batch in batches if batch.remaining <= 0]
            kept = [batch for batch in batches if batch.remaining > 0 and self._is_there(batch, segments)]
            if kept:
                self.queues[queue_id] = kept
            else:
                del self.queues[queue_id]
            for batch in kept:
                register(batch, segments)

    def _is_there(self, batch: Batch, segments: dict[int, Segment]) -> bool:
        if any(number in segments for number in segments_of(batch)):
            return True
        self.warnings.append(
            f"messages {batch.first_seq} to {batch.last_seq} of queue number {batch.queue_id} are missing with their "
            f"file, number {batch.positions[0] >> OFFSET_BITS} of the log"
        )
        return False


class OpenSegment(SegmentFile):
    """A segment's file with a descriptor of its own."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._descriptor = files.open(path)
        super().__init__(self._descriptor)

    def close(self) -> None:
        self._files.close(self._descriptor)


def segments_of(batch: Batch) -> range:
    """Numbers of the segments in which a batch lies: mostly one."""
    return range(batch.positions[0] >> OFFSET_BITS, (batch.positions[-1] >> OFFSET_BITS) + 1)


def register(batch: Batch, segments: dict[int, Segment]) -> None:
    """Have the segments know that something of the batch lives in them."""
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
    SETTLED: "which messages were acknowledged there is not known, they are delivered again",
    DEFINITIONS: "what was declared or deleted there is left out",
    DROPPED: "which queues were deleted there is not known, their messages stay",
}


def _is_ours(directory: Path) -> bool:
    """Whether a directory holds a segment that this version wrote."""
    for path in directory.glob("*.log"):
        with path.open("rb") as file:
            if records.Opening.decode(file.read(records.OPENING_SIZE)) is not None:
                return True
    return False
