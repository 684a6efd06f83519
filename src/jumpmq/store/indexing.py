"""Indexing of a follower's copy of a log: updates index and streams from finished segments with complete commits only.

A run writes streams' files from the log, deletes the files of deleted and shortened streams, syncs the written files,
and then updates the index. Afterwards the segments without live content may be removed. If the process ends during a
run, the index remains unchanged, and the next run repeats the work.

A run verifies all octets read, because segments are removed according to the index. Damage ends the run, and leaves the
index unchanged.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from jumpmq.store import opening, schema, stream_files
from jumpmq.store.batch import Batch
from jumpmq.store.errors import Damaged, StoreError
from jumpmq.store.files import Files
from jumpmq.store.index import Index, Update, first_segment_behind
from jumpmq.store.kinds import STREAM, STREAM_FLOOR
from jumpmq.store.log import DIRECTORY, file_name
from jumpmq.store.recovery import Recovery
from jumpmq.store.scan import OpenSegment
from jumpmq.store.stream_bounds import Known
from jumpmq.store.stream_log import StreamLog, is_foreign
from jumpmq.store.stream_redo import sync

MOST_SEGMENTS = 16
"""Maximum number of segments per run: a run keeps the live batches and settlements of its segments in memory."""


class UnfitCopy(StoreError):
    """The copy cannot be indexed, because a part is missing or damaged."""


class Indexed(NamedTuple):
    """Result of a run.

    Attributes:
        segment: first segment that the index does not cover.
        consumed: earlier segments without live content, in order.
    """

    segment: int
    consumed: tuple[int, ...] = ()


def index_sealed(directory: Path, before: int, files: Files | None = None) -> Indexed:
    """Update the index of a copy up to a segment, by at most :data:`MOST_SEGMENTS` segments.

    Args:
        directory: directory of the copy. During the call nothing else may write the index, the streams, and the
            segments before ``before``.
        before: number of an existing segment. All earlier segments must be complete.
        files: the file calls to use.

    Raises:
        UnfitCopy: a part of the log, the index or the streams is missing or damaged. The index is unchanged.
        StoreError: a file cannot be read or written. The index is unchanged.
    """
    try:
        return _index(directory, before, files or Files())
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot index the copy in {directory}: {error}; correct the cause") from error


def _index(directory: Path, before: int, files: Files) -> Indexed:
    path, numbers = directory / schema.FILE_NAME, _numbers(directory)
    if not path.exists():
        if 1 not in numbers:
            raise _unfit(f"{path} is missing, and the log begins with segment {min(numbers, default=0)}")
        opening.create(directory)
    try:
        begin = first_segment_behind(path)
        if begin >= before:
            return Indexed(begin)
        before = [*(number for number in numbers if begin <= number < before), before][: MOST_SEGMENTS + 1][-1]
        # Only an intact opening shows that no commit in front of the segment is missing.
        with closing(OpenSegment(files, directory / DIRECTORY / file_name(before))) as file:
            if file.opening is None:
                raise _unfit(f"{directory / DIRECTORY / file_name(before)} is damaged at the beginning")
        found = Recovery(directory, files, _nobody, before=before)
    except Damaged as damage:
        raise _unfit(str(damage)) from damage
    if found.losses:
        raise _unfit(found.losses[0])
    consumed = tuple(segment.number for segment in found.segments if not segment.batches)
    update = found.unindexed.take(before)
    _take_streams(directory / stream_files.DIRECTORY, found, files, update)
    sync(update.files, files)
    with closing(Index(path, files.noted)) as index:
        index.write(update)
    return Indexed(before, consumed)


def _numbers(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in (directory / DIRECTORY).glob("*.log"))


def _take_streams(directory: Path, found: Recovery, files: Files, update: Update) -> None:
    """Write the log's changes of streams to the streams' files, and add the streams' records to the update."""
    changes = update.definitions
    for kind, key in changes.removed:
        if kind == STREAM and (kind, key) not in found.definitions:
            shutil.rmtree(directory / key, ignore_errors=True)
    cut = {int(key) for kind, key in changes.put if kind == STREAM_FLOOR}
    for number, known in found.streams().items():
        if known.pieces or number in cut:
            log = _redone(directory / str(number), known, files)
            changes.put[STREAM, str(number)] = log.bounds.encode()
            update.files += log.take_unsynced()
            log.close()


def _redone(directory: Path, known: Known, files: Files) -> StreamLog:
    """Return a stream, with the chunks of the log written to the files of the stream."""
    losses: list[str] = []
    if directory.exists() and is_foreign(directory, known):
        losses.append(f"{directory} has the files of another stream")
    else:
        log = StreamLog(directory, files, known=known, on_loss=losses.append)
    if losses:
        raise _unfit(losses[0])
    return log


def _unfit(reason: str) -> UnfitCopy:
    return UnfitCopy(f"{reason}; the copy is replaced when the home has others to spare")


def _nobody(settled: tuple[Batch, int, int]) -> None:
    """Ignore a settlement: no store is open."""
