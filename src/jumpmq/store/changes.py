"""Changes of a commit."""

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
"""The JSON text of definitions, in the store and between homes; ``json.dumps`` would make an encoder each time."""


class Definitions:
    """Changes of definitions. Removals come first: what is put after a removal stays, at the end of the order.

    Attributes:
        put: JSON text by (kind, key), in the order in which they are to be inserted.
        removed: deleted keys, keys inserted again later included.
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
        """Merge the following changes."""
        for key in self.put.keys() & later.removed:
            del self.put[key]
        self.removed |= later.removed
        self.put |= later.put


class Changes:
    """Work of a commit, from gathering until written to disk, across event-loop iterations. False when empty.

    A turn belongs together: what it settles may depend on what it appends, as a dead letter's original does on the
    letter. So settlements are held in two sets.

    Attributes:
        receipt: number of the commit for waiting channels.
        definitions: what is declared and deleted.
        kept_with: the keys of definitions that say something of messages staged with them, as how far a writer has got.
        staged: how many messages of which batches are to be written.
        begins: of these batches, the first number that was staged here; what was settled since is left out.
        settled: numbers that are gone for good, of turns that appended nothing.
        bound: the same of turns that did.
        moved: the rest of batches to be written again.
        streamed: messages that are appended to streams.
        imported: chunks of other homes that are appended to streams.
        dropped: ids of queues and streams that lose all they have.
        gone: called once the commit is complete: deletes the files of what its definitions no longer have.
        discarded: batches whose staged messages are not to be written, as their queue was dropped.
        count, octets: messages that were staged, and octets of their bodies, properties and routing keys.
        parted: how many of them are of other turns than what is settled next.
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
        """True if somebody may wait for the commit: for everything but settlements."""
        return bool(self.staged or self.definitions or self.streamed or self.imported or self.dropped)

    @property
    def settles(self) -> bool:
        """True if the commit settles messages permanently."""
        return bool(self.settled or self.bound)

    def stage(self, batch: Batch, first: int, count: int, octets: int) -> None:
        """``count`` more messages of ``batch``, numbered from ``first`` on, are to be written."""
        if batch in self.staged:
            self.staged[batch] += count
        else:
            self.staged[batch] = count
            self.begins.setdefault(batch, first)
        self.count += count
        self.octets += octets

    def stream(self, log: StreamLog, messages: list[Message], octets: int) -> None:
        """Messages are to be appended to a stream."""
        self.streamed.setdefault(log, []).extend(messages)
        self.count += len(messages)
        self.octets += octets

    def import_chunks(self, log: StreamLog, chunks: list[ImportedChunk]) -> None:
        """Chunks of another home are to be appended to a stream."""
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
        """Merge the following changes into a single commit."""
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
        """Settle ranges permanently; called for a unit of work after its staged messages.

        Args:
            bound: whether that may depend on what other turns append.
        """
        settled = self.bound if self.count > self.parted or bound else self.settled
        for batch, first, last in noted:
            if (ranges := settled.get(batch)) is None:
                ranges = settled[batch] = Ranges()
            ranges.add(first, last)

    def leave_out(self, settled: Changes) -> None:
        """Forget the last staged messages settled by an absorbed unit of work: no longer wanted."""
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
        """Return the settled ranges staged before this commit; the rest of a batch's settlements is left out of the
        commit.
        """
        return ranges.below(self.begins[batch]) if batch in self.begins else ranges

    def settlements(self) -> Iterator[tuple[Batch, Ranges]]:
        """All settlements; a batch may come twice."""
        yield from self.settled.items()
        yield from self.bound.items()

    def without_staged(self) -> Changes:
        """Split off the changes to commit before the messages: they free room, and none depends on the messages."""
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
