"""The content of a commit: definitions, messages and settlements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch
from jumpmq.store.ranges import Ranges

if TYPE_CHECKING:
    from jumpmq.store.stream_import import ImportedChunk
    from jumpmq.store.stream_log import StreamLog

json_text = json.JSONEncoder(separators=(",", ":")).encode
"""Encodes definitions as JSON text, for the store and for other homes. ``json.dumps`` would make an encoder at each
call.
"""


class Definitions:
    """Changes of definitions. Removals are applied first: a key removed and put again ends at the end of the order.

    Attributes:
        put: JSON text by (kind, key), in order of insertion.
        removed: removed keys, including keys put again later.
    """

    __slots__ = ("put", "removed")

    def __init__(self) -> None:
        self.put: dict[tuple[str, str], str] = {}
        self.removed: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)

    def __len__(self) -> int:
        return len(self.put) + len(self.removed)

    def delete(self, key: tuple[str, str]) -> None:
        self.put.pop(key, None)
        self.removed.add(key)

    def absorb(self, later: Definitions) -> None:
        """Merge later changes of definitions."""
        for key in self.put.keys() & later.removed:
            del self.put[key]
        self.removed |= later.removed
        self.put |= later.put


class Changes:
    """The content of a commit, from the first staged change until written to disk. False if empty.

    The changes of a turn must reach the disk together. A settlement may depend on an append of the same turn: a
    dead-lettered message is settled because its letter was appended. Settlements of turns with appends are therefore
    kept apart, in ``bound``.

    Attributes:
        receipt: number by which channels wait for the commit.
        definitions: changes of definitions.
        kept_with: keys of definitions that describe messages of the same commit, for example the progress of a writer.
        staged: number of messages to write, by batch.
        begins: lowest number staged in this commit, by batch; messages settled since then are left out.
        settled: permanently settled numbers, from turns without appends.
        bound: permanently settled numbers, from turns with appends.
        moved: remaining parts of batches, to be written again.
        streamed: messages to append to streams.
        imported: chunks of other homes to append to streams.
        dropped: ids of queues and streams that lose all their content.
        gone: called when the commit is complete, to delete files of removed queues and streams.
        discarded: batches of dropped queues; their staged messages are not written.
        count: number of staged messages.
        octets: octets of the staged messages' bodies, properties and routing keys.
        parted: number of staged messages at the last :meth:`Staging.part`; later settlements do not depend on these
            messages.
    """

    def __init__(self, receipt: int) -> None:
        self.receipt = receipt
        self.definitions = Definitions()
        self.kept_with: set[tuple[str, str]] = set()
        self.staged: dict[Batch, int] = {}
        self.begins: dict[Batch, int] = {}
        self.settled: dict[Batch, Ranges] = {}
        self.bound: dict[Batch, Ranges] = {}
        self.moved: dict[Batch, list[Message]] = {}
        self.streamed: dict[StreamLog, list[Message]] = {}
        self.imported: dict[StreamLog, list[ImportedChunk]] = {}
        self.dropped: list[int] = []
        self.gone: list[Callable[[], None]] = []
        self.discarded: set[Batch] = set()
        self.count = self.octets = self.parted = 0

    def __bool__(self) -> bool:
        some = self.staged or self.settled or self.definitions or self.streamed
        return bool(some or self.imported or self.dropped or self.bound or self.moved or self.gone)

    @property
    def untouched(self) -> bool:
        """True if empty, without earlier content left out since."""
        return not (self.begins or self.discarded or self)

    @property
    def pressing(self) -> bool:
        """True if a client may wait for the commit: the commit has more than settlements."""
        return bool(self.staged or self.definitions or self.streamed or self.imported or self.dropped)

    @property
    def settles(self) -> bool:
        """True if the commit settles messages permanently."""
        return bool(self.settled or self.bound)

    def stage(self, batch: Batch, first: int, count: int, octets: int) -> None:
        """Add ``count`` messages of ``batch``, numbered from ``first`` on."""
        if batch in self.staged:
            self.staged[batch] += count
        else:
            self.staged[batch] = count
            self.begins.setdefault(batch, first)
        self.count += count
        self.octets += octets

    def stream(self, log: StreamLog, messages: list[Message], octets: int) -> None:
        """Add messages to append to a stream."""
        self.streamed.setdefault(log, []).extend(messages)
        self.count += len(messages)
        self.octets += octets

    def import_chunks(self, log: StreamLog, chunks: list[ImportedChunk]) -> None:
        """Add chunks of another home to append to a stream."""
        self.imported.setdefault(log, []).extend(chunks)
        self.count += len(chunks)
        self.octets += sum(len(chunk.octets) for chunk in chunks)

    def drop(self, queue_id: int) -> None:
        """Forget all messages of a queue or stream."""
        self.discard(queue_id)
        self.dropped.append(queue_id)

    def discard(self, queue_id: int) -> None:
        """Leave out all changes of a queue or stream dropped by this commit or a later commit."""
        for log in [log for log in (*self.streamed, *self.imported) if log.number == queue_id]:
            self.streamed.pop(log, None)
            self.imported.pop(log, None)
        self.discarded.update(batch for batch in self.staged if batch.queue_id == queue_id)
        by_batch: tuple[dict[Batch, Any], ...] = (self.staged, self.settled, self.bound, self.moved)
        for batches in by_batch:
            for batch in [batch for batch in batches if batch.queue_id == queue_id]:
                del batches[batch]

    def absorb(self, later: Changes) -> None:
        """Merge later changes into this commit."""
        for queue_id in later.dropped:
            self.drop(queue_id)
        if later.definitions:
            self.definitions.absorb(later.definitions)
            self.kept_with |= later.kept_with
        for batch, count in later.staged.items():
            self.staged[batch] = self.staged.get(batch, 0) + count
        for batch, first in later.begins.items():
            self.begins.setdefault(batch, first)
        for log, messages in later.streamed.items():
            if log in self.streamed:
                self.streamed[log] += messages
            else:
                self.streamed[log] = messages
        for log, chunks in later.imported.items():
            self.imported.setdefault(log, []).extend(chunks)
        if later.settles:
            _add(self.settled, later.settled)
            _add(self.bound, later.bound)
        self.moved |= later.moved
        self.gone += later.gone
        self.discarded |= later.discarded
        self.count += later.count
        self.octets += later.octets
        self.receipt = later.receipt

    def settle(self, noted: list[tuple[Batch, int, int]], *, bound: bool = False) -> None:
        """Settle ranges permanently. The turn's staged messages have to be added before.

        Args:
            bound: True if the settlements may depend on messages that other turns append.
        """
        settled = self.bound if self.count > self.parted or bound else self.settled
        for batch, first, last in noted:
            if (ranges := settled.get(batch)) is None:
                ranges = settled[batch] = Ranges()
            ranges.add(first, last)

    def leave_out(self, settled: Changes) -> None:
        """Forget staged messages settled by an absorbed turn, so that they are never written."""
        for batch, ranges in settled.settlements():
            if staged := self.staged.get(batch):
                count, octets = batch.leave_out(staged, ranges)
                self.staged[batch] = staged - count
                if count == staged:
                    del self.staged[batch]
                self.count -= count
                self.octets -= octets

    def is_settled(self, batch: Batch, seq: int) -> bool:
        """Return True if the commit settles message ``seq``."""
        return any(batch in settled and seq in settled[batch] for settled in (self.settled, self.bound))

    def settled_before(self, batch: Batch, ranges: Ranges) -> Ranges:
        """Return the settled ranges of messages that earlier commits contain. Settled messages of this commit are not
        written, and need no settlement.
        """
        return ranges.below(self.begins[batch]) if batch in self.begins else ranges

    def settlements(self) -> Iterator[tuple[Batch, Ranges]]:
        """Yield all settlements; a batch may occur twice."""
        yield from self.settled.items()
        yield from self.bound.items()

    def without_staged(self) -> Changes:
        """Split off the changes that free room and do not depend on staged messages, for an earlier commit."""
        split = Changes(self.receipt)
        split.definitions, self.definitions = self.definitions, split.definitions
        for key in self.kept_with & split.definitions.put.keys():
            self.definitions.put[key] = split.definitions.put.pop(key)
        split.dropped, self.dropped = self.dropped, split.dropped
        split.gone, self.gone = self.gone, split.gone
        settled, self.settled = self.settled, {}
        for batch, ranges in settled.items():
            unwritten = self.begins.get(batch)
            for first, last in ranges:
                # A settlement of this commit's own messages stays with the messages.
                side = split if unwritten is None or last < unwritten else self
                side.settled.setdefault(batch, Ranges()).add(first, last)
        return split


def _add(target: dict[Batch, Ranges], source: dict[Batch, Ranges]) -> None:
    for batch, ranges in source.items():
        if batch in target:
            for first, last in ranges:
                target[batch].add(first, last)
        else:
            target[batch] = ranges
