"""Segment files of streams: chunks one after the other, each a header and the messages as an Arrow record batch.

A chunk is what one commit gave to one stream, in parts where that was much. Its header (64 octets, little-endian)::

    magic   uint32      CRC-32   uint32      octets of the record batch   uint32      messages   uint32
    offset of the first message   int64      published: first   int64, last   int64 (microseconds since the epoch)

The checksum covers the rest of the header and the record batch, which is in the Arrow IPC format without its schema
(:func:`jumpmq.store.columns.schema`), padded to 64 octets as Arrow likes it aligned. A file is allocated ahead, so
what follows the last chunk is zeros: a chunk that is not whole ends the file.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.store import columns
from jumpmq.store.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

HEADER = struct.Struct("<4I3q24x")
MAGIC = 0x314D5453
ALIGNMENT = 64
ALLOCATED_AHEAD = 16 << 20
"""Octets by which a file grows: fewer changes of its size make ``fdatasync`` faster."""

MAX_COUNT = 4096
"""Most messages in a chunk."""

MAX_BYTES = 4 << 20
"""A chunk takes no further message once its bodies hold this many octets."""

SUFFIX = ".segment"


class ChunkPlace(NamedTuple):
    """Where a chunk lies.

    Attributes:
        first, rows: the offset of its first message, and how many it has.
        position: octets before it in the file.
        length: its octets, header and padding included.
        first_time, last_time: when its messages were published, in microseconds since the epoch.
    """

    first: int
    rows: int
    position: int
    length: int
    first_time: int
    last_time: int


class Chunk(NamedTuple):
    """A chunk as it is read: ``batch`` lies in the mapped file and is not copied."""

    first: int
    rows: int
    batch: pa.RecordBatch


def encode(messages: list[Message], first: int, position: int) -> tuple[ChunkPlace, list[bytes | pa.Buffer]]:
    """A chunk of messages with offsets from ``first`` on: where it will lie, and its octets in pieces."""
    batch = _columns(messages, first)
    octets = batch.serialize()
    times = int(messages[0].published_at * 1e6), int(messages[-1].published_at * 1e6)
    head = HEADER.pack(MAGIC, 0, octets.size, len(messages), first, *times)
    crc = zlib.crc32(octets, zlib.crc32(head[8:]))
    padding = bytes(-octets.size % ALIGNMENT)
    place = ChunkPlace(first, len(messages), position, HEADER.size + octets.size + len(padding), *times)
    return place, [head[:4] + crc.to_bytes(4, "little") + head[8:], octets, padding]


def _columns(messages: list[Message], first: int) -> pa.RecordBatch:
    """Messages as :func:`~jumpmq.store.columns.schema` has them, their offsets in the place of their numbers."""
    import pyarrow as pa

    schema = columns.schema()
    offsets = pa.py_buffer(array("q", range(first, first + len(messages))))
    numbers = pa.Array.from_buffers(pa.int64(), len(messages), [None, offsets])
    others = [columns.column(messages, name) for name in schema.names[1:]]
    return pa.RecordBatch.from_arrays([numbers, *others], schema=schema)


class Segment:
    """A segment file as it is read. What was appended is made known by :meth:`add`.

    Attributes:
        first: offset of its first message; the file is named after it.
        end: the offset after its last one.
        size: octets in use.
    """

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = self.end = first
        self.size = 0
        self.last_time = 0
        self._firsts = array("q")
        self._positions = array("q")
        self._times = array("q")
        self._map: mmap.mmap | None = None

    @classmethod
    def open(cls, path: Path) -> Segment:
        """Read which chunks a file has; what does not follow from what comes before ends it."""
        segment = cls(path, int(path.name.removesuffix(SUFFIX)))
        size = path.stat().st_size
        with path.open("rb") as file:
            while (place := _place(os.pread(file.fileno(), HEADER.size, segment.size), segment.size)) is not None:
                if place.first != segment.end or place.position + place.length > size:
                    break
                segment.add(place)
        return segment

    def drop_torn(self) -> int:
        """Forget chunks from the first damaged one on, as a crash may leave them; returns the octets left."""
        for row, position in enumerate(self._positions):
            try:
                self.chunk(row)
            except StoreError:
                del self._firsts[row + 1 :], self._positions[row:], self._times[row:]
                self.end, self.size = self._firsts.pop(), position
                self.last_time = self._times[-1] if self._times else 0
                break
        return self.size

    def add(self, place: ChunkPlace) -> None:
        """A chunk was appended."""
        self._firsts.append(place.first)
        self._positions.append(place.position)
        self._times.append(place.last_time)
        self.end = place.first + place.rows
        self.size = place.position + place.length
        self.last_time = place.last_time

    @property
    def last_chunk(self) -> int:
        """Offset of the first message of the last chunk."""
        return self._firsts[-1] if self._firsts else self.first

    def first_of(self, row: int) -> int:
        """Offset of the first message of a chunk."""
        return self._firsts[row]

    def row_of(self, offset: int) -> int:
        """Which chunk holds a message."""
        return bisect_right(self._firsts, offset) - 1

    def row_at(self, time: int) -> int | None:
        """The first chunk with a message published then or later, in microseconds; None where there is none."""
        return next((row for row, last in enumerate(self._times) if last >= time), None)

    def chunk(self, row: int) -> Chunk:
        """Read a chunk.

        Raises:
            StoreError: it is damaged.
        """
        import pyarrow as pa

        position = self._positions[row]
        octets = memoryview(self._mapped())
        head = octets[position : position + HEADER.size]
        magic, crc, length, count, first, _, _ = HEADER.unpack(head)
        body = octets[position + HEADER.size : position + HEADER.size + length]
        if magic != MAGIC or zlib.crc32(body, zlib.crc32(head[8:])) != crc:
            raise StoreError(f"{self.path} is damaged {position} octets from its start")
        return Chunk(first, count, pa.ipc.read_record_batch(pa.py_buffer(body), columns.schema()))

    def remove(self) -> None:
        """Delete the file; whoever reads it reads on."""
        with contextlib.suppress(OSError, ValueError):
            self._mapped()
        self.path.unlink(missing_ok=True)

    def _mapped(self) -> mmap.mmap:
        if self._map is None or len(self._map) < self.size:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return self._map


def _place(head: bytes, position: int) -> ChunkPlace | None:
    if len(head) < HEADER.size:
        return None
    magic, _, length, count, first, first_time, last_time = HEADER.unpack(head)
    if magic != MAGIC:
        return None
    return ChunkPlace(first, count, position, HEADER.size + length + -length % ALIGNMENT, first_time, last_time)


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """The messages of a batch, with their offsets as numbers."""
    import pyarrow as pa

    times = batch.column("published_at").cast(pa.int64()).to_pylist()
    for row, (offset, exchange, key, properties, body) in enumerate(
        zip(*(column.to_pylist() for column in batch.columns[:5]), strict=True)
    ):
        message = Message(exchange, key, properties, body, True, times[row] / 1e6)
        message.seq = offset
        yield message
