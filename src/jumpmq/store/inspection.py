"""Inspection of a data directory, and salvage of a damaged directory. No broker may use the directory meanwhile."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumpmq.store import losses, schema, stream_files, stream_log
from jumpmq.store.batch import Batch
from jumpmq.store.definitions import QueueNaming, parsed
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.kinds import LOSS, STREAM
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.log import DIRECTORY, Log
from jumpmq.store.reader import BlockReader
from jumpmq.store.records import CLEAN, DEFINITIONS, DROPPED, MESSAGES, MOVED, SETTLED
from jumpmq.store.recovery import Recovery
from jumpmq.store.scan import OpenSegment, Place
from jumpmq.store.stream_redo import redo

if TYPE_CHECKING:
    from jumpmq.store.store import Store

STEP_BYTES = 16 << 20
"""Octets of bodies salvaged per commit."""

_CONTENT = {
    SETTLED: "acknowledgements; their messages would be delivered again",
    DEFINITIONS: "declarations and deletions",
    DROPPED: "deletions of queues",
    CLEAN: "the marker of a clean stop",
}


def check(directory: Path) -> Iterator[str]:
    """Yield the problems of a data directory, one per line; nothing for a good directory. Nothing is changed.

    Raises:
        StoreError: the directory is not a data directory, has another version, or is in use by a broker.
    """
    with _Locked(directory):
        try:
            found = Recovery(directory, Files(), _nobody)
        except StoreError as error:
            yield str(error)
            found = Recovery(directory, Files(), _nobody, without_index=True)
        yield from found.warnings
        yield from _losses(directory, found)
        queue_name = QueueNaming(found.definitions)
        for segment in found.segments:
            yield from _check_segment(segment.path, queue_name)
        yield from _check_streams(directory, found, queue_name)


def _losses(directory: Path, found: Recovery) -> Iterator[str]:
    """Yield current losses, and losses found by a broker but not acknowledged by an operator."""
    recorded = {key: json.loads(text) for (kind, key), text in found.definitions.items() if kind == LOSS}
    recorded |= dict(losses.read(directory))
    for loss in dict.fromkeys([*found.losses, *recorded]):
        if recorded.get(loss, 1) > 0:
            yield loss


def _streams(directory: Path) -> list[tuple[int, Path]]:
    """Return the number and the directory of each stream, sorted by number."""
    streams = directory / stream_files.DIRECTORY
    return sorted((int(path.name), path) for path in streams.glob("*") if path.name.isdigit())


def _check_streams(directory: Path, found: Recovery, queue_name: Callable[[int], str]) -> Iterator[str]:
    """Yield the problems of stream files, by themselves and compared with the store."""
    known, paths = found.streams(), dict(_streams(directory))
    for number in sorted(paths.keys() | known.keys()):
        path = paths.get(number, directory / stream_files.DIRECTORY / str(number))
        for finding in stream_log.check(path, known.get(number)):
            yield f"{finding} of {queue_name(number)}"


def _check_segment(path: Path, queue_name: Callable[[int], str]) -> Iterator[str]:
    file = OpenSegment(Files(), path)
    try:
        waiting: list[Place] = []
        for commit in file.commits():
            yield from _damaged(path, file, waiting, queue_name)
            waiting = commit.blocks
        # The last commit needs no check: recovery has found it undamaged, or has ended the log before it.
    finally:
        file.close()


def _damaged(path: Path, file: OpenSegment, blocks: list[Place], queue_name: Callable[[int], str]) -> Iterator[str]:
    for place in blocks:
        if file.block(place) is None:
            head = place.head
            if head.kind in (MESSAGES, MOVED):
                queue = queue_name(head.queue)
                what = f"{head.rows} message{'s' * (head.rows != 1)} from number {head.first} on of {queue}"
            else:
                what = _CONTENT.get(head.kind, "unknown content")
            yield f"{path} is damaged at octet {place.offset}: {what}"


def salvage(directory: Path, to: Path, open_store: Callable[[Path], Store]) -> Iterator[str]:
    """Copy everything readable into a new store; yield the problems, and finally the copied amounts.

    Args:
        to: a directory that does not exist yet, or is empty.
        open_store: opens a store.

    Raises:
        StoreError: ``directory`` is not a data directory or is in use by a broker, or the new store cannot be written.
    """
    if to.exists() and any(to.iterdir()):
        raise StoreError(f"{to} is not empty; choose another directory to salvage to")
    with _Locked(directory):
        try:
            found = Recovery(directory, Files(), _nobody)
        except StoreError as error:
            yield str(error)
            found = Recovery(directory, Files(), _nobody, without_index=True)
        yield from (*found.warnings, *found.losses)
        log = Log(directory / DIRECTORY, Files())
        log.adopt(found.segments, after=found.highest_segment)
        queue_name, known = QueueNaming(found.definitions), found.streams()
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        losses.write(to, losses.read(directory))
        store = open_store(to)
        try:
            for (kind, key), value in found.definitions.items():
                store.put_text(kind, key, value)
            # The new log has no chunks of the streams, so the records alone tell the streams' ends.
            for number, one in known.items():
                store.put_text(STREAM, str(number), one.bounds._replace(end=one.end).encode())
            taken, reader = 0, BlockReader(log, queue_name, on_loss=logging.getLogger(__name__).warning)
            for batches in found.queues.values():
                taken += _copy(batches, reader, store)
            store.wait(store.flush())
        finally:
            # The salvaged messages may have been delivered before.
            store.close(clean=False)
            log.close()
        yield from _check_streams(directory, found, queue_name)
        streams = len(_streams(directory))
        for number, path in _streams(directory):
            copy = to / stream_files.DIRECTORY / path.name
            shutil.copytree(path, copy)  # damaged files included: the new broker sets them aside
            if number in known:
                redo(copy, known[number], Files())
        copied = f", {streams} stream{'s' * (streams != 1)}" if streams else ""
        kept = f"{len(found.definitions)} definitions{copied} and {taken} messages of {len(found.queues)} queues"
        yield f"{kept} are in {to}"


def _copy(batches: list[Batch], reader: BlockReader, store: Store) -> int:
    taken = 0
    for batch in batches:
        settled = batch.settled
        messages = [message for message in reader.messages(batch, None, None) if message.seq not in settled]
        taken += len(messages)
        if messages:
            store.append(batch.queue_id, messages)
        if store.staged_bytes > STEP_BYTES:
            store.wait(store.flush())
    return taken


def read_definitions(directory: Path) -> list[tuple[str, str, Any]]:
    """Return the definitions in a data directory, as (kind, key, value). No process may write to the directory.

    Raises:
        StoreError: the definitions cannot be read.
    """
    found = Recovery(directory, Files(), _nobody).definitions
    return [(*key, value) for key, value in zip(found, parsed(list(found.values())), strict=True)]


class _Locked:
    """An existing data directory unused by any broker."""

    def __init__(self, directory: Path) -> None:
        path = directory / schema.FILE_NAME
        if not path.exists() and not (directory / DIRECTORY).is_dir():
            raise StoreError(f"{directory} is no data directory: {schema.FILE_NAME} is missing")
        if path.exists() and path.stat().st_size and _version(path) == 1:
            raise StoreError(f"{directory} was written by JumpMQ 0.1; start a broker on it first")
        self._lock = DirectoryLock(directory)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


def _version(path: Path) -> int:
    try:
        return schema.check_header(path)
    except StoreError:
        return schema.VERSION  # recovery reports the error


def _nobody(settled: tuple[Batch, int, int]) -> None:
    """Ignore a settlement: inspection changes nothing."""
