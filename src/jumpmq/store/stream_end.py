"""The growing end of a stream: lays out appended messages for the log and for the stream's file.

Each commit syncs the log, but not the stream's file: a start writes missing chunks from the log to the file. The files
are synced before the index covers the log's chunks (:meth:`StreamEnd.take_unsynced`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.store.files import Files
from jumpmq.store.layout import octets
from jumpmq.store.records import Block, stream_block
from jumpmq.store.stream_import import ImportedChunk
from jumpmq.store.stream_segment import MAX_BYTES, MAX_COUNT, SUFFIX, ChunkPlace, StreamSegment, encode
from jumpmq.store.worker import StreamWrite


class Laid(NamedTuple):
    """The writes for appending messages to a stream.

    Attributes:
        appends: writes to the stream's files.
        blocks: blocks for the log.
        places: locations of the chunks in the stream's files.
    """

    appends: list[StreamWrite]
    blocks: list[Block]
    places: list[ChunkPlace]


class _State(NamedTuple):
    """Position of the next chunk.

    Attributes:
        file: descriptor of the last file; -1 if closed.
        path: path of the last file; None before the first file.
        first: offset of the file's first message.
        offset: offset of the next message.
        position: octets of the file in use.
        allocated: allocated octets of the file.
        salt: salt of the segment.
    """

    file: int
    path: Path | None
    first: int
    offset: int
    position: int
    allocated: int
    salt: int


class StreamEnd:
    """Lays out messages appended to a stream.

    Args:
        directory: directory of the stream.
        last: last segment; None to begin a new segment.
        offset: offset of the next message, for a new segment.
    """

    def __init__(self, directory: Path, last: StreamSegment | None, files: Files, offset: int = 0) -> None:
        self._directory = directory
        self._files = files
        if last is None:
            self._state = _State(-1, None, offset, offset, 0, 0, 0)
        else:
            self._state = _State(-1, last.path, last.first, last.end, last.size, 0, last.salt)
        self._written = self._state  # state after the last write, before the last layout
        self._full: list[tuple[int, int]] = []  # descriptors and octets of full files
        self._unsynced: dict[Path, None] = {}  # possibly unsynced files and directories

    def lay_out(self, messages: list[Message], segment_bytes: int) -> Laid:
        """Return the writes for appending messages in one commit; :meth:`written` or :meth:`put_back` follows.

        Raises:
            OSError: a file cannot be opened; nothing has changed.
        """
        try:
            return self._lay_out(messages, segment_bytes)
        except OSError:
            self.put_back()
            raise

    def lay_out_imported(self, chunks: list[ImportedChunk]) -> Laid:
        """Like :meth:`lay_out`, for chunks of another home.

        Raises:
            OSError: a file cannot be opened; nothing has changed.
        """
        try:
            return self._lay_out_imported(chunks)
        except OSError:
            self.put_back()
            raise

    def go_on_at(self, offset: int) -> None:
        """Begin the next segment with an offset. No write may be under way."""
        self.close()
        self._state = self._written = _State(-1, None, offset, offset, 0, 0, 0)

    def written(self) -> None:
        """Record the laid-out messages as written to the log and the files, and release full files."""
        for file, size in self._full:
            self._close_file(file, size)
        self._full.clear()
        self._written = self._state

    def put_back(self) -> None:
        """Undo an unwritten layout: the next layout begins at the former position."""
        # Only files opened for the layout: the file of the last write goes on.
        for file in {self._state.file, *(file for file, _ in self._full)} - {self._written.file, -1}:
            self._files.close(file)
        self._full.clear()
        self._state = self._written

    def must_sync(self, path: Path) -> None:
        """Note a possibly unsynced file or directory."""
        self._unsynced[path] = None

    def take_unsynced(self) -> list[Path]:
        """Return the files and directories to sync before removal of the log's copy."""
        unsynced, self._unsynced = list(self._unsynced), {}
        return unsynced

    def close(self) -> None:
        """Release all files. No write may be under way."""
        self.written()
        if self._state.file >= 0:
            self._close_file(self._state.file, self._state.position)
            self._state = self._written = self._state._replace(file=-1)

    def _close_file(self, file: int, size: int) -> None:
        """Close a file, truncated first if the disk permits: zeros follow the messages."""
        with contextlib.suppress(OSError):
            self._files.truncate(file, size)
        self._files.close(file)

    def _lay_out(self, messages: list[Message], segment_bytes: int) -> Laid:
        laid = Laid([], [], [])
        commit = self._state.position
        buffers: list[bytes] = []
        for chunk in _chunks(messages):
            if self._state.file < 0 or self._state.position >= segment_bytes:
                self._append(laid, commit, buffers)
                self._next_file(segment_bytes)
                commit, buffers = self._state.position, []
            state = self._state
            place, octets = encode(chunk, state.offset, state.position, commit, state.salt)
            self._add(laid, place, octets)
            buffers += octets
        self._append(laid, commit, buffers)
        return laid

    def _lay_out_imported(self, chunks: list[ImportedChunk]) -> Laid:
        laid = Laid([], [], [])
        for chunk in chunks:
            if chunk.begins:
                self._begin_file(chunk.place.first, chunk.place.salt)
            elif self._state.file < 0:
                self._open_file()
            place = chunk.place._replace(position=self._state.position)
            self._add(laid, place, [chunk.octets])
            self._append(laid, place.position, [chunk.octets])
        return laid

    def _add(self, laid: Laid, place: ChunkPlace, octets: list[bytes]) -> None:
        number = int(self._directory.name)
        laid.places.append(place)
        count = place.message_count
        laid.blocks.append(stream_block(number, self._state.first, place.position, place.first, count, octets))
        self._state = self._state._replace(offset=place.first + count, position=place.position + place.length)

    def _append(self, laid: Laid, position: int, buffers: list[bytes]) -> None:
        if not buffers:
            return
        state, allocate = self._state, None
        if state.position > state.allocated:
            allocate = state.allocated, max(self._files.allocated_ahead, state.position - state.allocated)
            self._state = state._replace(allocated=sum(allocate))
        assert state.path is not None
        self.must_sync(state.path)
        laid.appends.append(StreamWrite(state.file, position, buffers, allocate))

    def _next_file(self, segment_bytes: int) -> None:
        """Open the last file; begin the next file if the last file is full."""
        state = self._state
        if state.path is not None and state.position < segment_bytes:
            self._open_file()
        else:
            self._begin_file(state.offset, int.from_bytes(os.urandom(4), "little"))

    def _open_file(self) -> None:
        state = self._state
        assert state.path is not None
        file = self._files.open(state.path)
        self._state = state._replace(file=file, allocated=state.position)
        self._files.truncate(file, state.position)  # remove the remains of a crash behind the last whole chunk

    def _begin_file(self, first: int, salt: int) -> None:
        state = self._state
        if state.file >= 0:
            # Closed by `written` only: after a failed commit, the next layout continues in this file.
            self._full.append((state.file, state.position))
        # The creation at the stream's declaration may have failed.
        self._directory.mkdir(parents=True, exist_ok=True)
        path = segment_path(self._directory, first)
        self._state = _State(self._files.create(path), path, first, first, 0, 0, salt)
        # The name of the file; with the first file also the name of the stream's directory.
        for directory in [self._directory] if state.path is not None else [self._directory, self._directory.parent]:
            self.must_sync(directory)


def segment_path(directory: Path, first: int) -> Path:
    """Return the path of the segment beginning with an offset."""
    return directory / f"{first:020d}{SUFFIX}"


def _chunks(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield messages in parts, one per chunk."""
    for start in range(0, len(messages), MAX_COUNT):
        yield from _halved(messages[start : start + MAX_COUNT])


def _halved(messages: list[Message]) -> Iterator[list[Message]]:
    if len(messages) == 1 or octets(messages)[1] <= MAX_BYTES:
        yield messages
        return
    middle = len(messages) // 2
    yield from _halved(messages[:middle])
    yield from _halved(messages[middle:])
