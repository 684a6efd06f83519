"""Lineage of a log: the segments of the log, by which logs are compared.

A log is a sequence of segments. Each segment was written by one life of one leader, in one epoch and with a random
salt, and begins at the end of the previous segment in that leader's own log. Two logs that share a segment (number,
epoch, salt) are therefore equal before this segment, and within the segment up to the shorter end. This is Raft's log
matching property, with segments in place of entries. Truncation uses this property, never a position alone (KIP-101,
KIP-279).

A position is one number, as in the store: the segment in the upper half, the offset in its file in the lower half.
Position 0 is before the first segment. A copy may lack consumed segments that another copy still has.
"""

from collections.abc import Sequence

from jumpmq.store.lineage import Stretch as Stretch
from jumpmq.store.log import OFFSET_BITS

Lineage = tuple[Stretch, ...]
"""Segments of a log, in order."""


def position_at(segment: int, offset: int) -> int:
    """Return the position of an offset in a segment."""
    return segment << OFFSET_BITS | offset


def segment_at(position: int) -> int:
    """Return the segment of a position."""
    return position >> OFFSET_BITS


def offset_at(position: int) -> int:
    """Return the offset of a position in the segment's file."""
    return position & (1 << OFFSET_BITS) - 1


def before(segment: int) -> int:
    """Return the last position before a segment's file. It is behind all earlier segments, whatever their lengths; 0
    for the first segment.
    """
    return position_at(segment, 0) - 1 if segment > 1 else 0


def end_of(lineage: Sequence[Stretch]) -> int:
    """Return the position behind the last octet; 0 for an empty log."""
    return position_at(lineage[-1].segment, lineage[-1].end) if lineage else 0


def common_end(mine: Sequence[Stretch], theirs: Sequence[Stretch]) -> int:
    """Return the end of the common prefix of two logs; 0 if they share no segment.

    The last segment in both logs decides. It does not matter if one log has removed earlier segments.
    """
    ends = {stretch.identity: stretch.end for stretch in theirs}
    for stretch in reversed(mine):
        end = ends.get(stretch.identity)
        if end is not None:
            return position_at(stretch.segment, min(end, stretch.end))
    return 0


def extends(longer: Sequence[Stretch], shorter: Sequence[Stretch]) -> bool:
    """True if the first log contains all of the second, and possibly more."""
    return common_end(shorter, longer) == end_of(shorter)


def cut_to(lineage: Sequence[Stretch], position: int) -> Lineage:
    """Return the lineage of a log truncated at a position."""
    segment, offset = segment_at(position), offset_at(position)
    kept = tuple(stretch for stretch in lineage if stretch.segment < segment)
    cut = [stretch._replace(end=offset) for stretch in lineage if stretch.segment == segment]
    return (*kept, *cut)


def grown_to(lineage: Sequence[Stretch], position: int) -> Lineage:
    """Return the lineage of a log whose last segment was written up to a position."""
    last = lineage[-1]
    assert segment_at(position) == last.segment and position >= end_of(lineage), "a log grows in its last segment"
    return (*lineage[:-1], Stretch(last.segment, last.epoch, last.salt, offset_at(position)))


def from_segment(lineage: Sequence[Stretch], segment: int) -> Lineage:
    """Return the lineage without the segments before ``segment``."""
    return tuple(stretch for stretch in lineage if stretch.segment >= segment)
