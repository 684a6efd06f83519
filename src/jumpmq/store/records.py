"""Format of the log: commits and blocks.

A segment file begins with an :class:`Opening`. Commits follow, numbered without a gap, each with a frame and blocks::

    frame   "JMQC", CRC-32 of the rest of the frame and of the blocks' heads, number, length, number of blocks
    block   head: CRC-32 of the rest of the block; kind, flags, count, length, octets of bodies, queue, first seq
            content, filled up to 8 octets with zeros

All integers are little-endian. Every checksum begins with the segment's salt, a random number. Neither remains of an
older file on the disk nor a published body can therefore pass as a commit.

Contents by kind:

- ``MESSAGES``: consecutive messages of one queue, as rows (see ``ROW``) or, with the flag ``COLUMNS``, as buffers for
  Arrow: 64-bit integers first, then 32-bit offsets, then octets, bodies last. ``MOVED`` messages are a copy of the
      remaining part of an older batch; the content begins with the batch's id.
- ``SETTLED``: 64-bit integers: queue, number of ranges, (first, last) of each range, repeated for each queue.
- ``DEFINITIONS``: a JSON list with [kind, key] for each removed definition, followed by [kind, key, value] for each new
  or changed definition.
- ``DROPPED``: 64-bit integers: queues dropped with all their content.
- ``CLEAN``: empty; the marker of a clean stop.
- ``STREAM``: a chunk of a stream; the head has the stream's number and the first offset. The content is two 64-bit
  integers (first offset of the stream's segment, position of the chunk in the segment's file), then the chunk.

Worked example: commit 7, the first of segment 2. Queue 1 gains its message 5, "hello" with routing key "k", in a new
batch; its message 4 is settled. Each line has the octets in hexadecimal digits, the field and the value::

    opening of the segment, stored twice
        4a756d704d510003  magic                  "JumpMQ\\x00\\x03"
        02000000          segment                2
        00000000          epoch                  0
        0700000000000000  first commit           7
        72f36e3c          salt                   0x3c6ef372
        b2f657c8          CRC-32 of the opening  0xc857f6b2
    frame of the commit
        4a4d5143          magic                  "JMQC"
        2b00a1b8          CRC-32 of the commit   0xb8a1002b
        0700000000000000  number                 7
        78000000          length of the blocks   120
        02000000          number of blocks       2
    head of the first block
        f52915fa          CRC-32 of the block    0xfa1529f5
        01                kind                   1 (MESSAGES)
        01                flags                  1 (NEW)
        0100              count                  1
        18000000          length of the content  24
        05000000          octets of bodies       5
        0100000000000000  queue                  1
        0500000000000000  first seq              5
    content of the first block
        00401e18240a0600  time of publishing     1700000000000000
        00                length of exchange     0
        01                length of routing key  1
        0200              length of properties   2
        05000000          length of body         5
        6b                routing key            "k"
        0000              properties             "\\x00\\x00"
        68656c6c6f        body                   "hello"
    head of the second block
        d32efdd4          CRC-32 of the block    0xd4fd2ed3
        03                kind                   3 (SETTLED)
        00                flags                  0
        0000              count                  0
        20000000          length of the content  32
        00000000          octets of bodies       0
        0000000000000000  queue                  0
        0000000000000000  first seq              0
    content of the second block
        0100000000000000  queue                  1
        0100000000000000  ranges                 1
        0400000000000000  first                  4
        0400000000000000  last                   4
"""

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.store.block_format import BLOCK as BLOCK
from jumpmq.store.block_format import EXPIRES, ROW, SHORT_ROW
from jumpmq.store.block_format import MESSAGES as MESSAGES
from jumpmq.store.checksums import checksum
from jumpmq.store.layout import (
    alike,
    binary_column,
    expiry_column,
    from_columns,
    row_block,
    seq_column,
    time_column,
)

MOVED, SETTLED, DEFINITIONS, DROPPED, CLEAN, STREAM = 2, 3, 4, 5, 6, 7
KINDS = range(MESSAGES, STREAM + 1)

NEW = 1
"""Flag of messages at the beginning of a batch."""
COLUMNS = 2
"""Flag of messages stored as columns."""
GAPS = 4
"""Flag of messages with non-consecutive numbers."""
ONE_TIME, ONE_EXCHANGE, ONE_PROPERTIES = 16, 32, 64
"""Flags of columns with a common value for all messages, stored once."""

MAX_COUNT = 4096
"""Maximum number of messages in a block, and in a batch."""

MAX_ROWS = 8
"""Maximum number of messages written as rows. Rows take a sixth of the time of columns (measured), but repeat a common
exchange and common properties per message. Columns store common values once."""

GATHER = 4096
"""Average body size from which bodies are written in place instead of being copied side by side."""

ALIGNMENT = 8
MAGIC = b"JMQC"
FRAME = struct.Struct("<4sIQII")

_INTEGER = struct.Struct("<q")
CHUNK_AT = struct.Struct("<qq")
"""Prefix of a stream chunk: the first offset of the segment, and the position in the segment file."""
_OPENING = struct.Struct("<8sIIQI")
_OPENING_MAGIC, _EPOCHLESS_MAGIC = b"JumpMQ\0\3", b"JumpMQ\0\2"
"""Magic octets of a segment's opening. Segments of version 0.2 have the second value and a segment number of 64 bits,
whose upper 32 bits, zeros, are read as epoch 0.
"""
OPENING_SIZE = 2 * (_OPENING.size + 4)
"""Octets before a segment's first commit."""
_PADDING = [bytes(-length % ALIGNMENT) for length in range(ALIGNMENT)]


class Block:
    """A block on the way to disk.

    Attributes:
        head: the block's head without the checksum, followed by a part of the content.
        buffers: the rest of the content, with padding.
        length: octets of the whole block.
        offset: position in the file, once known.
    """

    __slots__ = ("buffers", "head", "length", "offset")

    def __init__(self, head: bytearray, buffers: list[Any], length: int) -> None:
        self.head = head
        self.buffers = buffers
        self.length = length
        self.offset = 0

    @classmethod
    def of(
        cls,
        kind: int,
        buffers: list[Any],
        *,
        flags: int = 0,
        count: int = 0,
        octets: int = 0,
        queue: int = 0,
        first: int = 0,
    ) -> "Block":
        """Return a block with the given content, not yet padded."""
        length = sum(map(len, buffers))
        head = bytearray(BLOCK.pack(0, kind, flags, count, length, octets, queue, first))
        if length % ALIGNMENT:
            buffers.append(_PADDING[length % ALIGNMENT])
        return cls(head, buffers, BLOCK.size + length + -length % ALIGNMENT)


class Commit:
    """A commit on the way to disk.

    Args:
        length: octets of the blocks.

    Attributes:
        frame: the commit's frame without the checksum.
        length: octets of the whole commit.
    """

    __slots__ = ("blocks", "frame", "length", "number")

    def __init__(self, number: int, blocks: list[Block], length: int) -> None:
        self.number = number
        self.blocks = blocks
        self.frame = bytearray(FRAME.pack(MAGIC, 0, number, length, len(blocks)))
        self.length = FRAME.size + length

    def finalize(self, salt: int) -> list[Any]:
        """Insert the checksums; return all buffers in order."""
        buffers: list[Any] = [self.frame]
        heads = zlib.crc32(memoryview(self.frame)[8:], salt)
        for block in self.blocks:
            crc = zlib.crc32(memoryview(block.head)[4:], salt)
            for buffer in block.buffers:
                crc = zlib.crc32(buffer, crc)
            block.head[:4] = crc.to_bytes(4, "little")
            heads = zlib.crc32(memoryview(block.head)[: BLOCK.size], heads)
            buffers.append(block.head)
            buffers += block.buffers
        self.frame[4:8] = heads.to_bytes(4, "little")
        return buffers


class BlockHead(NamedTuple):
    """Head of a block read from disk."""

    crc: int
    kind: int
    flags: int
    rows: int
    length: int
    octets: int
    queue: int
    first: int

    @property
    def extent(self) -> int:
        """Octets of the whole block."""
        return BLOCK.size + self.length + -self.length % ALIGNMENT


def head_at(octets: Any, offset: int = 0) -> BlockHead:
    """Return the head of the block at ``offset``."""
    return BlockHead._make(BLOCK.unpack_from(octets, offset))


def block_is_whole(octets: Any, salt: int) -> bool:
    """Return True if ``octets``, a block with head and padding, are undamaged."""
    return checksum(memoryview(octets)[4:], salt) == int.from_bytes(octets[:4], "little")


class Opening(NamedTuple):
    """Beginning of a segment file.

    Attributes:
        segment: number of the segment.
        first_commit: number of the segment's first commit. Commits with this number or higher in older segments were
            abandoned, and do not count.
        salt: initial value of the segment's checksums.
        epoch: epoch of the leader that began the segment; 0 in a home without copies.
    """

    segment: int
    first_commit: int
    salt: int
    epoch: int = 0

    def encode(self) -> bytes:
        """Return the first octets of the file: two copies of the opening, so that damage of one copy is harmless."""
        octets = _OPENING.pack(_OPENING_MAGIC, self.segment, self.epoch, self.first_commit, self.salt)
        return 2 * (octets + zlib.crc32(octets).to_bytes(4, "little"))

    @classmethod
    def decode(cls, octets: bytes) -> "Opening | None":
        """Return the opening in the first octets of a file; None if both copies are damaged."""
        half = OPENING_SIZE // 2
        for copy in (octets[:half], octets[half:OPENING_SIZE]):
            if len(copy) == half and zlib.crc32(copy[:-4]) == int.from_bytes(copy[-4:], "little"):
                magic, segment, epoch, first_commit, salt = _OPENING.unpack_from(copy)
                if magic in (_OPENING_MAGIC, _EPOCHLESS_MAGIC):
                    return cls(segment, first_commit, salt, epoch)
        return None


# --- messages ---


def messages_block(queue: int, messages: list[Message], *, new: bool) -> Block:
    """Return a block of a queue's messages: at most ``MAX_COUNT``, in order of ``seq``."""
    begins, count = NEW if new else 0, len(messages)
    if count <= MAX_ROWS and (rows := row_block(messages, queue, begins, GATHER)) is not None:
        return Block(*rows)
    flags, buffers, octets = _columns(messages)
    return Block.of(
        MESSAGES, buffers, flags=flags | begins, count=count, octets=octets, queue=queue, first=messages[0].seq
    )


def moved_block(queue: int, batch_id: int, messages: list[Message]) -> Block:
    """Return a block with the remaining messages of a batch, for a new location."""
    flags, buffers, octets = _columns(messages)
    buffers.insert(0, _INTEGER.pack(batch_id))
    return Block.of(MOVED, buffers, flags=flags, count=len(messages), octets=octets, queue=queue, first=messages[0].seq)


def _columns(messages: list[Message]) -> tuple[int, list[Any], int]:
    """Return flags, buffers, and octets of bodies."""
    flags, first = COLUMNS, messages[0]
    gaps = messages[-1].seq - first.seq + 1 != len(messages)
    one_time, one_exchange, one_properties, expires, total = alike(messages)
    integers: list[bytes] = []
    if gaps:
        flags |= GAPS
        integers += (_INTEGER.pack(messages[-1].seq), seq_column(messages))
    if one_time:
        flags |= ONE_TIME
        integers.append(time_column([first]))
    else:
        integers.append(time_column(messages))
    if expires:
        flags |= EXPIRES
        integers.append(expiry_column(messages))
    key_offsets, keys = binary_column(messages, "routing_key")
    body_offsets, bodies = _bodies(messages, total)
    offsets, octets = [key_offsets, body_offsets], [keys]
    for one, flag, name in (
        (one_exchange, ONE_EXCHANGE, "exchange"),
        (one_properties, ONE_PROPERTIES, "properties"),
    ):
        column = binary_column([first] if one else messages, name)
        if one:
            flags |= flag
        offsets.append(column[0][4:] if one else column[0])  # one value begins at 0
        octets.append(column[1])
    return flags, [b"".join((*integers, *offsets, *octets)), *bodies], total


def _bodies(messages: list[Message], total: int) -> tuple[bytes, list[bytes]]:
    """Return the bodies' offsets, and the octets in one buffer, or uncopied."""
    if total < GATHER * len(messages):
        offsets, octets = binary_column(messages, "body")
        return offsets, [octets]
    bodies = [message.body for message in messages]
    return array("i", accumulate(map(len, bodies), initial=0)).tobytes(), bodies


class Content:
    """Messages of a block read from disk. Columns are located, but not yet turned into objects.

    Args:
        octets: the whole block.

    Attributes:
        head: the block's head.
        last: number of the last message.
    """

    def __init__(self, octets: bytes) -> None:
        self.head = head = head_at(octets)
        self.octets = octets
        self._at = BLOCK.size + (_INTEGER.size if head.kind == MOVED else 0)
        self.last = head.first + head.rows - 1
        if head.flags & GAPS:
            (self.last,) = _INTEGER.unpack_from(octets, self._at)

    def messages(self) -> list[Message]:
        """Return new objects with all stored values, persistent."""
        return self._from_columns() if self.head.flags & COLUMNS else self._from_rows()

    def _from_rows(self) -> list[Message]:
        octets, at, found = self.octets, self._at, []
        row = ROW if self.head.flags & EXPIRES else SHORT_ROW
        for seq in range(self.head.first, self.head.first + self.head.rows):
            published, *expires, exchange, key, properties, body = row.unpack_from(octets, at)
            at += row.size
            parts = []
            for length in (exchange, key, properties, body):
                parts.append(octets[at : at + length])
                at += length
            message = Message(parts[0].decode(), parts[1], parts[2], parts[3], True, published / 1e6)
            message.seq = seq
            if expires:
                message.expires_at = expires[0] / 1e6
            found.append(message)
        return found

    def _from_columns(self) -> list[Message]:
        columns, octets = self.columns(), self.octets
        return from_columns(
            octets,
            columns.seq,
            columns.published,
            columns.expires,
            [octets[start:end].decode() for start, end in columns.exchange.spans()],
            [octets[start:end] for start, end in columns.properties.spans()],
            columns.routing_key.start,
            columns.routing_key.offsets,
            columns.body.start,
            columns.body.offsets,
            self.head.rows,
        )

    def columns(self) -> "BlockColumns":
        """Return the locations of the columns, for a block with columns."""
        octets, at, (_, _, flags, count, _, _, _, first) = self.octets, self._at, self.head
        seq: Sequence[int] = range(first, first + count)
        if flags & GAPS:
            seq, at = _integers(octets, "q", at + 8, count)
        if flags & ONE_TIME:
            published: Sequence[int] = _INTEGER.unpack_from(octets, at) * count
            at += 8
        else:
            published, at = _integers(octets, "q", at, count)
        expires: Sequence[int] | None = None
        if flags & EXPIRES:
            expires, at = _integers(octets, "q", at, count)
        key, at = _integers(octets, "i", at, count + 1)
        body, at = _integers(octets, "i", at, count + 1)
        shared: list[Sequence[int]] = []
        for flag in (ONE_EXCHANGE, ONE_PROPERTIES):
            if flags & flag:
                (length,), at = _integers(octets, "i", at, 1)
                shared.append(array("i", (0, length)))
            else:
                own, at = _integers(octets, "i", at, count + 1)
                shared.append(own)
        places = []
        for offsets in (key, *shared, body):
            places.append(Column(offsets, at))
            at += offsets[-1]
        return BlockColumns(seq, published, expires, places[1], places[0], places[2], places[3])


class Column(NamedTuple):
    """Values stored consecutively: n + 1 offsets, and the start of the first value in the block."""

    offsets: Sequence[int]
    start: int

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end of every value."""
        start = self.start
        places = [start + offset for offset in self.offsets]
        return pairwise(places)


class BlockColumns(NamedTuple):
    """The columns of a block. Exchange and properties have a single value if all messages have the same."""

    seq: Sequence[int]
    published: Sequence[int]
    expires: Sequence[int] | None
    exchange: Column
    routing_key: Column
    properties: Column
    body: Column


def _integers(octets: bytes, code: str, at: int, count: int) -> tuple["memoryview[int]", int]:
    end = at + count * (8 if code == "q" else 4)
    return memoryview(octets)[at:end].cast(code), end  # type: ignore[call-overload]


# --- other contents ---


def settled_block(settled: Iterable[tuple[int, Iterable[tuple[int, int]]]]) -> Block:
    """Return a block of permanent settlements: ranges of numbers by queue."""
    numbers = array("q")
    for queue, ranges in settled:
        flat = [number for pair in ranges for number in pair]
        numbers.append(queue)
        numbers.append(len(flat) // 2)
        numbers.extend(flat)
    return Block.of(SETTLED, [numbers.tobytes()])


def settled_in(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (queue, first, last) of all ranges in a block's content."""
    numbers, at = array("q", content), 0
    while at < len(numbers):
        queue, count = numbers[at], numbers[at + 1]
        for place in range(at + 2, at + 2 + 2 * count, 2):
            yield queue, numbers[place], numbers[place + 1]
        at += 2 + 2 * count


def definitions_block(removed: Iterable[tuple[str, str]], put: Iterable[tuple[str, str, str]]) -> Block:
    """Return a block of changes of definitions; the values are JSON text."""
    return Block.of(DEFINITIONS, [json.dumps([*removed, *put], separators=(",", ":")).encode()])


def dropped_block(queues: Sequence[int]) -> Block:
    """Return a block of dropped queues."""
    return Block.of(DROPPED, [array("q", queues).tobytes()])


def stream_block(stream: int, segment: int, position: int, first: int, count: int, chunk: list[bytes]) -> Block:
    """Return a block with a chunk of a stream.

    Args:
        stream: number of the stream.
        segment: first offset of the stream's segment.
        position: position of the chunk in the segment's file.
        first: offset of the chunk's first message.
        count: number of the chunk's messages.
        chunk: octets of the chunk, in pieces.
    """
    return Block.of(STREAM, [CHUNK_AT.pack(segment, position), *chunk], count=count, queue=stream, first=first)
