"""The log: numbered segment files in ``log/``. Writes only append.

A position is one number: the number of the segment in the upper half, and the offset in the file in the lower half.
"""

import contextlib
import errno
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from jumpmq.store.batch import Batch
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.records import OPENING_SIZE, Opening

DIRECTORY = "log"

SEGMENT_BYTES = 64 << 20
"""Octets after which the log continues in a new file, by default and unless the disk is small."""

LEAST_SEGMENT_BYTES = 4 << 20
"""Octets after which the log continues in a new file, on the smallest disk."""

SEGMENTS = 16
"""Number of segments fitting on a disk: consumed messages free room once the whole segment is consumed."""

SEGMENT_BLOCKS = 1 << 16
"""Blocks after which the log continues in a new file, so that indexing a file takes only a moment."""

ALLOCATION = 4 << 20
"""Octets by which a file grows. Writes within the allocation change nothing but the content, so syncs are cheaper."""

OFFSET_BITS = 32
_OFFSETS = (1 << OFFSET_BITS) - 1

OPEN_FILES = 64
"""Number of segments with files kept open for reading."""


class OpenFile:
    """An open file, closed after the last reader."""

    __slots__ = ("_files", "descriptor")

    def __init__(self, files: Files, descriptor: int) -> None:
        self._files = files
        self.descriptor = descriptor

    def __del__(self) -> None:
        self._files.close(self.descriptor)


class LogSegment:
    """A file of the log.

    Attributes:
        number: number of the segment.
        salt: initial value of the segment's checksums.
        epoch: epoch in which the segment was begun.
        end: offset of the end of the last commit.
        allocated: number of octets known to be allocated on disk.
        zeroed: offset up to which octets were written, zeros included.
        blocks: number of written blocks.
        batches: batches with unsettled messages in the segment.
        live: approximate octets of unsettled bodies.
    """

    __slots__ = (
        "allocated",
        "batches",
        "blocks",
        "end",
        "epoch",
        "first_commit",
        "live",
        "number",
        "path",
        "salt",
        "zeroed",
    )

    def __init__(self, path: Path, opening: Opening) -> None:
        self.path = path
        self.number = opening.segment
        self.first_commit = opening.first_commit
        self.salt = opening.salt
        self.epoch = opening.epoch
        self.end = self.allocated = self.zeroed = OPENING_SIZE
        self.blocks = 0
        self.batches: set[Batch] = set()
        self.live = 0.0

    def position(self, offset: int) -> int:
        """Return the position of an offset in the segment's file."""
        return self.number << OFFSET_BITS | offset


class Log:
    """The segments. Any thread may read; all other methods are for the store's thread.

    Args:
        directory: directory of the segment files.
        files: the file calls to use.
        segment_bytes: octets after which the log continues in a new file.
        epoch: epoch of new segments.

    Attributes:
        segments: segments by number, in order.
        current: segment that commits are written to; None before the first commit.
        current_file: file of the current segment; None without one.
    """

    def __init__(self, directory: Path, files: Files, segment_bytes: int = SEGMENT_BYTES, epoch: int = 0) -> None:
        self._segment_bytes = segment_bytes
        self._epoch = epoch
        self.allocation = min(ALLOCATION, segment_bytes)
        self.directory = directory
        self.files = files
        self.segments: dict[int, LogSegment] = {}
        self.current: LogSegment | None = None
        self.current_file: OpenFile | None = None
        self._next_number = 1
        self._opened: dict[int, OpenFile] = {}
        self._lock = threading.Lock()
        self._spare: int | None = None  # descriptor to close when clients have used up all descriptors

    def adopt(self, segments: list[LogSegment], after: int) -> None:
        """Take over segments found at the start, in order; new segments get numbers above ``after``."""
        self.segments = {segment.number: segment for segment in segments}
        self._next_number = after + 1
        self._take_spare()

    def begin(self, first_commit: int) -> LogSegment:
        """Continue in a new segment, with the given number of the first commit.

        Raises:
            OSError: the file cannot be created; the log continues in the old segment.
        """
        return self.enter(*self.make(self.next_opening(first_commit)))

    def next_opening(self, first_commit: int) -> Opening:
        """Return the opening of the next segment, with the given number of the first commit."""
        return Opening(self._next_number, first_commit, secrets.randbits(32), self._epoch)

    def make(self, opening: Opening) -> tuple[LogSegment, OpenFile]:
        """Create a segment's file, waiting for the disk. Callable from any thread.

        Raises:
            OSError: the file cannot be created, and does not exist.
        """
        path = self.directory / file_name(opening.segment)
        file = OpenFile(self.files, self.files.create(path))
        try:
            self.files.allocate(file.descriptor, 0, self.allocation)
            self.files.write(file.descriptor, 0, [opening.encode()])
            self.files.sync(file.descriptor)
            # Without the name on disk, a power failure would lose the file with its confirmed commits.
            self.files.sync_directory(self.directory)
        except OSError:
            self.files.remove(path)
            raise
        segment = LogSegment(path, opening)
        segment.allocated = self.allocation
        return segment, file

    def enter(self, segment: LogSegment, file: OpenFile) -> LogSegment:
        """Continue in a segment already created."""
        # Not before: a failed creation leaves the number free, and the next attempt uses the same name.
        self._next_number = segment.number + 1
        self.segments[segment.number] = self.current = segment
        self.current_file = file
        with self._lock:
            self._opened[segment.number] = file
        return segment

    @property
    def full(self) -> bool:
        """True if the log should continue in a new segment."""
        segment = self.current
        return segment is not None and (segment.end >= self._segment_bytes or segment.blocks >= SEGMENT_BLOCKS)

    def end(self) -> None:
        """Write no more to the current segment, and release the allocated room behind its end."""
        segment, self.current, self.current_file = self.current, None, None
        if segment is not None:
            self.cut(segment)

    def abandon(self) -> None:
        """Stop writing to the current segment: content behind the end is unknown."""
        self.current = self.current_file = None

    def cut(self, segment: LogSegment) -> None:
        """Truncate a file behind the last commit, in any thread. A failure does not matter: the rest is never read."""
        try:
            self.files.truncate(self.file(segment.number).descriptor, segment.end)
        except OSError:
            return
        segment.allocated = segment.end

    def forget(self, segment: LogSegment) -> Callable[[], None]:
        """Forget a segment without live content; return a function to remove the file, in any thread,
        or raise OSError.
        """
        # First out of the list: a concurrent read then does not put the file into the cache again.
        del self.segments[segment.number]
        with self._lock:
            file = self._opened.pop(segment.number, None)

        def remove() -> None:
            nonlocal file
            self.files.remove(segment.path)
            file = None  # closing the last descriptor frees the content on disk, which takes time

        return remove

    def path(self, number: int) -> Path:
        """Return the path of a segment: by name, unless the file was renamed."""
        segment = self.segments.get(number)
        return self.directory / file_name(number) if segment is None else segment.path

    def file(self, number: int) -> OpenFile:
        """Return a segment's open file.

        Raises:
            FileNotFoundError: the segment was removed.
        """
        with self._lock:
            # Taken out and put in again: the order of the dictionary is the order of use.
            file = self._opened.pop(number, None)
            if file is None:
                file = OpenFile(self.files, self._open(self.path(number)))
            if number in self.segments:  # not for a forgotten segment: the cache would keep its disk space in use
                self._opened[number] = file
            if len(self._opened) > OPEN_FILES:
                del self._opened[next(iter(self._opened))]
            return file

    def _open(self, path: Path) -> int:
        """Open a segment's file. At the process's limit of open files, another cached file is closed first."""
        while True:
            try:
                descriptor = self.files.open(path)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_one():
                    raise
                continue
            self._take_spare()
            return descriptor

    def _take_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _close_one(self) -> bool:
        """Close the least recently read file, or the spare descriptor; return True if any was closed."""
        # The current segment stays open for writing: its removal from the cache would free no descriptor.
        current = None if self.current is None else self.current.number
        for number in self._opened:
            if number != current:
                del self._opened[number]
                return True
        if self._spare is None:
            return False
        os.close(self._spare)
        self._spare = None
        return True

    def read(self, position: int, length: int) -> bytes:
        """Read octets of the log; fewer at the end of the file.

        Raises:
            OSError: the octets cannot be read.
        """
        number = position >> OFFSET_BITS
        file = self.file(number)
        try:
            return read_whole(file.descriptor, length, position & _OFFSETS)
        except OSError:
            with self._lock:
                self._opened.pop(number, None)  # the next read tries another descriptor
            raise

    def prefetch(self, position: int, length: int) -> None:
        """Request octets for the system's page cache. The call may wait until the disk accepts the request, but not for
        the octets.

        Raises:
            OSError: the segment cannot be opened.
        """
        if hasattr(os, "posix_fadvise"):  # not on macOS
            file = self.file(position >> OFFSET_BITS)
            os.posix_fadvise(file.descriptor, position & _OFFSETS, length, os.POSIX_FADV_WILLNEED)

    def salt(self, position: int) -> int:
        """Return the initial value of the segment's checksums."""
        segment = self.segments.get(position >> OFFSET_BITS)
        if segment is None:
            raise FileNotFoundError
        return segment.salt

    def close(self) -> None:
        """Release all files."""
        with self._lock:
            self._opened.clear()
            if self._spare is not None:
                os.close(self._spare)
                self._spare = None

    def unreadable(self, position: int, what: str) -> StoreError:
        """Return the error for octets that the system cannot read."""
        path = self.path(position >> OFFSET_BITS)
        return StoreError(
            f"{path} cannot be read at octet {position & _OFFSETS} ({what}); the messages are left out until the "
            "broker's next start, and stay on disk"
        )

    def damaged(self, position: int, what: str) -> StoreError:
        """Return the error for octets that differ from the written octets."""
        path = self.path(position >> OFFSET_BITS)
        return StoreError(
            f"{path} is damaged at octet {position & _OFFSETS} ({what}); the messages are left out, all others are "
            "served: restore the directory from a backup if you need these messages"
        )


def segment_bytes_on(directory: Path) -> int:
    """Return the octets after which a log in the given directory continues in a new file.

    Raises:
        OSError: the directory does not exist.
    """
    disk = os.statvfs(directory)
    return max(LEAST_SEGMENT_BYTES, min(SEGMENT_BYTES, disk.f_blocks * disk.f_frsize // SEGMENTS))


def file_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:010}.log"


def relative_name(number: int) -> str:
    """Return the name of a segment's file, relative to the data directory."""
    return f"{DIRECTORY}/{file_name(number)}"


def read_whole(file: int, length: int, offset: int) -> bytes:
    """Like pread, but read all available octets, even if a signal or a large length would shorten the result."""
    octets = os.pread(file, length, offset)
    if len(octets) < length:
        parts = [octets]
        offset += len(octets)
        while len(octets) and (left := length - sum(map(len, parts))) > 0:
            octets = os.pread(file, left, offset)
            offset += len(octets)
            parts.append(octets)
        return b"".join(parts)
    return octets
