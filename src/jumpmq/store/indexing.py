"""Indexing of a copy of a log: what a store does as it writes, done from sealed segments in which all is complete.

A run redoes streams' files from the log, deletes those that retention or a deletion has let go of, syncs what it wrote,
and then writes the index. The segments that are consumed by that index may be removed afterwards. A process that ends
at any point leaves an index that covers less, and the next run does the same again.

A run verifies all that it reads, since segments go by its index: damage ends it, and the index is as it was.
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
"""Maximum number of segments in a run, which keeps their live batches and settlements in memory."""


class UnfitCopy(StoreError):
    """Something of a copy is missing or damaged, so that no run can index the copy."""


class Indexed(NamedTuple):
    """Result of a run.

    Attributes:
        segment: the first segment that the index does not cover.
        consumed: segments before it in which nothing is left, in order.
    """

    segment: int
    consumed: tuple[int, ...] = ()


def index_sealed(directory: Path, before: int, files: Files | None = None) -> Indexed:
    """Bring the index of a copy up to a segment, or as far as one run goes.

    Args:
        directory: of the copy. Nothing else writes its index, its streams, and segments before the given one.
        before: the segment; it is there, and all before it is complete.
        files: the file calls to use.

    Raises:
        UnfitCopy: something of the log, the index or the streams is missing or damaged. The index is as it was.
        StoreError: something cannot be read or written. The index is as it was.
    """
    try:
        return _index(directory, before, files or Files())
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot index the copy in {directory}: {error}; put that right") from error


def _index(directory: Path, before: int, files: Files) -> Indexed:
    path, numbers = directory / schema.FILE_NAME, _numbers(directory)
    if not path.exists():
        if 1 not in numbers:
            raise _unfit(directory, f"{path} is missing, and the log begins with segment {min(numbers, default=0)}")
        opening.create(directory)
    try:
        begin = first_segment_behind(path)
        if begin >= before:
            return Indexed(begin)
        before = [*(number for number in numbers if begin <= number < before), before][: MOST_SEGMENTS + 1][-1]
        with closing(OpenSegment(files, directory / DIRECTORY / file_name(before))) as file:
            if file.opening is None:
                raise _unfit(directory, f"{file_name(before)} is damaged at the beginning")
        found = Recovery(directory, files, _nobody, before=before)
    except Damaged as damage:
        raise _unfit(directory, str(damage)) from damage
    if found.losses:
        raise _unfit(directory, found.losses[0])
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
    """Bring the files of streams up to the log, and their records into the update."""
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
        raise _unfit(directory.parent.parent, losses[0])
    return log


def _unfit(directory: Path, reason: str) -> UnfitCopy:
    return UnfitCopy(f"{reason}; move {directory} away, and the home is copied again")


def _nobody(settled: tuple[Batch, int, int]) -> None:
    """Ignore a settlement: no store is open."""
