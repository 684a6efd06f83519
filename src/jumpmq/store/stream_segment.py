"""Segment files of streams: consecutive chunks, consisting of a header and the messages as an Arrow record batch.

A chunk has the messages of one commit for one stream; many messages are several chunks. Its header (64 octets,
little-endian)::

    magic   uint32      CRC-32   uint32      octets of the record batch   uint32      messages   uint32
    offset of the first message   int64      published: first   int64, last   int64 (microseconds since the epoch)
    position in the file of the first chunk of the same commit   int64      salt   uint32
    CRC-32 of the header from the octets of the record batch up to the salt   uint32      zeros   8 octets

The first checksum covers the rest of the header and the record batch. The record batch has the Arrow IPC format without
the schema (:func:`jumpmq.store.columns.schema`), padded to 64 octets, the alignment that Arrow recommends. The second
checksum verifies the length in the header, by which the next chunk is found. In files of older versions the second
checksum is 0, and the first one verifies the length, too. The salt is a random number of the segment, so that no
published body can pass as a chunk. Files are allocated ahead: zeros follow the last chunk.

If the store knows the end of a stream, chunks behind this end were never committed, and do not count. Damaged chunks
before the end are reported and left out; reads continue behind them. Older versions did not write streams to the log.
In their files, a crash may have left the last commit unfinished. This commit was not confirmed: its chunks count up to
the first damaged chunk.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import mmap
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.store import columns
from jumpmq.store.checksums import checksum
from jumpmq.store.errors import StoreError, Unreadable
from jumpmq.store.file_octets import FileOctets
from jumpmq.store.layout import append_numbers

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

HEADER = struct.Struct("<4I4q2I8x")
CHECKED = slice(8, 52)
"""Range of the second checksum of a header."""

MAGIC = 0x314D5453
MAGIC_OCTETS = MAGIC.to_bytes(4, "little")
ALIGNMENT = 64
MAX_COUNT = 4096
"""Maximum number of messages in a chunk."""

MAX_BYTES = 4 << 20
"""Size limit of a chunk, in octets of bodies, properties and routing keys: a chunk of this size takes no further
message.
"""

SUFFIX = ".segment"


class ChunkPlace(NamedTuple):
    """Location of a chunk.

    Attributes:
        first, message_count: offset of the first message, and number of messages.
        position: position in the file, in octets.
        length: octets of the chunk, header and padding included.
        first_time, last_time: publishing times of the first and the last message, in microseconds since the epoch.
        commit: position of the first chunk of the same commit.
        salt: salt of the segment.
    """

    first: int
    message_count: int
    position: int
    length: int
    first_time: int
    last_time: int
    commit: int
    salt: int


class Chunk(NamedTuple):
    """A chunk read from disk. The columns of ``batch`` are in the mapped file, not copied."""

    first: int
    message_count: int
    batch: pa.RecordBatch


def encode(
    messages: list[Message], first: int, position: int, commit: int, salt: int
) -> tuple[ChunkPlace, list[bytes]]:
    """Return a chunk of messages with offsets from ``first`` on: the location, and the octets in pieces."""
    octets = _columns(messages, first).serialize().to_pybytes()
    times = int(messages[0].published_at * 1e6), int(messages[-1].published_at * 1e6)
    head = HEADER.pack(MAGIC, 0, len(octets), len(messages), first, *times, commit, salt, 0)
    head = head[: CHECKED.stop] + checksum(head[CHECKED]).to_bytes(4, "little") + head[CHECKED.stop + 4 :]
    crc = checksum(octets, checksum(head[8:]))
    padding = bytes(-len(octets) % ALIGNMENT)
    length = HEADER.size + len(octets) + len(padding)
    place = ChunkPlace(first, len(messages), position, length, *times, commit, salt)
    return place, [head[:4] + crc.to_bytes(4, "little") + head[8:], octets, padding]


def _columns(messages: list[Message], first: int) -> pa.RecordBatch:
    """Return messages in the schema of :func:`~jumpmq.store.columns.schema`, with offsets in place of numbers."""
    import pyarrow as pa

    schema = columns.schema()
    offsets = bytearray()
    append_numbers(offsets, first, 1, len(messages))
    numbers = columns.array_of("seq", len(messages), offsets)
    others = [columns.column(messages, name) for name in schema.names[1:]]
    return pa.RecordBatch.from_arrays([numbers, *others], schema=schema)


class StreamSegment:
    """A segment file for reading. :meth:`add` publishes appended chunks.

    The chunks of an existing file are located at their first use, because a file may have many. Each method or property
    that uses them raises :class:`Unreadable` if the file cannot be read.

    Args:
        first: offset of the first message, also in the file's name.
        end: offset behind the last message; None for the last file of a stream.
        on_loss: called with a sentence about each loss.
        limit: for the last file, offset behind the last committed message; None if the store does not have the offset.

    Attributes:
        salt: salt of the segment; 0 before the first chunk.
        lost: missing offsets of the file, as (first, end).
    """

    def __init__(
        self,
        path: Path,
        first: int,
        end: int | None = None,
        on_loss: Callable[[str], object] = log.error,
        limit: int | None = None,
    ) -> None:
        self.path = path
        self.first = first
        self.end = first if end is None else end
        limit = limit if end is None else end
        self._limit = (1 << 63) - 1 if limit is None else limit  # chunks from this offset on do not count
        self._may_be_torn = limit is None  # True if the last commit may be unfinished
        self.salt = 0
        self.lost: list[tuple[int, int]] = []
        self._is_last = end is None
        self._on_loss = on_loss
        self._size = 0
        self._last_time = 0
        self._losses: list[str] = []  # losses to report
        self._firsts = array("q")
        self._positions = array("q")
        self._times = array("q")
        self._ends = array("q")
        self._known = False
        self._file: FileOctets | None = None  # the deleted file, open for its last readers
        self._map: mmap.mmap | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        end: int | None = None,
        on_loss: Callable[[str], object] = log.error,
        limit: int | None = None,
    ) -> StreamSegment:
        """Open an existing file.

        Raises:
            Unreadable: the last file cannot be read. The file is not cut.
        """
        segment = cls(path, int(path.name.removesuffix(SUFFIX)), end, on_loss, limit)
        segment._size = path.stat().st_size
        # The end of the last file decides where to append; other files are scanned at their first use.
        if end is None:
            segment._learn()
        return segment

    @classmethod
    def begun(cls, path: Path, first: int) -> StreamSegment:
        """Return a new segment, without chunks so far."""
        segment = cls(path, first)
        segment._known = True
        return segment

    @property
    def is_last(self) -> bool:
        """True if more may be appended."""
        return self._is_last

    @property
    def size(self) -> int:
        """Octets in use."""
        return self._size

    @property
    def last_time(self) -> int:
        """Publishing time of the last message, in microseconds since the epoch."""
        self._learn()
        return self._last_time

    @property
    def last_chunk(self) -> int:
        """Offset of the first message of the last chunk."""
        self._learn()
        return self._firsts[-1] if self._firsts else self.first

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        self._learn()
        return len(self._firsts)

    def learn(self) -> None:
        """Find the chunks of the file, and report missing chunks."""
        self._learn()

    def end_at(self, end: int) -> None:
        """End the segment at a higher offset: offsets up to there are reported as lost, and nothing more is
        appended.
        """
        if self.end < end:
            self._report_lost(end)
            self._tell_losses()
            self.end, self._is_last = end, False

    def add(self, place: ChunkPlace) -> None:
        """Add an appended chunk."""
        self._firsts.append(place.first)
        self._positions.append(place.position)
        self._times.append(place.last_time)
        self._ends.append(place.first + place.message_count)
        self.end = place.first + place.message_count
        self._size = place.position + place.length
        self._last_time = place.last_time
        self.salt = place.salt

    def index_of(self, offset: int) -> int:
        """Return the index of the last chunk that begins at or before an offset; -1 if all chunks begin later."""
        self._learn()
        return bisect_right(self._firsts, offset) - 1

    def bounds(self, index: int) -> tuple[int, int]:
        """Return the first offset of a chunk, and the offset behind the last."""
        return self._firsts[index], self._ends[index]

    def time_of(self, index: int) -> int:
        """Return the publishing time of a chunk's last message, in microseconds since the epoch."""
        return self._times[index]

    def index_at(self, time: int) -> int | None:
        """Return the index of the first chunk with a message published at a time (microseconds since the epoch) or
        later; None without such a chunk.
        """
        self._learn()
        return next((index for index, last in enumerate(self._times) if last >= time), None)

    def is_whole(self, index: int) -> bool:
        """Return True if a chunk is undamaged."""
        with self._reads() as octets:
            return is_whole(octets, self._positions[index])

    def damage(self) -> Iterator[str]:
        """Yield a sentence about the lost offsets of each damaged chunk.

        Raises:
            Unreadable: the file cannot be read.
        """
        for index in range(self.chunk_count):
            if not self.is_whole(index):
                first, end = self.bounds(index)
                yield f"{self._damage(index)}: offsets {first} to {end - 1} are lost"

    def _damage(self, index: int) -> str:
        return f"{self.path} is damaged {self._positions[index]} octets from its start"

    def chunk(self, index: int) -> Chunk:
        """Read a chunk.

        The chunk is read from the file and verified. The result is in mapped memory, whose pages the system may drop
        and read again; right after the verification, the pages are in the system's cache.

        Raises:
            Unreadable: the file cannot be read.
            StoreError: the chunk is damaged.
        """
        import pyarrow as pa

        position = self._positions[index]
        with self._reads() as file:
            if not is_whole(file, position):
                raise StoreError(self._damage(index))
            octets = memoryview(self._mapped())
        _, _, length, count, first, *_ = HEADER.unpack_from(octets, position)
        body = octets[position + HEADER.size : position + HEADER.size + length]
        return Chunk(first, count, pa.ipc.read_record_batch(pa.py_buffer(body), columns.schema()))

    def remove(self) -> None:
        """Delete the file. Present readers can continue."""
        # A ValueError means an empty file, which cannot be mapped.
        with contextlib.suppress(OSError, ValueError):
            self._file = FileOctets(self.path)
            self._mapped()
        self.path.unlink(missing_ok=True)

    def _learn(self) -> None:
        """Find the chunks of the file, and report missing chunks. A possibly unfinished last commit counts up to the
        first damaged chunk.
        """
        if self._known:
            return
        end, size = self.end, self._size
        losses, self._losses = self._losses, []
        self.end, self._size = self.first, 0
        try:
            if size:
                with self._reads() as octets:
                    while (place := self._next_place(octets, size)) is not None:
                        self.add(place)
                    if self._may_be_torn:
                        self._drop_torn(octets)
        except Unreadable:
            # A failed scan leaves no partial result: the next use scans again.
            for found in self._firsts, self._positions, self._times, self._ends:
                del found[:]
            self.lost.clear()
            self.end, self._size, self._losses = end, size, losses
            raise
        self._known = True
        # The name of the next file fixes the end of this file: missing offsets are a loss, not an earlier end.
        if not self._is_last:
            if self.end < end:
                self._report_lost(end)
            self.end, self._size = end, size
        self._tell_losses()

    def _tell_losses(self) -> None:
        while self._losses:
            self._on_loss(self._losses.pop(0))

    @contextlib.contextmanager
    def _reads(self) -> Iterator[FileOctets]:
        """Give the file for reading.

        Raises:
            Unreadable: the file cannot be read.
        """
        try:
            yield self._file or FileOctets(self.path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreadable(f"{self.path} cannot be read: {reason}; the file is kept unchanged", reason) from None

    def _next_place(self, octets: FileOctets, size: int) -> ChunkPlace | None:
        """Return the location of the next chunk, whole or not; None behind the last chunk."""
        position = self._size
        place = place_of(octets, position)
        if place is not None and place.first == self.end and place.position + place.length <= size:
            return place if place.first < self._limit else None
        later = self._places_behind(octets, position)
        found = next(later, None)
        if found is None:
            return None
        if self._may_be_torn and all(place.commit <= position for place in itertools.chain([found], later)):
            return None  # all chunks from here on belong to one commit, left unfinished by a crash
        self._report_lost(found.first)
        return found

    def _places_behind(self, octets: FileOctets, position: int) -> Iterator[ChunkPlace]:
        """Yield whole chunks behind a position without a chunk."""
        end, salt = self.end, self.salt
        while (position := octets.find(MAGIC_OCTETS, position + 1)) >= 0:
            # A body may contain the magic number: only whole, aligned chunks of this segment count.
            if position % ALIGNMENT or (place := place_of(octets, position)) is None:
                continue
            fits = place.first >= end and place.first + place.message_count <= self._limit
            if fits and salt in (0, place.salt) and is_whole(octets, position):
                yield place
                end, salt = place.first + place.message_count, place.salt
                position += place.length - 1

    def _report_lost(self, end: int) -> None:
        self.lost.append((self.end, end))
        where = f"{self.path} is damaged or cut {self._size} octets from its start"
        self._losses.append(f"{where}: offsets {self.end} to {end - 1} are lost")

    def _drop_torn(self, octets: FileOctets) -> None:
        """Forget the chunks of the last commit from the first damaged chunk on."""
        if not self._positions:
            return
        last = place_of(octets, self._positions[-1])
        begin = bisect_left(self._positions, last.commit if last is not None else 0)
        count = len(self._positions)
        torn = next((one for one in range(begin, count) if not is_whole(octets, self._positions[one])), None)
        if torn is not None:
            log.warning(
                "%s: the last commit, offsets %d to %d, is unfinished or damaged, and is left out",
                self.path, self._firsts[torn], self.end - 1,
            )  # fmt: skip
            self.end, self._size = self._firsts[torn], self._positions[torn]
            del self._firsts[torn:], self._positions[torn:], self._times[torn:], self._ends[torn:]
            self._last_time = self._times[-1] if self._times else 0

    def _mapped(self, size: int | None = None) -> mmap.mmap:
        size = self._size if size is None else size
        if self._map is None or len(self._map) < size:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return self._map


def salt_of(path: Path) -> int:
    """Return the salt of a segment file, from the first chunk; 0 if damaged."""
    with path.open("rb") as file:
        octets = file.read(HEADER.size)
    if len(octets) < HEADER.size:
        return 0
    magic, *_, salt, crc = HEADER.unpack(octets)
    return int(salt) if magic == MAGIC and checksum(octets[CHECKED]) == crc else 0


def place_of(octets: FileOctets, position: int) -> ChunkPlace | None:
    """Return the location of the chunk with a reliable header at the position, if any; the chunk need not be whole."""
    head = octets.head(position, HEADER.size)
    if len(head) < HEADER.size:
        return None
    magic, _, length, count, first, first_time, last_time, commit, salt, crc = HEADER.unpack(head)
    if magic != MAGIC or not count:
        return None
    # Older versions wrote 0 as the second checksum: there the first checksum vouches for the header.
    is_sound = checksum(head[CHECKED]) == crc
    if not is_sound and not is_whole(octets, position):
        return None
    length += HEADER.size + -length % ALIGNMENT
    return ChunkPlace(first, count, position, length, first_time, last_time, commit, salt)


def is_whole(octets: FileOctets, position: int) -> bool:
    """Return True if the chunk at a position is undamaged."""
    head = octets.head(position, HEADER.size)
    if len(head) < HEADER.size:
        return False
    magic, crc, length, *_ = HEADER.unpack(head)
    if magic != MAGIC or position + HEADER.size + length > len(octets):
        return False
    with memoryview(octets.read(position + 8, HEADER.size - 8 + length)) as view:
        return bool(len(view) == HEADER.size - 8 + length and checksum(view) == crc)


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """Yield the messages of a batch, with offsets as numbers."""
    import pyarrow as pa

    times = batch.column("published_at").cast(pa.int64()).to_pylist()
    for row, (offset, exchange, key, properties, body) in enumerate(
        zip(*(column.to_pylist() for column in batch.columns[:5]), strict=True)
    ):
        message = Message(exchange, key, properties, body, True, times[row] / 1e6)
        message.seq = offset
        yield message
