"""The copy kept by a replica, as seen by the replica's roles: a log and the file ``replica``."""

from jumpmq.replication.configuration import ReplicaId
from jumpmq.replication.lineage import Lineage, end_of, segment_at


class Copy:
    """A home's data on one disk, and the state in memory.

    Attributes:
        me: identity of the replica.
        promised: highest epoch seen in this life; lower epochs are refused.
        noted: the promise synced in ``replica``; no answer is given in a higher epoch (R6).
        mark: position synced in ``replica``, up to which everything is complete.
        complete: the complete position as known in memory; at least `mark`.
        lineage: lineage of the written log.
        stored: position up to which the log is synced.
        closing: True while the store of an ended epoch may still write; no answers are given meanwhile.
        kept: position from which on the log has all octets, and can be shipped. Earlier octets are complete, and may be
            removed. The value is :func:`~jumpmq.replication.lineage.before` of the first segment, or 0.

    A copy is opened only when no other process writes it. Before that, the octets behind the mark are written again and
    synced. After a failed sync, the page cache may have octets that are not on disk, and the next successful sync does
    not write them.
    """

    def __init__(self, me: ReplicaId, promised: int, mark: int, lineage: Lineage, kept: int = 0) -> None:
        self.me = me
        self.promised = self.noted = promised
        self.mark = self.complete = mark
        self.lineage = lineage
        self.kept = kept
        self.stored = self.end
        self.closing = False

    @property
    def end(self) -> int:
        """Return the position behind the last written octet. If later segments were consumed, return the position
        behind these.
        """
        return max(end_of(self.lineage), self.kept)

    @property
    def lost(self) -> bool:
        """True if the log of a just opened disk ends before the disk's own mark (R7, I7).

        The disk then takes a new identity before it answers anything; the new identity is in no set.
        """
        return self.end < self.mark

    @property
    def removable(self) -> int:
        """Segment before which consumed segments may be removed, by the replica's own index (R10, R11).

        The segment with the complete position stays, as a common segment in the logs of all replicas in the set.
        """
        return segment_at(self.complete)
