"""Shipped octets as whole, verified commits: a follower writes nothing else.

A leader sends its segments in pieces, which end anywhere. :class:`CommitChecks` collects them until a commit is there
as a whole, and checks it as a start of the store would: frame, heads and contents of blocks by their CRCs, number by
number. So a copy always ends behind a commit, and damage on the way, or on the leader's disk, ends the connection
instead of being stored.
"""

import zlib
from collections.abc import Iterator

from jumpmq.replication.configuration import Replica
from jumpmq.replication.frames import Data
from jumpmq.replication.lineage import Lineage, Stretch, end_of, position_at, segment_at
from jumpmq.store.block_format import BLOCK
from jumpmq.store.records import FRAME, MAGIC, OPENING_SIZE, Opening, block_is_whole, head_at
from jumpmq.store.scan import MAX_LENGTH


class DamagedCommit(ValueError):
    """Shipped octets are damaged; the text says where, and how."""


class CommitChecks:
    """Assembles the pieces of a segment into whole commits.

    Args:
        stretch: the segment, and the end of what is stored of it; shipping goes on there.
        first: number of the next commit, in this segment or behind its opening; None where it is unknown.

    Attributes:
        next_number: of the commit behind the last whole one; None where it is unknown.
        waiting: octets of a commit that is not whole yet.
    """

    def __init__(self, stretch: Stretch, first: int | None = None) -> None:
        self._stretch = stretch
        self._end = stretch.end  # behind the last whole commit
        self.next_number = first
        self._pieces = bytearray()  # behind that end
        self._needed = 0  # octets that the next commit has at least, as far as known

    @property
    def waiting(self) -> int:
        return len(self._pieces)

    def add(self, position: int, octets: bytes) -> Iterator[tuple[int, bytes]]:
        """Add a piece; yield the position and octets of the opening, and of whole commits, joined where several are.

        Raises:
            DamagedCommit: a commit or the opening is not as written, or octets between are missing. Nothing of it was
                yielded; what was yielded before is good.
        """
        at = position_at(self._stretch.segment, self._end + len(self._pieces))
        if position != at:
            raise DamagedCommit(f"octets for position {position} came where {at} was expected")
        if not self._pieces:
            length, problem = self._whole(octets)
            if length == len(octets):  # most pieces are a commit
                whole = octets
            else:
                whole, self._pieces = octets[:length], bytearray(octets[length:])
        else:
            self._pieces += octets
            if len(self._pieces) < self._needed:
                return
            length, problem = self._whole(self._pieces)
            whole = bytes(memoryview(self._pieces)[:length])
            del self._pieces[:length]
        if length:
            begin, self._end = self._end, self._end + length
            yield position_at(self._stretch.segment, begin), whole
        if problem:
            raise DamagedCommit(problem)

    def _whole(self, pieces: bytes | bytearray) -> tuple[int, str]:
        """Return the number of octets in whole commits at the start of the pieces, and the damage behind them."""
        at = 0
        with memoryview(pieces) as octets:
            while at < len(octets):
                try:
                    length = self._opening(octets) if self._end + at == 0 else self._commit(octets, at)
                except DamagedCommit as damage:
                    return at, str(damage)
                if not length:
                    break
                at += length
        return at, ""

    def _opening(self, octets: memoryview) -> int:
        """Return the size of the segment's opening in octets; 0 until complete."""
        if len(octets) < OPENING_SIZE:
            self._needed = OPENING_SIZE
            return 0
        opening = Opening.decode(bytes(octets[:OPENING_SIZE]))
        segment, epoch, salt = self._stretch.identity
        if opening is None or (opening.segment, opening.epoch, opening.salt) != (segment, epoch, salt):
            raise DamagedCommit(f"the opening of segment {segment} is damaged, or that of another segment")
        if self.next_number not in (None, opening.first_commit):
            what = f"it begins with commit {opening.first_commit}, and {self.next_number} comes next"
            raise self._damage(0, what)
        self.next_number = opening.first_commit
        return OPENING_SIZE

    def _commit(self, octets: memoryview, at: int) -> int:
        """Return the size in octets of the commit at an offset; 0 until complete."""
        if len(octets) - at < FRAME.size:
            self._needed = FRAME.size
            return 0
        magic, crc, number, length, count = FRAME.unpack_from(octets, at)
        if magic != MAGIC or length > MAX_LENGTH or count * BLOCK.size > length:
            raise self._damage(at, "no commit begins there")
        if self.next_number not in (None, number):
            raise self._damage(at, f"commit {number} is there instead of {self.next_number}")
        whole = int(FRAME.size + length)
        if len(octets) - at < whole:
            self._needed = whole
            return 0
        self._verify(octets[at : at + whole], at, crc, count)
        self.next_number = number + 1
        self._needed = 0
        return whole

    def _verify(self, commit: memoryview, at: int, crc: int, count: int) -> None:
        salt = self._stretch.salt
        heads, offset = zlib.crc32(commit[8 : FRAME.size], salt), FRAME.size
        for _ in range(count):
            head = commit[offset : offset + BLOCK.size]
            if len(head) < BLOCK.size:
                raise self._damage(at, "a block's head is missing")
            heads = zlib.crc32(head, heads)
            end = offset + head_at(head).extent
            if end > len(commit) or not block_is_whole(commit[offset:end], salt):
                raise self._damage(at, "a block is not as written")
            offset = end
        if heads != crc or offset != len(commit):
            raise self._damage(at, "the heads of its blocks are not as written")

    def _damage(self, at: int, what: str) -> DamagedCommit:
        return DamagedCommit(f"segment {self._stretch.segment} is damaged at octet {self._end + at}: {what}")


class Incoming:
    """Incoming octets of a shipping replica, and the expected number of the next commit.

    Args:
        end: of the copy's log.
        number: number of the next commit; None if unknown.
    """

    def __init__(self, end: int, number: int | None) -> None:
        self.next_is(end, number)

    def next_is(self, end: int, number: int | None) -> None:
        """Set the number of the next commit at the end of the log; the octets of an unfinished commit are dropped."""
        self._end, self._number = end, number
        self._checks: tuple[Replica, CommitChecks] | None = None  # of the segment that is shipped, and by whom

    def stop(self, peer: Replica) -> None:
        """Drop the octets of an unfinished commit of a replica."""
        if self._checks is not None and self._checks[0] == peer:
            self._checks = None

    def begin(self, peer: Replica, stretch: Stretch, end: int) -> None:
        """A replica ships a segment from its opening on, behind the end of the copy's log.

        A log that ends in the segment before goes on with the next number; where segments between were consumed, the
        number is unknown.
        """
        follows = end == self._end and segment_at(end) + 1 == stretch.segment
        self._checks = peer, CommitChecks(stretch, self._number if follows else None)

    def add(self, peer: Replica, data: Data, lineage: Lineage) -> Iterator[tuple[int, bytes]]:
        """Add octets shipped by a replica; yield as :meth:`CommitChecks.add`.

        Args:
            lineage: of the copy's log.

        Raises:
            DamagedCommit: as there, or the copy has no segment that the octets could belong to.
        """
        if self._checks is None or self._checks[0] != peer:
            if not lineage:
                raise DamagedCommit(f"octets for position {data.position} came before a segment")
            end = end_of(lineage)
            self._checks = peer, CommitChecks(lineage[-1], self._number if end == self._end else None)
        checks = self._checks[1]
        for position, octets in checks.add(data.position, data.octets):
            self._end, self._number = position + len(octets), checks.next_number
            yield position, octets
