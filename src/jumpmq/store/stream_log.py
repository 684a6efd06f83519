"""The log of one stream: its messages by offset, in segment files of a directory of its own.

Two threads share one. The broker's reads, and drops what retention lets go; the writer's appends.
What was appended is seen by readers once it is on disk: the writer returns where it lies, and the broker's thread
makes that known with :meth:`StreamLog.publish`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.store.errors import StoreError
from jumpmq.store.stream_segment import (
    ALLOCATED_AHEAD,
    MAX_BYTES,
    MAX_COUNT,
    SUFFIX,
    Chunk,
    ChunkPlace,
    Segment,
    encode,
)

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_BYTES = 500_000_000
"""Octets of a segment unless the stream says otherwise, as in RabbitMQ."""

CACHED = 32
"""Chunks that are kept ready to be read again: readers at the same place share one."""


class StreamLog:
    """The messages of one stream.

    Attributes:
        first: the lowest offset that is still there.
        end: the offset after the last one on disk.
        size: octets of the segment files in use.
        on_growth: called when messages were added, and whether a segment was begun.
        segment_bytes: a segment that has reached so many octets is followed by the next.
    """

    def __init__(self, directory: Path, *, sync: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.segment_bytes = SEGMENT_BYTES
        self.on_growth: Callable[[bool], None] = lambda begun: None
        self._segments = [Segment.open(path) for path in sorted(directory.glob(f"*{SUFFIX}"))]
        if self._segments:
            self._segments[-1].drop_torn()
        self._cache: OrderedDict[int, Chunk] = OrderedDict()
        self._writer = _Writer(directory, self._segments[-1] if self._segments else None, sync)

    # --- the broker's thread ---

    @property
    def first(self) -> int:
        return self._segments[0].first if self._segments else 0

    @property
    def end(self) -> int:
        return self._segments[-1].end if self._segments else 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def last_chunk(self) -> int:
        """Offset of the first message of the last commit's last chunk."""
        return self._segments[-1].last_chunk if self._segments else 0

    def publish(self, places: list[ChunkPlace]) -> None:
        """Make known what the writer has put on disk."""
        before = len(self._segments)
        for place in places:
            if not place.position and not (self._segments and self._segments[-1].first == place.first):
                self._segments.append(Segment(segment_path(self._directory, place.first), place.first))
            self._segments[-1].add(place)
        self.on_growth(len(self._segments) > before)

    def chunk(self, offset: int) -> Chunk:
        """The chunk that holds a message, from ``first`` to before ``end``.

        Raises:
            StoreError: it is damaged.
        """
        segment = next(one for one in reversed(self._segments) if one.first <= offset)
        found = self._chunk(segment, segment.row_of(offset))
        if offset >= found.first + found.rows:
            raise StoreError(f"{segment.path} lacks what comes after message {found.first + found.rows - 1}")
        return found

    def _chunk(self, segment: Segment, row: int) -> Chunk:
        key = segment.first_of(row)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = segment.chunk(row)
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return found

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The messages with offsets ``first`` to ``last`` as far as they are there, in batches as they were written.

        What is there when the first is asked for is read to its end, whatever retention lets go of meanwhile. Nothing
        is copied: the columns lie in mapped files. See :func:`jumpmq.store.columns.schema`; ``seq`` is the offset.

        Raises:
            StoreError: a chunk is damaged.
        """
        for segment in [one for one in self._segments if first < one.end and one.first <= last]:
            for row in range(max(segment.row_of(first), 0), segment.row_of(last) + 1):
                chunk = self._chunk(segment, row)
                start, stop = max(first - chunk.first, 0), min(last + 1 - chunk.first, chunk.rows)
                yield chunk.batch.slice(start, stop - start)

    def offset_of(self, timestamp: float) -> int:
        """Offset of the first message published at ``timestamp`` (seconds since the epoch) or later, else ``end``."""
        time = int(timestamp * 1e6)
        for segment in self._segments:
            if segment.last_time < time or (row := segment.row_at(time)) is None:
                continue
            chunk = segment.chunk(row)
            times = chunk.batch.column("published_at").cast("int64").to_pylist()
            return chunk.first + next(place for place, one in enumerate(times) if one >= time)
        return self.end

    def retain(self, max_bytes: int | None, oldest: float | None) -> None:
        """Drop the oldest segments, whole ones, never the last.

        Args:
            max_bytes: as long as the others hold so many octets.
            oldest: those whose messages were all published before, in seconds since the epoch.
        """
        while len(self._segments) > 1:
            first = self._segments[0]
            too_much = max_bytes is not None and self.size - first.size >= max_bytes
            too_old = oldest is not None and first.last_time < oldest * 1e6
            if not (too_much or too_old):
                return
            del self._segments[0]
            first.remove()

    # --- the writer's thread ---

    def write(self, messages: list[Message]) -> list[ChunkPlace]:
        """Append messages and have them on disk; after an error the same may be tried again."""
        return self._writer.write(messages, self.segment_bytes)

    def close(self) -> None:
        self._writer.close()

    def remove(self) -> None:
        """Delete everything."""
        self._writer.close()
        shutil.rmtree(self._directory, ignore_errors=True)


class _Writer:
    """The end of a stream, where it grows."""

    def __init__(self, directory: Path, last: Segment | None, sync: bool) -> None:
        self._directory = directory
        self._sync = sync
        self._file = -1
        self._path = None if last is None else last.path
        self._offset = 0 if last is None else last.end
        self._position = 0 if last is None else last.size
        self._allocated = 0

    def write(self, messages: list[Message], segment_bytes: int) -> list[ChunkPlace]:
        before = self._offset, self._position, self._path
        try:
            return self._write(messages, segment_bytes)
        except BaseException:  # as if it had not been tried
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            self._offset, self._position, self._path = before
            raise

    def _write(self, messages: list[Message], segment_bytes: int) -> list[ChunkPlace]:
        places = []
        for chunk in _chunks(messages):
            if self._file < 0 or self._position >= segment_bytes:
                self._next_file(segment_bytes)
            place, pieces = encode(chunk, self._offset, self._position)
            self._allocate(place.position + place.length)
            _pwrite_all(self._file, pieces, place.position)
            places.append(place)
            self._offset += place.rows
            self._position = place.position + place.length
        if self._sync:
            os.fdatasync(self._file)
        return places

    def close(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._position)
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def _next_file(self, segment_bytes: int) -> None:
        """Open the last file, or begin the next where that is full."""
        if self._path is None or self._position >= segment_bytes:
            self.close()
            self._path, self._position = segment_path(self._directory, self._offset), 0
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, self._position)  # what a crash has left behind the last whole chunk
        self._allocated = self._position
        if self._sync:
            _sync_directory(self._directory)

    def _allocate(self, end: int) -> None:
        if end > self._allocated:
            size = max(ALLOCATED_AHEAD, end - self._allocated)
            os.posix_fallocate(self._file, self._allocated, size)
            self._allocated += size


def segment_path(directory: Path, first: int) -> Path:
    """The file of the segment that begins with an offset."""
    return directory / f"{first:020d}{SUFFIX}"


def _chunks(messages: list[Message]) -> Iterator[list[Message]]:
    start = size = 0
    for place, message in enumerate(messages):
        if place - start >= MAX_COUNT or size >= MAX_BYTES:
            yield messages[start:place]
            start, size = place, 0
        size += len(message.body)
    yield messages[start:]


def _pwrite_all(file: int, pieces: list[bytes | pa.Buffer], position: int) -> None:
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            written = os.pwrite(file, rest, position)
            rest, position = rest[written:], position + written


def _sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
