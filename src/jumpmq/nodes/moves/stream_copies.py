"""Receiver of a stream's files: a stream that moves to a different machine takes its files along.

The new home requests pieces of segments, a few at a time, checks their CRC, writes and syncs them. The checksums of a
segment's chunks are verified once the segment is complete. Copied files survive a broken link and a kill of either
process; the next attempt continues after the last whole chunk. Copied files are deleted if the stream stays at its old
home, or if nobody requests the rest for ``Timing.copies_kept`` seconds.

A home with copies has to replicate the stream. It writes the chunks to its log instead, in commits of about
:data:`IMPORTED` octets (:mod:`jumpmq.store.stream_import`).
"""

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.memory import resources
from jumpmq.nodes.moves.copy_records import Copied, CopyRequest
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import COPIED, COPY, FORGET, GIVEN, NUMBER, PIECE, WANT, WANTED
from jumpmq.queues.stream import Stream
from jumpmq.store.stream_copy import Extent, SegmentCopy
from jumpmq.store.stream_end import segment_path
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_import import ChunkCutter, ImportedChunk
from jumpmq.store.stream_log import StreamLog

WINDOW = 4
"""Maximum number of pieces in flight."""

IMPORTED = 1 << 20
"""Octets of chunks per commit to the log of a home with copies."""

LOOKING = 0.002
"""Time slice for checking chunks, in seconds."""

LOOKED_AT_ROOM = 8 << 20
"""Octets between checks of the disk's free space."""

SILENCE = 10.0
"""Seconds without a piece before a copy is given up until requested again."""

log = logging.getLogger(__name__)


_Write = Callable[[bytes, bool], Awaitable[None]]
"""Writes a piece of a segment; the second argument is True for the last piece."""


class _Interrupted(Exception):
    """The copy was interrupted. The stream's home requests the copy again, unless it is no longer needed."""


class _Refused(Exception):
    """The copy is impossible; the text gives the reason."""


class _FileGone(_Refused):
    """The copy is impossible, as a file no longer exists."""


class _Piece(NamedTuple):
    """A received piece.

    Attributes:
        is_there: True if ``octets`` are the piece; False if they are the text of an error.
    """

    first: int
    position: int
    is_there: bool
    octets: bytes


@dataclass
class _Copying:
    """A copy under way.

    Attributes:
        link: the link to the sender.
        copy: the sender's request.
        pieces: received pieces, not written yet.
        came: set when a piece arrives, or the copy ends.
        is_over: True once the copy is cancelled, or its link is down.
    """

    link: Link
    copy: CopyRequest
    pieces: deque[_Piece] = field(default_factory=deque)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False


class StreamCopies:
    """Copies of remote streams made at the local home.

    Args:
        awaiting: returns the local stream that waits for copied files, found by its previous or current id; None if no
            stream waits.
    """

    def __init__(self, links: Links, turns: Turns, awaiting: Callable[[int], Stream | None]) -> None:
        self._timing = links.timing
        self._awaiting = awaiting  # finds the stream for the files
        self._turns = turns  # those of the broker
        self._files: StreamFiles | None = None  # of the local streams; None before the start
        self._limit: Callable[[], int] = lambda: 0  # octets of disk that have to stay free
        self._segments: dict[int, dict[int, SegmentCopy]] = {}  # by id of the stream at the sender, and first offset
        self._copying: dict[int, _Copying] = {}  # by id of the stream at the sender
        self._tasks: dict[int, asyncio.Task[None]] = {}  # one for each of ``_copying``
        self._deleting: set[int] = set()  # ids of streams whose copied files are being deleted
        self._numbers: dict[int, int] = {}  # previous ids, by the id here
        self._deletions: set[asyncio.Task[None]] = set()  # tasks that delete copied files
        self._asked: dict[int, float] = {}  # loop time of the last request per stream
        self._sweeping: asyncio.Task[None] | None = None  # deletes abandoned copies
        links.handlers[COPY] = self._copy
        links.handlers[PIECE] = self._piece
        links.handlers[FORGET] = lambda link, payload: self.forget(NUMBER.unpack(payload)[0])
        links.on_down.append(self._down)

    def serve(self, files: StreamFiles, limit: Callable[[], int], queues: set[int]) -> None:
        """Start accepting copies. Copied files of deleted streams are deleted.

        Args:
            limit: returns the octets of disk that have to stay free.
            queues: the current and previous ids of all queues.
        """
        self._files, self._limit = files, limit
        self._asked = dict.fromkeys(files.all_coming(), asyncio.get_running_loop().time())
        for number in self._asked.keys() - queues:
            self.forget(number)
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep(files))

    def stop(self) -> None:
        """Cancel all tasks; the next run of the process continues."""
        for task in (*self._tasks.values(), self._sweeping):
            if task is not None:
                task.cancel()

    def expect(self, to: int, number: int) -> None:
        """Prepare for the files of a queue that has moved here. A stream may already have copied files.

        Args:
            to: current id of the queue.
            number: previous id of the queue.
        """
        self._numbers[to] = number

    def forget(self, number: int) -> None:
        """Delete the copied files, if any, of a stream with the given current or previous id."""
        number = self._numbers.pop(number, number)
        if (copying := self._copying.get(number)) is not None:
            copying.is_over = True
            copying.came.set()
        if self._files is not None and number in self._asked:
            deleting = asyncio.get_running_loop().create_task(self._delete(self._files, number))
            self._deletions.add(deleting)
            deleting.add_done_callback(self._deletions.discard)

    async def _delete(self, files: StreamFiles, number: int) -> None:
        if (task := self._tasks.get(number)) is not None and task is not asyncio.current_task():
            await asyncio.wait([task])
        self._segments.pop(number, None)
        self._asked.pop(number, None)
        self._deleting.add(number)
        try:
            with self._turns.turn():
                files.forget_importing(number)
            await asyncio.to_thread(files.forget_coming, number)
        finally:
            self._deleting.discard(number)

    async def _sweep(self, files: StreamFiles) -> None:
        while True:
            now = asyncio.get_running_loop().time()
            for number in [number for number, asked in self._asked.items() if now - asked >= self._timing.copies_kept]:
                if number not in self._tasks and self._awaiting(number) is None:
                    log.warning("the partial copy of stream %d is deleted: the stream's home does not continue", number)
                    await self._delete(files, number)
            await asyncio.sleep(self._timing.copies_look)

    # --- records ---

    def _copy(self, link: Link, payload: memoryview) -> None:
        copy = CopyRequest.decode(payload)
        if self._files is None or copy.number in self._deleting:  # the request comes again
            return
        self._asked[copy.number] = asyncio.get_running_loop().time()
        if (copying := self._copying.get(copy.number)) is not None:
            if copying.copy.attempt != copy.attempt:
                copying.is_over = True
                copying.came.set()
            return
        copying = self._copying[copy.number] = _Copying(link, copy)
        self._tasks[copy.number] = asyncio.get_running_loop().create_task(self._run(self._files, copying))

    def _piece(self, link: Link, payload: memoryview) -> None:
        number, first, position, crc, is_there = GIVEN.unpack_from(payload)
        copying = self._copying.get(number)
        if copying is None or copying.link is not link:
            return
        octets = bytes(payload[GIVEN.size :])
        if zlib.crc32(octets) != crc:
            copying.is_over = True
        copying.pieces.append(_Piece(first, position, is_there, octets))
        copying.came.set()

    def _down(self, link: Link) -> None:
        for copying in self._copying.values():
            if copying.link is link:
                copying.is_over = True
                copying.came.set()

    # --- copying ---

    async def _run(self, files: StreamFiles, copying: _Copying) -> None:
        number, attempt = copying.copy.number, copying.copy.attempt
        answer = Copied(number, attempt)
        try:
            if copying.copy.to:
                await self._take_over(files, copying)
            elif files.is_copied:
                await self._import_all(files, copying)
            else:
                await self._fetch_all(files, copying)
        except _Interrupted:
            return
        except _Refused as refusal:
            answer = Copied(number, attempt, str(refusal), isinstance(refusal, _FileGone))
        except Exception as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            answer = Copied(number, attempt, reason)
            if not isinstance(error, OSError):
                log.exception("files of stream %d of home %d cannot be copied", number, copying.link.peer)
        finally:
            del self._copying[number], self._tasks[number]
        if answer.problem and not answer.is_gone and not copying.copy.to:
            await self._delete(files, number)
        if copying.link.up:
            with self._turns.turn():
                copying.link.send(COPIED, answer.encode())

    async def _take_over(self, files: StreamFiles, copying: _Copying) -> None:
        """Copy missing files, and serve the stream from the copy, unless deleted before or meanwhile."""
        number = copying.copy.number
        if self._awaiting(number) is not None and files.is_copied:
            await self._import_all(files, copying)
            if (stream := self._awaiting(number)) is not None:
                assert copying.copy.handed is not None
                with self._turns.turn():
                    stream.move.adopt(number, copying.copy.handed)
        elif self._awaiting(number) is not None:
            directory = await self._fetch_all(files, copying)
            if (stream := self._awaiting(number)) is not None:
                with self._turns.turn():
                    stream.move.take_over(directory)
        await self._turns.committed()  # the old home deletes its files after the answer
        self._segments.pop(number, None)
        self._asked.pop(number, None)
        self._numbers.pop(copying.copy.to, None)

    async def _fetch_all(self, files: StreamFiles, copying: _Copying) -> Path:
        copy = copying.copy
        directory = await asyncio.to_thread(files.coming, copy.number)
        segments = self._segments.setdefault(copy.number, {})
        wanted = {extent.first: extent for extent in copy.extents}
        for segment in [files.segment_copy(copy.number, extent.first) for extent in copy.extents]:
            segments.setdefault(int(segment.path.stem), segment)
        await asyncio.to_thread(_drop_others, directory, {segments[first].path for first in wanted})
        for first in segments.keys() - wanted:
            del segments[first]
        there = await asyncio.to_thread(lambda: sum(path.stat().st_size for path in directory.iterdir()))
        await self._require_room(directory, copy, copy.octets - there)
        for extent in copy.extents:
            if (segment := segments[extent.first]).size != extent.size:
                try:
                    await self._fetch(copying, segment, extent)
                except _FileGone:
                    if not copy.to:
                        raise
                    segment.path.unlink()  # the lost messages are reported when the stream is opened
        return await asyncio.to_thread(files.finish_coming, copy.number, copy.handed)

    async def _require_room(self, directory: Path, copy: CopyRequest, octets: int) -> None:
        """Refuse a copy for which the disk has no room. A stream that has already moved here is copied in any case."""
        if not copy.to:
            room = max(0, await asyncio.to_thread(resources.disk_free, directory) - self._limit())
            if octets > room:
                raise _Refused(f"{octets} octets are to be copied, and its disk has room for {room}")

    async def _fetch(self, copying: _Copying, segment: SegmentCopy, extent: Extent) -> None:
        """Copy the rest of a segment."""
        await self._look(copying, segment)
        if segment.end > extent.end or segment.position > extent.size:
            segment.begin_again()
        await asyncio.to_thread(segment.cut)

        async def write(octets: bytes, last: bool) -> None:
            await asyncio.to_thread(segment.write, octets, last=last)

        await self._fetch_pieces(copying, extent, segment.position, segment.path.parent, write)
        await self._look(copying, segment)
        if segment.end == extent.end:
            segment.size = extent.size
        elif not copying.copy.to:
            raise _Refused(
                f"{segment.path.name} is damaged {segment.position} octets from its start: "
                f"offset {segment.end} and others cannot be read"
            )

    async def _fetch_pieces(
        self, copying: _Copying, extent: Extent, position: int, directory: Path, write: _Write
    ) -> None:
        """Request the octets of a segment from a position on, and pass them to ``write``."""
        asked = written = position
        most = self._timing.piece_octets
        while written < extent.size:
            with self._turns.turn():
                while asked < extent.size and asked - written < WINDOW * most:
                    length = min(most, extent.size - asked)
                    copying.link.send(WANT, WANTED.pack(copying.copy.number, extent.first, asked, length))
                    asked += length
            piece = await self._next_piece(copying)
            # First: an earlier attempt, whose file was gone, may have asked for pieces that are refused only now.
            if (piece.first, piece.position) != (extent.first, written):
                raise _Interrupted
            if not piece.is_there:
                problem = bytes(piece.octets).decode(errors="replace")
                raise (
                    _Refused(problem)
                    if problem
                    else _FileGone(f"{segment_path(directory, extent.first).name} is not there any more")
                )
            written += len(piece.octets)
            await write(piece.octets, written == extent.size)
            if written // LOOKED_AT_ROOM != (written - len(piece.octets)) // LOOKED_AT_ROOM:
                await self._require_room(directory, copying.copy, extent.size - written)

    async def _import_all(self, files: StreamFiles, copying: _Copying) -> None:
        """Write the missing chunks of a stream to the log."""
        copy = copying.copy
        with self._turns.turn():
            stream = files.importing(copy.number, copy.extents[0].first if copy.extents else 0)
        directory = stream.path_of(0).parent
        await self._require_room(directory, copy, 2 * max(0, copy.octets - stream.size))  # twice: also in the log
        for extent in copy.extents:
            if extent.end > stream.end:
                try:
                    await self._import(files, copying, stream, extent)
                except _FileGone:
                    if not copy.to:
                        raise

    async def _import(self, files: StreamFiles, copying: _Copying, stream: StreamLog, extent: Extent) -> None:
        """Write the missing chunks of a segment to the log."""
        last = stream.extents[-1] if stream.extents else None
        goes_on = last is not None and last.first == extent.first
        position = last.size if last is not None and goes_on else 0
        cutter = ChunkCutter(stream.end, begins=not goes_on, salt=stream.bounds.salt if goes_on else 0)
        waiting: list[ImportedChunk] = []

        async def write(octets: bytes, is_last: bool) -> None:
            waiting.extend(cutter.add(octets, last=is_last))
            if cutter.is_damaged and not copying.copy.to:
                name = stream.path_of(extent.first).name
                raise _Refused(f"{name} is damaged: offset {stream.end} or a later one cannot be read")
            if waiting and (is_last or sum(len(chunk.octets) for chunk in waiting) >= IMPORTED):
                with self._turns.turn():
                    files.import_chunks(stream, waiting.copy())
                waiting.clear()
                await self._turns.committed()

        await self._fetch_pieces(copying, extent, position, stream.path_of(0).parent, write)

    async def _next_piece(self, copying: _Copying) -> _Piece:
        if not copying.pieces and not copying.is_over:
            copying.came.clear()
            try:
                async with asyncio.timeout(SILENCE):
                    await copying.came.wait()
            except TimeoutError:
                raise _Interrupted from None
        if copying.is_over:
            raise _Interrupted
        return copying.pieces.popleft()

    async def _look(self, copying: _Copying, segment: SegmentCopy) -> None:
        """Verify the chunks of a segment, in time slices."""
        while await asyncio.to_thread(segment.look, LOOKING):
            if copying.is_over:
                raise _Interrupted


def _drop_others(directory: Path, wanted: set[Path]) -> None:
    """Delete the files of segments that the sender's retention has deleted meanwhile."""
    for path in directory.iterdir():
        if path not in wanted:
            path.unlink()
