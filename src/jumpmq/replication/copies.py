"""The copy kept by a replica, as seen by the replica's roles: a log and the file ``replica``."""

from jumpmq.replication.configuration import Replica
from jumpmq.replication.lineage import Lineage, end_of, segment_at


class Copy:
    """Data of a home on a single disk, and the state known in memory.

    Attributes:
        me: identity of the replica.
        promised: highest epoch that this life has seen; lower ones are refused.
        noted: the promise that is synced in ``replica``; nothing is answered in a higher epoch (R6).
        mark: position up to which all is complete, as synced in ``replica``.
        complete: the same, as known in memory; at least `mark`.
        lineage: of the log as written.
        stored: position up to which the log is synced.
        closing: whether the worker of an epoch that is over may still write; nothing is answered until it is gone.
        kept: position behind which the log has all its octets, so that they can be shipped; what is before it is
            complete, and may be removed. :func:`~jumpmq.replication.lineage.before` of the first segment, or 0.

    A copy is opened when no other process writes it. Before, the octets behind the mark are written again and synced:
    after a sync that failed, the page cache may show octets that are not on disk, and that the next sync, which
    succeeds, does not write.
    """

    def __init__(self, me: Replica, promised: int, mark: int, lineage: Lineage, kept: int = 0) -> None:
        self.me = me
        self.promised = self.noted = promised
        self.mark = self.complete = mark
        self.lineage = lineage
        self.kept = kept
        self.stored = self.end
        self.closing = False

    @property
    def end(self) -> int:
        """The position behind the last octet that was written, or behind consumed segments that follow it."""
        return max(end_of(self.lineage), self.kept)

    @property
    def lost(self) -> bool:
        """True if the log of a just opened disk ends before the disk's own mark (R7, I7).

        The disk then takes another identity before it answers anything: as that, it is in no set.
        """
        return self.end < self.mark

    @property
    def removable(self) -> int:
        """Segment before which segments may be removed, if consumed by the own index (R10, R11).

        The segment with the end of what is complete stays: the logs of the set meet in it.
        """
        return segment_at(self.complete)
