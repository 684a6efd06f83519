"""Assembly of shipped octets into whole, verified commits; a follower writes nothing else.

A leader ships its segments in pieces of any length. :class:`CommitChecks` collects pieces until a commit is whole, and
verifies it as a start of the store does: frame, heads and contents of blocks by their CRCs, and the numbers in order. A
copy therefore always ends after a commit. Damage in transit, or on the leader's disk, ends the connection and is not
stored.
"""

import zlib
from collections.abc import Iterator

from jumpmq.replication.configuration import ReplicaId
from jumpmq.replication.frames import Data
from jumpmq.replication.lineage import Lineage, Stretch, end_of, position_at, segment_at
from jumpmq.store.block_format import BLOCK
from jumpmq.store.records import FRAME, MAGIC, OPENING_SIZE, Opening, block_is_whole, head_at
from jumpmq.store.scan import MAX_LENGTH


class DamagedCommit(ValueError):
    """Shipped octets are damaged; the text gives position and kind of the damage."""


class CommitChecks:
    """Assembles the pieces of a segment into whole commits.

    Args:
        stretch: the segment, and its stored end, where shipping continues.
        first: number of the next commit, in this segment or after its opening; None if unknown.

    Attributes:
        next_number: number of the commit after the last whole one; None if unknown.
        waiting: octets of the incomplete commit.
    """

    def __init__(self, stretch: Stretch, first: int | None = None) -> None:
        self._stretch = stretch
        self._end = stretch.end  # end of the last whole commit
        self.next_number = first
        self._pieces = bytearray()  # received octets behind that end
        self._needed = 0  # minimum octets of the next commit, as far as known

    @property
    def waiting(self) -> int:
        return len(self._pieces)

    def add(self, position: int, octets: bytes) -> Iterator[tuple[int, bytes]]:
        """Add a piece. Yield the segment's opening and whole commits, each as a position and octets. Consecutive
        commits are yielded together.

        Raises:
            DamagedCommit: the opening or a commit is damaged, or octets are missing. All octets yielded so far are
                undamaged.
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
        # The salt of the segment is part of each CRC: an old commit in a reused place does not pass for a new one.
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
    """Checks the octets received from a shipping replica. Tracks the expected number of the next commit.

    Args:
        end: end of the copy's log.
        number: number of the next commit; None if unknown.
    """

    def __init__(self, end: int, number: int | None) -> None:
        self.next_is(end, number)

    def next_is(self, end: int, number: int | None) -> None:
        """Set the number of the next commit at the end of the log; drop the octets of an incomplete commit."""
        self._end, self._number = end, number
        self._checks: tuple[ReplicaId, CommitChecks] | None = None  # the shipped segment and its sender

    def stop(self, peer: ReplicaId) -> None:
        """Drop the octets of an incomplete commit of a replica."""
        if self._checks is not None and self._checks[0] == peer:
            self._checks = None

    def begin(self, peer: ReplicaId, stretch: Stretch, end: int) -> None:
        """Begin a segment that a replica ships from its opening on, at the end of the copy's log.

        The next commit's number is known if the log ends in the preceding segment, and unknown if segments in between
        were consumed.
        """
        follows = end == self._end and segment_at(end) + 1 == stretch.segment
        self._checks = peer, CommitChecks(stretch, self._number if follows else None)

    def add(self, peer: ReplicaId, data: Data, lineage: Lineage) -> Iterator[tuple[int, bytes]]:
        """Add octets shipped by a replica; yields as :meth:`CommitChecks.add`.

        Args:
            lineage: lineage of the copy's log.

        Raises:
            DamagedCommit: as for :meth:`CommitChecks.add`, or the copy has no segment for the octets.
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
