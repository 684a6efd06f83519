"""Damage of streams' files, found by the checksums of their chunks, without the streams' home. All functions block for
the disk."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from jumpmq.store import kinds, schema, stream_files
from jumpmq.store.definitions import QueueNaming
from jumpmq.store.errors import Unreadable
from jumpmq.store.stream_bounds import Bounds
from jumpmq.store.stream_segment import SUFFIX, StreamSegment


class Expected(NamedTuple):
    """Messages of a stream that the stream's files have to have.

    Attributes:
        number: of the stream.
        first, end: the lowest offset left by retention, and the offset behind the last message.
        name: name of the stream for operators.
    """

    number: int
    first: int
    end: int
    name: str


def expected(index: Path) -> list[Expected]:
    """Return the streams that an index knows. What streams have behind these ends is in the log, too. Nothing else
    writes the index.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with closing(schema.connect_to_judge(index)) as connection:
        asked = (kinds.STREAM, kinds.STREAM_FLOOR, kinds.QUEUE)
        rows = connection.execute("SELECT kind, key, value FROM definition WHERE kind IN (?, ?, ?)", asked)
        definitions = {(kind, key): value for kind, key, value in rows}
    name, found = QueueNaming(definitions), []
    for (kind, key), text in definitions.items():
        if kind == kinds.STREAM:
            bounds, floor = Bounds.decode(text), int(definitions.get((kinds.STREAM_FLOOR, key), 0))
            found.append(Expected(int(key), max(bounds.first, floor), bounds.end, name(int(key))))
    return found


def lost(directory: Path, streams: Iterable[Expected], is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Yield what is lost of streams in a data directory, in the words of :class:`~jumpmq.store.stream_log.StreamLog`.

    Half of the time is left to others.

    Args:
        is_stopped: asked before each file; True ends the search, which may take minutes.

    Raises:
        OSError: a file cannot be read.
        StoreError: the disk does not give what a file has.
    """
    for one in streams:
        folder = directory / stream_files.DIRECTORY / str(one.number)
        for loss in _lost(folder, one.first, one.end, is_stopped):
            yield f"{loss} of {one.name}"


def is_damaged(path: Path, length: int) -> bool:
    """Return True if a file of a stream has a chunk that is not as written in its first octets.

    Raises:
        OSError: it cannot be read.
        StoreError: the disk does not give it.
    """
    segment = StreamSegment.open(path, on_loss=_nobody)
    return bool(segment.lost) or segment.size < length or any(segment.damage())


def _lost(folder: Path, first: int, end: int, is_stopped: Callable[[], bool]) -> Iterator[str]:
    """Yield what is lost of a stream between two offsets."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    for number, path in enumerate(paths, 1):
        if is_stopped():
            return
        last = min([end, *map(_first, paths[number : number + 1])])
        if last <= max(_first(path), first):  # retention has let go of it, or the log has all of it
            continue
        began, found = time.monotonic(), list[str]()
        try:
            segment = StreamSegment.open(path, last, found.append)
            found += segment.damage()
        except (FileNotFoundError, Unreadable):
            if path.exists():
                raise
            continue  # retention has let go of it just now
        yield from found
        time.sleep(time.monotonic() - began)


def _first(path: Path) -> int:
    return int(path.name.removesuffix(SUFFIX))


def _nobody(loss: str) -> None:
    """Chunks are looked at, not what a file says of them."""
