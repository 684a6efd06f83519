"""Reading a segment from beginning to end: the commits, and damaged parts."""

import functools
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from jumpmq.store.files import Files
from jumpmq.store.log import read_whole
from jumpmq.store.records import (
    ALIGNMENT,
    BLOCK,
    FRAME,
    KINDS,
    MAGIC,
    OPENING_SIZE,
    BlockHead,
    Opening,
    block_is_whole,
    head_at,
)

WINDOW = 1 << 20
"""Minimum octets per read."""

MAX_LENGTH = 1 << 30


class Place(NamedTuple):
    """A block in a file: location and head."""

    offset: int
    head: BlockHead


@dataclass(slots=True)
class FoundCommit:
    """A commit, or a stretch of the file in place of one or more commits.

    Attributes:
        offset, end: begin and end in the file, in octets.
        number: number of the commit; for a damaged stretch, number of the first missing commit.
        blocks: usable blocks.
        damaged: True for a damaged stretch, in which further blocks with unknown content are missing.
    """

    offset: int
    end: int
    number: int
    blocks: list[Place]
    damaged: bool = False


class SegmentFile:
    """A segment's file. Reads use a window of the file, and skip long bodies.

    Attributes:
        opening: opening of the segment; None if damaged: no part of the segment is usable.
        size: size of the file, in octets.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        self.size = os.fstat(descriptor).st_size
        self._window = b""
        self._start = 0
        self.opening = Opening.decode(read_whole(descriptor, OPENING_SIZE, 0))

    def octets(self, offset: int, length: int) -> bytes:
        """Return octets of the file; fewer at the end."""
        at = offset - self._start
        if at < 0 or at + length > len(self._window):
            self._window = read_whole(self._file, max(length, WINDOW), offset)
            self._start, at = offset, 0
        return self._window[at : at + length]

    @property
    def is_blank(self) -> bool:
        """True if the file is empty behind the opening."""
        return not any(self.octets(offset, WINDOW).strip(b"\0") for offset in range(OPENING_SIZE, self.size, WINDOW))

    def block(self, place: Place) -> bytes | None:
        """Return a whole block, None if damaged."""
        assert self.opening is not None
        octets = self.octets(place.offset, place.head.extent)
        whole = len(octets) == place.head.extent and block_is_whole(octets, self.opening.salt)
        return octets if whole else None

    def is_whole(self, found: FoundCommit) -> bool:
        """Return True if all blocks of a commit are undamaged."""
        return all(self.block(place) is not None for place in found.blocks)

    def commits(self) -> Iterator[FoundCommit]:
        """Yield all commits in order, and damaged stretches in between. Content behind the last good commit is not
        reported.
        """
        assert self.opening is not None
        offset, number = OPENING_SIZE, self.opening.first_commit
        while True:
            found = self._commit(offset)
            if found is None or found.number != number:
                later = self._next_commit(offset, number)
                if later is None:
                    return
                blocks = list(self._blocks_between(offset, later.offset))
                yield FoundCommit(offset, later.offset, number, blocks, damaged=True)
                found = later
            yield found
            offset, number = found.end, found.number + 1

    def _commit(self, offset: int) -> FoundCommit | None:
        """Return the commit at ``offset`` if the frame and the heads of the blocks are undamaged."""
        assert self.opening is not None
        frame = self.octets(offset, FRAME.size)
        if len(frame) < FRAME.size:
            return None
        magic, crc, number, length, count = FRAME.unpack(frame)
        end = offset + FRAME.size + length
        if magic != MAGIC or end > self.size or count * BLOCK.size > length:
            return None
        heads = zlib.crc32(frame[8:], self.opening.salt)
        at, blocks = offset + FRAME.size, []
        for _ in range(count):
            octets = self.octets(at, BLOCK.size)
            if len(octets) < BLOCK.size:
                return None
            heads = zlib.crc32(octets, heads)
            head = head_at(octets)
            blocks.append(Place(at, head))
            at += head.extent
            if at > end:
                return None
        return FoundCommit(offset, end, number, blocks) if heads == crc and at == end else None

    def _next_commit(self, offset: int, number: int) -> FoundCommit | None:
        """Return the first undamaged commit of a later number behind ``offset``. Such a commit proves that earlier
        commits were finished.
        """
        while offset < self.size:
            octets = self.octets(offset, WINDOW)
            if not octets:
                return None
            at = octets.find(MAGIC)
            while at >= 0:
                # A body may contain the magic number: commits begin at aligned places only.
                if (offset + at - OPENING_SIZE) % ALIGNMENT == 0:
                    found = self._commit(offset + at)
                    if found is not None and found.number > number:
                        return found
                at = octets.find(MAGIC, at + 1)
            # The windows overlap, so that no magic number is cut in two.
            offset += max(len(octets) - len(MAGIC) + 1, 1)
        return None

    def _blocks_between(self, offset: int, end: int) -> Iterator[Place]:
        """Yield whole blocks in a damaged stretch."""
        while offset + BLOCK.size <= end:
            head = head_at(self.octets(offset, BLOCK.size))
            place = Place(offset, head)
            if head.kind in KINDS and head.extent <= end - offset and self.block(place) is not None:
                yield place
                offset += head.extent
            else:
                offset += ALIGNMENT


class OpenSegment(SegmentFile):
    """A segment's file with a separate descriptor."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._descriptor = files.open(path)
        super().__init__(self._descriptor)

    @functools.cached_property
    def has_commits(self) -> bool:
        """True if anything was written to the file, damaged or not."""
        return next(self.commits(), None) is not None

    def close(self) -> None:
        self._files.close(self._descriptor)


def given_up(following: Iterable[OpenSegment], synced: int = 0) -> int | None:
    """Return the number of a segment's first abandoned commit: commits from this number on were written again in
    following segments. None without abandoned commits.

    Args:
        following: the following segments.
        synced: number of a segment; all earlier segments are known to have been synced. 0 if unknown. Up to this
            number, an unused segment counts, too. A later unused segment proves nothing: after its creation, commits
            may have continued in the older segment.
    """
    for file in following:
        assert file.opening is not None
        if file.has_commits or file.opening.segment <= synced:
            return file.opening.first_commit
    return None


def removed_before(numbers: Sequence[int]) -> int:
    """Return the number of the last segment whose predecessor was removed; 0 without such a segment. All earlier
    commits are complete, because only segments of complete commits are removed.
    """
    return max((later for one, later in pairwise(numbers) if later > one + 1), default=0)
