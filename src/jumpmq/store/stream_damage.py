"""Search for damage in streams' files by the chunks' checksums, without the streams' home. All functions wait for the
disk.
"""

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
    """Messages of a stream that must be in the stream's files.

    Attributes:
        number: number of the stream.
        first, end: lowest offset left by retention, and offset behind the last message.
        name: name of the stream for operators.
    """

    number: int
    first: int
    end: int
    name: str


def expected(index: Path) -> list[Expected]:
    """Return the streams in an index. Messages behind these ends are in the log, too. No other thread or process may
    write the index during the call.

    Raises:
        sqlite3.Error: the index cannot be read.
    """
    with closing(schema.connect_to_check(index)) as connection:
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
    """Yield the losses of streams in a data directory, in the words of :class:`~jumpmq.store.stream_log.StreamLog`.

    The search may take minutes. After each file it sleeps as long as the file took.

    Args:
        is_stopped: called before each file; True ends the search.

    Raises:
        OSError: a file cannot be read.
        StoreError: a file's content cannot be read.
    """
    for one in streams:
        folder = directory / stream_files.DIRECTORY / str(one.number)
        for loss in _lost(folder, one.first, one.end, is_stopped):
            yield f"{loss} of {one.name}"


def is_damaged(path: Path, length: int) -> bool:
    """Return True if a stream's file has a damaged or missing chunk, or fewer than ``length`` octets.

    Raises:
        OSError: the file cannot be read.
        StoreError: the file's content cannot be read.
    """
    segment = StreamSegment.open(path, on_loss=_nobody)
    return bool(segment.lost) or segment.size < length or any(segment.damage())


def _lost(folder: Path, first: int, end: int, is_stopped: Callable[[], bool]) -> Iterator[str]:
    """Yield the losses of a stream between two offsets."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    for number, path in enumerate(paths, 1):
        if is_stopped():
            return
        last = min([end, *map(_first, paths[number : number + 1])])
        if last <= max(_first(path), first):  # retention has removed the file, or the log has its whole content
            continue
        began, found = time.monotonic(), list[str]()
        try:
            segment = StreamSegment.open(path, last, found.append)
            found += segment.damage()
        except (FileNotFoundError, Unreadable):
            if path.exists():
                raise
            continue  # retention has just removed the file
        yield from found
        time.sleep(time.monotonic() - began)


def _first(path: Path) -> int:
    return int(path.name.removesuffix(SUFFIX))


def _nobody(loss: str) -> None:
    """Ignore losses reported by the file: :func:`is_damaged` reads :attr:`StreamSegment.lost`."""
