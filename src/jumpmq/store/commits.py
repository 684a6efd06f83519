"""Commits: from staged changes to octets in the log, one commit at a time."""

from collections.abc import Iterator

from jumpmq.amqp.messages import Message
from jumpmq.store import records
from jumpmq.store.batch import Batch
from jumpmq.store.changes import Changes
from jumpmq.store.log import LogSegment
from jumpmq.store.ranges import Ranges
from jumpmq.store.records import FRAME, Block, Commit
from jumpmq.store.stream_end import Laid
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import ChunkPlace
from jumpmq.store.worker import StreamWrite, Write

ZEROS = 1 << 20
"""Octets filled with zeros behind a commit. Later commits overwrite the zeros."""

ZEROED_COMMITS = 4
"""Minimum number of commits of the current size for which zero filling pays off."""

STEP = 8192
"""Messages laid out in one step, rounded up to whole blocks: about a millisecond."""


Part = tuple[Batch, Block, int]
"""A block of messages: the batch, and the number of the first message."""


class Prepared:
    """A commit ready to be written, or being written.

    Attributes:
        changes: content of the commit.
        blocks: all blocks of the commit.
        written: blocks of new messages.
        moved: blocks of messages moved from earlier segments.
        streams: streams with appended chunks, and positions of the chunks.
        appends: octets written to the files of streams.
        relief: True if the commit only frees room on a full disk, and covers no receipt.
        final: True for the commit of a clean stop.
        write: the write of the commit, once the place in the log is known.
        segment: segment with the commit; None if no segment has the commit.
        number: number of the commit, or of the last commit in the log if this commit writes nothing to the log.
    """

    __slots__ = (
        "appends", "blocks", "changes", "final", "moved", "number", "relief", "segment", "streams", "write", "written",
    )  # fmt: skip

    def __init__(self, changes: Changes, *, relief: bool = False, final: bool = False) -> None:
        self.changes = changes
        self.blocks: list[Block] = []
        self.written: list[Part] = []
        self.moved: list[Part] = []
        self.streams: list[tuple[StreamLog, list[ChunkPlace]]] = []
        self.appends: list[StreamWrite] = []
        self.relief = relief
        self.final = final
        self.write: Write | None = None
        self.segment: LogSegment | None = None
        self.number = 0

    def place(self, number: int, segment: LogSegment, file: int, *, allocation: int) -> Write:
        """Return the write of the commit, placed in a segment."""
        begin = offset = segment.end + FRAME.size
        for block in self.blocks:
            block.offset = offset
            offset += block.length
        commit = Commit(number, self.blocks, offset - begin)
        allocate = None
        if offset > segment.allocated:
            length = -(-(offset - segment.allocated) // allocation) * allocation
            allocate = (segment.allocated, length)
        zeros = 0
        if offset > segment.zeroed and commit.length < ZEROS // ZEROED_COMMITS:
            zeros = min(ZEROS, (segment.allocated if allocate is None else sum(allocate)) - offset)
        return Write(file, segment.end, commit, segment.salt, allocate, zeros, self.appends, segment.position(offset))


def preparing(prepared: Prepared) -> Iterator[None]:
    """Turn the changes into blocks, in steps. Messages settled by the same changes are left out.

    Raises:
        OSError: a stream's file cannot be opened.
    """
    changes, blocks = prepared.changes, prepared.blocks
    definitions = changes.definitions
    if definitions:
        blocks.append(
            records.definitions_block(
                definitions.removed, ((kind, key, value) for (kind, key), value in definitions.put.items())
            )
        )
    laid_out, settles = 0, changes.settles
    for batch, count in changes.staged.items():
        messages = batch.messages
        assert messages is not None
        if count < len(messages):
            messages = messages[:count]
        if not settles or (messages := _unsettled(changes, batch, messages)):
            block = records.messages_block(batch.queue_id, messages, new=not batch.positions)
            blocks.append(block)
            prepared.written.append((batch, block, messages[0].seq))
        laid_out += count
        if laid_out >= STEP:
            laid_out = 0
            yield
    for log, appended in changes.streamed.items():
        _add_laid(prepared, log, log.lay_out(appended))
        laid_out += len(appended)
        if laid_out >= STEP:
            laid_out = 0
            yield
    for log, chunks in changes.imported.items():
        _add_laid(prepared, log, log.lay_out_imported(chunks))
    for batch, messages in changes.moved.items():
        if not batch.positions:
            continue  # the batch's queue was dropped in the meantime
        block = records.moved_block(batch.queue_id, batch.id, messages)
        blocks.append(block)
        prepared.moved.append((batch, block, messages[0].seq))
    # Behind messages and moves: a replay settles messages that it has read before.
    if settles and (settled := _settled(prepared)):
        blocks.append(records.settled_block((batch.queue_id, ranges) for batch, ranges in settled))
    # Behind all messages: a replay would keep messages that follow the drop of their queue.
    if changes.dropped:
        blocks.append(records.dropped_block(changes.dropped))
    # Last, because recovery reads the mark from the last block of the last commit.
    if prepared.final:
        blocks.append(Block.of(records.CLEAN, []))


def _add_laid(prepared: Prepared, log: StreamLog, laid: Laid) -> None:
    prepared.streams.append((log, laid.places))
    prepared.appends += laid.appends
    prepared.blocks += laid.blocks


def _unsettled(changes: Changes, batch: Batch, messages: list[Message]) -> list[Message]:
    """Return the messages of a batch not settled by the same changes."""
    if batch in changes.settled or batch in changes.bound:
        return [message for message in messages if not changes.is_settled(batch, message.seq)]
    return messages


def _settled(prepared: Prepared) -> list[tuple[Batch, Ranges]]:
    """Return the settlements of messages in the log."""
    found = []
    for batch, ranges in prepared.changes.settlements():
        if batch.positions:
            ranges = prepared.changes.settled_before(batch, ranges)
            if ranges.count:
                found.append((batch, ranges))
    return found
