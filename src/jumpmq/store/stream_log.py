"""The log of a stream: messages by offset, in segment files of a separate directory.

Appended messages are laid out here. A commit of the store writes the layout to the store's log and to the stream's
file. Readers get the messages once the commit is complete. Damaged chunks are reported and left out; reads continue
behind them.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.store.completion import CompleteCommit
from jumpmq.store.errors import StoreError, Unreadable
from jumpmq.store.files import Files
from jumpmq.store.stream_bounds import HANDED, Bounds, HandedFiles, Known
from jumpmq.store.stream_copy import Extent
from jumpmq.store.stream_end import Laid, StreamEnd, segment_path
from jumpmq.store.stream_import import ImportedChunk
from jumpmq.store.stream_redo import contents, redo, without
from jumpmq.store.stream_segment import SUFFIX, Chunk, ChunkPlace, StreamSegment, salt_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

SEGMENT_BYTES = 500_000_000
"""Default octets of a segment, as in RabbitMQ."""

UNCOMMITTED = ".uncommitted"
"""Suffix of a file with messages of a commit left unfinished by a crash."""

CACHED = 32
"""Number of chunks cached for further reads: readers at an equal position share a chunk."""


class StreamLog:
    """The messages of a stream.

    Attributes:
        first: lowest remaining offset.
        end: offset behind the last complete message.
        size: octets of the segment files in use.
        handed: state of the stream at its previous home; None when no longer needed.
        is_gone: True if the stream was deleted, or moved to another home.
        segment_bytes: octets of a segment after which the next segment begins.

    Args:
        directory: directory of the stream's files, named by the stream's number.
        known: the store's state of the stream; None without any.
        name: name of the stream for operators.
        on_loss: called with a sentence about each loss.
        on_retire: called with each segment removed by retention, to delete the file.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        *,
        known: Known | None = None,
        name: str = "",
        on_loss: Callable[[str], object] = log.error,
        on_retire: Callable[[StreamSegment], object] = StreamSegment.remove,
    ) -> None:
        is_new = _make(directory)
        self._directory = directory
        self.handed = None if is_new else _handed(directory)
        self.is_gone = False
        known = _with_handed(known, self.handed)
        # Before the files are read: after a crash the files may lack the chunks of the last commits.
        unsynced = [] if known is None else redo(directory, known, files)
        self.number = int(directory.name)
        self._name = f" of {name}" if name else ""
        self._files = files  # the file calls
        self._tell = on_loss
        self._on_retire = on_retire
        self.segment_bytes = SEGMENT_BYTES
        self._on_growth: Callable[[bool], None] = _ignore_growth  # called after messages were added
        self._segments = [] if is_new and not unsynced else _segments(directory, known, self._on_loss)
        self._floor = 0  # the next offset, while the stream has no segment
        if known is not None:
            self._hold_against(known)
        # A segment closed by `end_at` takes no more messages: the next message begins a file.
        whole = self._segments and self._segments[-1].is_last
        self._end = StreamEnd(directory, self._segments[-1] if whole else None, files, self.end)
        for path in unsynced:
            self._end.must_sync(path)
        self._cache: OrderedDict[int, Chunk] = OrderedDict()
        self._damaged: set[int] = set()
        self._unreadable: set[str] = set()  # reasons already logged

    def listen(self, on_growth: Callable[[bool], None]) -> None:
        """Set the function called after messages are added; the argument is True if a new segment was begun."""
        self._on_growth = on_growth

    def fall_silent(self) -> None:
        """Call no function any more: a circle of a stream and its files would wait for a full garbage collection."""
        self._on_growth = _ignore_growth

    @property
    def first(self) -> int:
        return self._segments[0].first if self._segments else self._floor

    @property
    def end(self) -> int:
        return self._segments[-1].end if self._segments else self._floor

    @property
    def bounds(self) -> Bounds:
        """Bounds of the stream for the store's record."""
        segments = self._segments
        if not segments:
            return Bounds(self._floor, self._floor, 0, 0, 0, is_exact=True)
        octets = sum(segment.size for segment in segments[:-1])
        return Bounds(self.first, self.end, len(segments), octets, segments[-1].salt, is_exact=True)

    def _on_loss(self, loss: str) -> None:
        self._tell(loss + self._name)

    def _on_unreadable(self, error: Unreadable) -> None:
        """Report an unreadable part, once."""
        if str(error) not in self._unreadable:
            self._unreadable.add(str(error))
            self._on_loss(str(error))

    def _hold_against(self, known: Known) -> None:
        """Report messages that the store knows, and the files lack. Offsets continue behind the missing messages."""
        bounds = known.bounds
        for lost_first, lost_end in lost_at_ends(self._segments, known):
            # Missing messages at the end are reported by `end_at`.
            if not self._segments or lost_end <= self._segments[0].first:
                self._on_loss(f"{self._directory} lacks files: offsets {lost_first} to {lost_end - 1} are lost")
        held = [segment for segment in self._segments if segment.first < bounds.end]
        # All chunks are located only to name lost offsets; otherwise a file is scanned at its first use.
        if len(held) < bounds.segments or sum(segment.size for segment in held[:-1]) < bounds.octets:
            for segment in held:
                segment.learn()
        if self._segments:
            self._segments[-1].end_at(known.end)
        else:
            self._floor = known.end

    @property
    def extents(self) -> list[Extent]:
        """Complete extents, segment by segment."""
        return [Extent(segment.first, segment.end, segment.size) for segment in self._segments]

    def path_of(self, first: int) -> Path:
        """Return the file of the segment beginning with an offset."""
        return segment_path(self._directory, first)

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

    def publish(self, places: list[ChunkPlace], complete: CompleteCommit) -> None:
        """Publish completed chunks."""
        before = len(self._segments)
        for place in places:
            if not place.position:
                self._segments.append(StreamSegment.begun(segment_path(self._directory, place.first), place.first))
            self._segments[-1].add(place)
        self._on_growth(len(self._segments) > before)

    def chunk_from(self, offset: int) -> Chunk | None:
        """Return the chunk with the message at an offset. If this chunk is lost, return the next chunk; None without a
        next chunk.

        Raises:
            Unreadable: the file cannot be read.
        """
        begin = max(0, bisect_right(self._segments, offset, key=lambda segment: segment.first) - 1)
        with self._tells():
            for segment in self._segments[begin:]:
                for index in range(max(segment.index_of(offset), 0), segment.chunk_count):
                    if segment.bounds(index)[1] > offset and (found := self._chunk(segment, index)) is not None:
                        return found
        return None

    @contextlib.contextmanager
    def _tells(self) -> Iterator[None]:
        """Report unreadable content, and raise the error."""
        try:
            yield
        except Unreadable as error:
            self._on_unreadable(error)
            raise

    def _chunk(self, segment: StreamSegment, index: int) -> Chunk | None:
        """Return a chunk; None if damaged."""
        first, end = segment.bounds(index)
        found = self._cache.get(first)
        if found is None and first not in self._damaged:
            try:
                found = self._cache[first] = segment.chunk(index)
            # Only damage is remembered: an unreadable file may be readable again later.
            except Unreadable:
                raise
            except StoreError as error:
                self._on_loss(f"{error}: offsets {first} to {end - 1} are lost")
                self._damaged.add(first)
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return found

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the available messages with offsets ``first`` to ``last``, in batches as written.

        The first iteration fixes the segments to read, even if retention removes segments afterwards. Nothing is
        copied: the columns are in mapped files. The schema is :func:`jumpmq.store.columns.schema`; ``seq`` is the
        offset. Damaged chunks are left out.

        Raises:
            Unreadable: a file cannot be read.
        """
        with self._tells():
            for segment in [one for one in self._segments if first < one.end and one.first <= last]:
                for index in range(max(segment.index_of(first), 0), segment.index_of(last) + 1):
                    if (chunk := self._chunk(segment, index)) is not None:
                        start, stop = max(first - chunk.first, 0), min(last + 1 - chunk.first, chunk.message_count)
                        if start < stop:
                            yield chunk.batch.slice(start, stop - start)

    def offset_of(self, timestamp: float) -> int:
        """Return the offset of the first message published at ``timestamp`` (seconds since the epoch) or later, else
        ``end``.

        Raises:
            Unreadable: a file cannot be read.
        """
        time = int(timestamp * 1e6)
        with self._tells():
            for segment in self._segments:
                if segment.last_time < time or (index := segment.index_at(time)) is None:
                    continue
                if (chunk := self._chunk(segment, index)) is None:
                    return segment.bounds(index)[0]
                times = chunk.batch.column("published_at").cast("int64").to_pylist()
                return chunk.first + next(place for place, one in enumerate(times) if one >= time)
        return self.end

    def written_at(self, offset: int) -> int | None:
        """Return the publishing time of the chunk with this message, in microseconds since the epoch; None if missing.

        Raises:
            Unreadable: a file cannot be read.
        """
        with self._tells():
            for segment in self._segments:
                if segment.first <= offset < segment.end:
                    index = segment.index_of(offset)
                    return segment.time_of(index) if index >= 0 and offset < segment.bounds(index)[1] else None
        return None

    def retain(self, max_bytes: int | None, oldest: float | None) -> None:
        """Drop the oldest segments, as a whole, never the last segment.

        Args:
            max_bytes: drop a segment if the later segments have at least so many octets; None for no limit.
            oldest: drop a segment if all its messages were published earlier, in seconds since the epoch; None for no
                limit.
        """
        while len(self._segments) > 1:
            first = self._segments[0]
            too_much = max_bytes is not None and self.size - first.size >= max_bytes
            if not (too_much or (oldest is not None and self._is_older(first, oldest))):
                return
            # Removed first: `on_retire` records the new lowest offset.
            del self._segments[0]
            self._on_retire(first)

    def retain_from(self, offset: int) -> None:
        """Drop the segments before an offset."""
        self._floor = max(self._floor, offset)
        while self._segments and self._segments[0].end <= offset:
            self._on_retire(self._segments.pop(0))

    def _is_older(self, segment: StreamSegment, oldest: float) -> bool:
        try:
            return segment.last_time < oldest * 1e6
        # A segment of unknown age is kept.
        except Unreadable as error:
            self._on_unreadable(error)
            return False

    # --- appending ---

    def lay_out(self, messages: list[Message]) -> Laid:
        """Return the writes for appending messages in one commit, with locations: see :meth:`publish`. :meth:`written`
        or :meth:`put_back` follows.

        Raises:
            OSError: a file cannot be opened; nothing has changed.
        """
        return self._end.lay_out(messages, self.segment_bytes)

    def lay_out_imported(self, chunks: list[ImportedChunk]) -> Laid:
        """Like :meth:`lay_out`, for chunks of another home.

        Raises:
            OSError: a file cannot be opened; nothing has changed.
        """
        return self._end.lay_out_imported(chunks)

    def go_on_at(self, offset: int) -> None:
        """Continue at an offset. If the stream ends earlier, the messages in between are reported as lost. No write may
        be under way.
        """
        if self.end < offset:
            if self._segments:
                self._segments[-1].end_at(offset)
            self._floor = offset
            self._end.go_on_at(offset)

    def written(self) -> None:
        """Record the laid-out messages as written to the log and the files."""
        self._end.written()

    def put_back(self) -> None:
        """Undo an unwritten layout."""
        self._end.put_back()

    def take_unsynced(self) -> list[Path]:
        """Return the files and directories to sync before removal of the log's copy."""
        return self._end.take_unsynced()

    @property
    def paths(self) -> list[Path]:
        """All directories and files of the stream, for a sync."""
        return [self._directory, self._directory.parent, *(segment.path for segment in self._segments)]

    def hand_over(self, offsets: dict[str, dict[str, int]]) -> Path:
        """Leave the files, with the known state, to another process. Return the directory of the files.

        Raises:
            OSError: the state cannot be written or synced.
        """
        self.close()
        self.is_gone = True
        self._tell = _nobody  # files missing for a remaining reader have moved, and are not lost
        self.handed = HandedFiles(self.bounds, offsets)
        self.handed.write(self._directory)
        self._files.sync_directory(self._directory)
        return self._directory

    def forget_handed(self) -> None:
        """Forget the information received with the files, after its use."""
        if self.handed is not None:
            self.handed = None
            (self._directory / HANDED).unlink(missing_ok=True)

    def close(self) -> None:
        """Release all files. No write may be under way."""
        self._end.close()

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._directory, ignore_errors=True)


def _nobody(loss: str) -> None:
    """Ignore a loss: another home has the stream."""


def _make(directory: Path) -> bool:
    """Create the directory of a new stream. If that fails, the directory is created later, with the first file.

    Returns:
        True if the stream is new.

    Raises:
        OSError: the existence of the directory cannot be tested.
    """
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return False
    except OSError:
        return not directory.exists()
    return True


def _handed(directory: Path) -> HandedFiles | None:
    try:
        return HandedFiles.decode((directory / HANDED).read_text())
    except FileNotFoundError:
        return None


def _with_handed(known: Known | None, handed: HandedFiles | None) -> Known | None:
    """Return the bounds in the store or, after a crash before the store recorded files from another home, the bounds of
    the previous home.
    """
    if handed is not None and (known is None or known.end < handed.bounds.end):
        return Known(handed.bounds)
    return known


def is_foreign(directory: Path, known: Known) -> bool:
    """Return True if all expected files exist, but belong to a different stream."""
    bounds = known.bounds
    paths = [path for path in _paths(directory) if _first(path) < bounds.end]
    if not bounds.salt or len(paths) < bounds.segments:
        return False
    if any(_first(paths[-1]) < piece.segment < bounds.end for piece in known.pieces):
        return False  # the last file was not synced before a crash, and is written again from the log
    # The salt is 0 if the first chunk is damaged, which proves nothing about the stream.
    return salt_of(paths[-1]) not in (0, bounds.salt)


def lost_at_ends(segments: list[StreamSegment], known: Known) -> list[tuple[int, int]]:
    """Return the offsets missing before the first segment and behind the last, as (first, end)."""
    first, end = (segments[0].first, segments[-1].end) if segments else (known.end, known.end)
    ends = (known.first, min(first, known.end)), (end, known.end)
    return [(lost_first, lost_end) for lost_first, lost_end in ends if lost_first < lost_end]


def check(directory: Path, known: Known | None = None) -> Iterator[str]:
    """Yield the problems of a stream's files, one per line. Nothing is changed.

    Args:
        known: the store's state of the stream; None without any.
    """
    if known is not None and is_foreign(directory, known):
        first, end = known.first, known.end
        yield f"{directory} has the files of another stream: offsets {first} to {end - 1} are lost"
        return
    known = _with_handed(known, _handed(directory))
    segments: list[StreamSegment] = []
    paths, limit = _paths(directory), _limit(known)
    whole = [] if known is None else [piece for piece, chunk in contents(known.pieces, Files()) if chunk is not None]
    while limit is not None and paths and _first(paths[-1]) >= limit:
        paths.pop()
    ends: list[int | None] = [_first(path) for path in paths[1:]]
    for path, last in zip(paths, [*ends, None], strict=False):
        try:
            segment = StreamSegment.open(path, last, lambda loss: None, limit)
            lost = [segment.bounds(index) for index in range(segment.chunk_count) if not segment.is_whole(index)]
        except Unreadable as error:
            yield str(error)
            continue
        segments.append(segment)
        for stretch in sorted(lost + segment.lost):
            for one in without(stretch, whole):
                yield f"{path} is damaged or too short: offsets {one[0]} to {one[1] - 1} are lost"
    if known is not None:
        for stretch in lost_at_ends(segments, known):
            for one in without(stretch, whole):
                yield f"{directory} lacks files or parts of them: offsets {one[0]} to {one[1] - 1} are lost"


def _limit(known: Known | None) -> int | None:
    """Return the offset of the first uncommitted message in the files; None if the store does not have the offset."""
    return known.end if known is not None and known.bounds.is_exact else None


def _paths(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{SUFFIX}"))


def _segments(directory: Path, known: Known | None, on_loss: Callable[[str], object]) -> list[StreamSegment]:
    """Return the segments in a directory, after cleaning the directory.

    - Files dropped by retention before a crash are deleted.
    - Files of an unfinished commit get the suffix :data:`UNCOMMITTED`, and are deleted once other messages have been
      committed under the same offsets.
    - Trailing files without a whole chunk are deleted, or renamed to ``.damaged`` if the store knows of a chunk.
    """
    paths, limit = _paths(directory), _limit(known)
    if limit is not None:
        for path in directory.glob(f"*{SUFFIX}{UNCOMMITTED}"):
            if _first(path.with_suffix("")) < limit:
                path.unlink()
    while known is not None and len(paths) > 1 and _first(paths[1]) <= known.first:
        paths.pop(0).unlink()
    while limit is not None and paths and _first(paths[-1]) >= limit:
        path = paths.pop()
        path.replace(path.with_name(path.name + UNCOMMITTED))
    while paths:
        last = StreamSegment.open(paths[-1], None, on_loss, limit)
        if last.chunk_count:
            others = [StreamSegment.open(path, _first(following), on_loss) for path, following in pairwise(paths)]
            return [*others, last]
        path = paths.pop()
        if known is not None and last.first < known.end:
            path.rename(path.with_name(f"{path.name}.damaged"))
        else:
            path.unlink()
    return []


def _first(path: Path) -> int:
    """Return the first offset of a segment file, by name."""
    return int(path.name.removesuffix(SUFFIX))


def _ignore_growth(begun: bool) -> None:
    """Ignore growth: no stream uses the files."""
