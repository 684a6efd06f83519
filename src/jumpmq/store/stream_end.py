"""The end of a stream, where it grows: which octets are to be written where."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.store.files import Files
from jumpmq.store.layout import all_octets
from jumpmq.store.stream_segment import MAX_BYTES, MAX_COUNT, SUFFIX, ChunkPlace, Segment, encode
from jumpmq.store.writer import NO_SYNC, SYNC, SYNC_NAMES, Append

ALLOCATED_AHEAD = 16 << 20
"""Octets by which a file grows: fewer changes of its size make ``fdatasync`` faster."""


class _State(NamedTuple):
    """Where the next chunk goes.

    Attributes:
        file: descriptor of the last file, -1 where it is not open.
        path: that file; None where there is none yet.
        offset: of the next message.
        position: octets of the file in use.
        allocated: octets that it has.
        salt: the segment's.
    """

    file: int
    path: Path | None
    offset: int
    position: int
    allocated: int
    salt: int


class StreamEnd:
    """Lays out what is appended to a stream.

    Args:
        directory: of the stream.
        last: its last segment; None where a new one is to be begun.
        offset: of the next message, where a new one is.
        sync: whether anybody waits for the disk.
    """

    def __init__(self, directory: Path, last: Segment | None, files: Files, sync: bool, offset: int = 0) -> None:
        self._directory = directory
        self._files = files
        self._sync = SYNC if sync else NO_SYNC
        if last is None:
            self._state = _State(-1, None, offset, 0, 0, 0)
        else:
            self._state = _State(-1, last.path, last.end, last.size, 0, last.salt)
        self._done_with: list[tuple[int, int | None]] = []

    def lay_out(self, messages: list[Message], segment_bytes: int) -> tuple[list[Append], list[ChunkPlace]]:
        """What is to be written, one after the other, to append messages in one commit, and where they will lie.

        Raises:
            OSError: a file cannot be opened; nothing has changed.
        """
        before, kept = self._state, len(self._done_with)
        try:
            return self._lay_out(messages, segment_bytes)
        except OSError:
            opened = [file for file, _ in self._done_with[kept:]] + [self._state.file]
            for file in set(opened) - {before.file, -1}:
                self._files.close(file)
            del self._done_with[kept:]
            self._state = before
            raise

    def committed(self) -> None:
        """What was laid out is on disk: let go of files that are full."""
        for file, size in self._done_with:
            self._let_go(file, size)
        self._done_with.clear()

    def close(self) -> None:
        """Let go of all files; nothing is being written."""
        self.committed()
        if self._state.file >= 0:
            self._let_go(self._state.file, self._state.position)
            self._state = self._state._replace(file=-1)

    def _let_go(self, file: int, size: int | None) -> None:
        """Close a file; one with messages is cut first where the disk lets it be: what is behind them is zeros."""
        if size is not None:
            with contextlib.suppress(OSError):
                self._files.truncate(file, size)
        self._files.close(file)

    def _lay_out(self, messages: list[Message], segment_bytes: int) -> tuple[list[Append], list[ChunkPlace]]:
        appends: list[Append] = []
        places: list[ChunkPlace] = []
        commit = self._state.position
        buffers: list[bytes] = []
        for chunk in _chunks(messages):
            if self._state.file < 0 or self._state.position >= segment_bytes:
                appends += self._append(commit, buffers)
                appends += self._next_file(segment_bytes)
                commit, buffers = self._state.position, []
            place, octets = encode(chunk, self._state.offset, self._state.position, commit, self._state.salt)
            places.append(place)
            buffers += octets
            self._state = self._state._replace(offset=place.first + place.rows, position=place.position + place.length)
        return appends + self._append(commit, buffers), places

    def _append(self, position: int, buffers: list[bytes]) -> list[Append]:
        if not buffers:
            return []
        state, allocate = self._state, None
        if state.position > state.allocated:
            allocate = state.allocated, max(ALLOCATED_AHEAD, state.position - state.allocated)
            self._state = state._replace(allocated=sum(allocate))
        return [Append(state.file, position, buffers, allocate, self._sync)]

    def _next_file(self, segment_bytes: int) -> list[Append]:
        """Open the last file, or begin the next where that is full; what is to be synced for that."""
        state = self._state
        if state.path is not None and state.position < segment_bytes:
            file = self._files.open(state.path)
            self._state = state._replace(file=file, allocated=state.position)
            self._files.truncate(file, state.position)  # what a crash has left behind the last whole chunk
            return []
        if state.file >= 0:
            self._done_with.append((state.file, state.position))
        self._directory.mkdir(parents=True, exist_ok=True)
        path = segment_path(self._directory, state.offset)
        salt = int.from_bytes(os.urandom(4), "little")
        self._state = _State(self._files.create(path), path, state.offset, 0, 0, salt)
        directories = [self._directory] if state.path is not None else [self._directory, self._directory.parent]
        return [self._names(directory) for directory in directories] if self._sync == SYNC else []

    def _names(self, directory: Path) -> Append:
        """The names in a directory are to be on disk."""
        file = self._files.open_directory(directory)
        self._done_with.append((file, None))
        return Append(file, 0, [], None, SYNC_NAMES)


def segment_path(directory: Path, first: int) -> Path:
    """The file of the segment that begins with an offset."""
    return directory / f"{first:020d}{SUFFIX}"


def _chunks(messages: list[Message]) -> Iterator[list[Message]]:
    """Messages in parts of the size of a chunk."""
    for start in range(0, len(messages), MAX_COUNT):
        yield from _halved(messages[start : start + MAX_COUNT])


def _halved(messages: list[Message]) -> Iterator[list[Message]]:
    if len(messages) == 1 or all_octets(messages) <= MAX_BYTES:
        yield messages
        return
    middle = len(messages) // 2
    yield from _halved(messages[:middle])
    yield from _halved(messages[middle:])
