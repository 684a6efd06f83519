"""Reads the lineage of a log from a data directory: segments with epoch, salt and end. Writes nothing.

:mod:`jumpmq.replication.lineage` explains the purpose of lineages.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.log import DIRECTORY, OFFSET_BITS
from jumpmq.store.records import OPENING_SIZE
from jumpmq.store.scan import FoundCommit, OpenSegment, given_up, removed_before


class Stretch(NamedTuple):
    """A segment in a lineage.

    Attributes:
        segment: number of the segment.
        epoch: epoch in which the segment was begun.
        salt: random number of the segment's opening.
        end: octets of the segment in this log.
    """

    segment: int
    epoch: int
    salt: int
    end: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """Identity of a segment: equal in all copies of the segment, even if the copies have different ends."""
        return self[:3]


class ReadLineage(NamedTuple):
    """Result of :func:`read_lineage`.

    Attributes:
        lineage: segments of the log, in order.
        damaged: positions before the mark of damaged commits and openings of segments.
        hidden: damaged positions after which the end of the segment is unknown: damaged openings, and damage of the
            last commits of a segment.
    """

    lineage: tuple[Stretch, ...]
    damaged: list[int]
    hidden: list[int]


class _Segment(NamedTuple):
    """File of a segment, with the numbers of the segment and of its first commit."""

    number: int
    path: Path
    first_commit: int


def read_lineage(directory: Path, mark: int = 0, files: Files | None = None) -> ReadLineage:
    """Read the lineage of the log in a data directory that no process writes to.

    The log ends behind the last commit before the first damaged or missing commit. A follower syncs several commits at
    once, so a crash may leave a later commit without an earlier one. Commits before the mark were synced, so damage
    there is not the end of the log: the damage is reported, and the log continues behind it. If the damage includes the
    last commits of a segment, the log continues in the next segment.

    Heads of commits and blocks are verified in all segments, contents from the mark's segment on.

    Args:
        directory: the data directory.
        mark: position up to which all commits are known to have been synced, those in missing segments included; 0 for
            none.
        files: the file calls to use.

    Raises:
        StoreError: a file cannot be read.
    """
    files = files or Files()
    lineage: dict[int, Stretch] = {}
    damaged: list[int] = []
    hidden: list[int] = []
    known = _segments(directory / DIRECTORY, files)
    mark = max(mark, removed_before([one.number for one in known]) << OFFSET_BITS)
    for place, (number, path, _) in enumerate(known):
        if number in lineage:
            continue  # a copy of the segment's file under another name
        try:
            with closing(OpenSegment(files, path)) as file:
                if file.opening is not None:
                    following = known[place + 1 :]
                    limit = _given_up(following, mark, files)
                    end, is_whole = _end(file, limit, _before(following, number), mark, damaged, hidden)
                    lineage[number] = Stretch(number, file.opening.epoch, file.opening.salt, end)
                elif file.is_blank:
                    is_whole = True  # the power failed while the file was made
                elif is_whole := number <= mark >> OFFSET_BITS:
                    damaged.append(number << OFFSET_BITS)
                    hidden.append(number << OFFSET_BITS)
        except OSError as error:
            raise _unreadable(path, error) from error
        if not is_whole:
            break
    return ReadLineage(tuple(lineage.values()), damaged, hidden)


def _segments(directory: Path, files: Files) -> list[_Segment]:
    """Return the segments by number. The number is that of the opening, or of the file's name if the opening is
    damaged.
    """
    found = []
    for path in directory.glob("*.log"):
        try:
            with closing(OpenSegment(files, path)) as file:
                if file.opening is not None:
                    found.append(_Segment(file.opening.segment, path, file.opening.first_commit))
                elif path.stem.isdigit():
                    found.append(_Segment(int(path.stem), path, 0))
        except OSError as error:
            raise _unreadable(path, error) from error
    return sorted(found)


def _before(following: Sequence[_Segment], number: int) -> int:
    """Return the last commit before the next segment was created; 0 if unknown."""
    return max((one.first_commit - 1 for one in following[:1] if one.number == number + 1), default=0)


def _given_up(following: Sequence[_Segment], mark: int, files: Files) -> int | None:
    """Return the number of the first abandoned commit, read from the openings of later segments' files; None without
    one. :func:`~jumpmq.store.scan.given_up` does the same with open files.
    """
    for one in following:
        with closing(OpenSegment(files, one.path)) as file:
            if file.opening is not None and (number := given_up([file], mark >> OFFSET_BITS)) is not None:
                return number
    return None


def _end(
    file: OpenSegment, limit: int | None, last: int, mark: int, damaged: list[int], hidden: list[int]
) -> tuple[int, bool]:
    """Return the end of a segment, and False if a commit behind the end is missing or damaged.

    Args:
        limit: number of the first abandoned commit; later segments have commits with the same numbers.
        last: number of a commit that must exist, with all earlier commits.
        damaged, hidden: receive positions of damage before the mark; see :class:`ReadLineage`.
    """
    assert file.opening is not None
    base, end, number = file.opening.segment << OFFSET_BITS, OPENING_SIZE, file.opening.first_commit - 1
    verifies = base >= mark & -1 << OFFSET_BITS
    for found in _counting(file.commits(), limit):
        if found.damaged or (verifies and not file.is_whole(found)):
            if base | found.offset >= mark:
                return end, False
            damaged.append(base | found.offset)
        end, number = found.end, found.number
    if number < last:
        if base | end >= mark:
            return end, False
        damaged.append(base | end)
        hidden.append(base | end)
    return end, True


def _counting(commits: Iterator[FoundCommit], limit: int | None) -> Iterator[FoundCommit]:
    """Yield the commits that were not abandoned."""
    for found in commits:
        if limit is not None and found.number >= limit:
            return
        yield found


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot read {path}: {error.strerror}; correct the cause")
