"""A replica of a home: a copy and its current role.

Methods take events, and return actions in the order of their execution. The caller owns all I/O and all time: it
performs actions, passes their results to methods, and reports timeouts through :class:`~jumpmq.replication.pace.Pace`.
Attributes of all parts are values that are replaced, never changed in place.
"""

from collections.abc import Iterable

from jumpmq.replication.actions import Action, Close, Note, Read, Send, Stop, Swap
from jumpmq.replication.candidate import BEGINNING, Candidate
from jumpmq.replication.configuration import Configuration, ReplicaId, node_of
from jumpmq.replication.copies import Copy
from jumpmq.replication.follower import Follower
from jumpmq.replication.frames import (
    Answer,
    Ask,
    Complete,
    Data,
    Fetch,
    Fetched,
    Frame,
    Hello,
    Lead,
    Lost,
    Matched,
    Refused,
    Resign,
    Segment,
    Stored,
)
from jumpmq.replication.leader import Leader
from jumpmq.replication.lineage import Lineage, Stretch, before, from_segment, position_at


class Replica:
    """Roles of a home's copy.

    Attributes:
        copy: the contents of the disk.
        follower: the role that promises and stores; idle while the replica leads.
        candidate: the role from a won epoch to its first segment, or None.
        leader: the role that leads, or None.
        known: newest configuration; None before the first read.
        peers: connected replicas.
        claim: configuration proposed by a claim without an answer, or None.
        resigned: epoch whose leader allowed an immediate claim; 0 without one.
        stopped: reason for the end of the process; no action follows any more (R9).
    """

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.follower = Follower(copy)
        self.candidate: Candidate | None = None
        self.leader: Leader | None = None
        self.known: Configuration | None = None
        self.peers: frozenset[ReplicaId] = frozenset()
        self.claim: Configuration | None = None
        self.resigned = 0
        self.stopped = ""

    @property
    def source(self) -> ReplicaId | None:
        """Source of the octets written to this copy; None without a leader."""
        return self.follower.leader if self.candidate is None else self.candidate.source

    @property
    def electable(self) -> bool:
        """True if the replica may take over, by the newest known configuration."""
        return self.known is not None and self.copy.me in self.known.electable

    # --- etcd ---

    def on_value(self, value: Configuration) -> list[Action]:
        """Process a configuration from the watch, or from the answer to a swap, whether or not the swap has landed."""
        if self.stopped or (self.known is not None and value.v < self.known.v):
            return []
        # Versions only grow, and compare-and-swap lets one value of each version land.
        if self.known is not None and value.v == self.known.v:
            return [] if value == self.known else self.stop("etcd was set back: one version has two values")
        former, self.known = self.known, value
        if self.claim is not None and value.v >= self.claim.v:
            self.claim = None
        actions: list[Action] = []
        if self._deposed(value):
            actions = self.end(f"{value.leader} leads in epoch {value.epoch}")
        elif self.leader is not None:
            actions = self.leader.on_value(value)
        elif self.candidate is not None:
            self.candidate.value = value
        # A promised epoch belongs to an earlier life of this process: each life is a new epoch (R4).
        if value.leader == self.copy.me and value.epoch > self.copy.promised:
            actions += self._win(value, former)
        return actions

    def _deposed(self, value: Configuration) -> bool:
        """True if a value ends the epoch of this leader or candidate."""
        part = self.leader or self.candidate
        return part is not None and (value.leader, value.epoch) != (self.copy.me, part.epoch)

    def on_read(self, value: Configuration, read: Read) -> list[Action]:
        """Process the result of a linearizable read; ``read`` has the version and epoch known at its start."""
        if self.stopped:
            return []
        # A linearizable read is never older than a value known before its start.
        if value.v < read.v or value.epoch < read.epoch:
            return self.stop(
                f"etcd was set back: it has version {value.v} and epoch {value.epoch} of the home's configuration,"
                f" and {read.v} and {read.epoch} were known"
            )
        return self.on_value(value)

    def take_over(self) -> list[Action]:
        """Claim leadership, or repeat the claim; the caller decides when (R8).

        A replica that may lack complete commits does not claim (R4). The leader's process claims, too, after a restart:
        each life of a process is a new epoch.
        """
        busy = self.leader is not None or self.candidate is not None or self.copy.closing
        if self.stopped or busy or self.known is None:
            return []
        # The known value may be outdated: only a read shows whether this replica may claim.
        if not self.electable or self.known.epoch < self.copy.promised:
            return [Read(self.known.v, self.copy.promised)]
        self.claim = self.known.claimed(self.copy.me)
        return [Swap(self.known, self.claim)]

    def _win(self, value: Configuration, former: Configuration | None) -> list[Action]:
        """Begin an epoch given to this replica by etcd's value, and unused by the replica's earlier processes."""
        asked = self.peers.union(value.electable, former.electable if former is not None else ())
        # A leader that gave leadership away sent all of its log before, and its process may end.
        if former is not None and (value.is_handed_by(former) or self.resigned == former.epoch):
            asked -= {former.leader}
        self.candidate = Candidate(self.copy, value, asked)
        return self.candidate.begin(self.follower)

    # --- connections ---

    def on_connected(self, peer: ReplicaId) -> list[Action]:
        """Process the hello of a connection to a peer."""
        if self.stopped:
            return []
        self.peers |= {peer}
        if self.candidate is not None:
            return self.candidate.ask(peer)
        if self.leader is None:
            return []
        return self._replaced(peer) + self.leader.lead(peer)

    def _replaced(self, peer: ReplicaId) -> list[Action]:
        """Process the connection of a node in the set with a new disk: the former disk was lost, with all octets."""
        assert self.leader is not None
        node, known = node_of(peer), self.leader.known
        return self.leader.remove((), [one for one in known.electable if node_of(one) == node and one != peer])

    def on_disconnected(self, peer: ReplicaId) -> list[Action]:
        """Note the end of a connection, as seen from this side."""
        if self.stopped:
            return []
        self.peers -= {peer}
        actions = self.follower.on_lost(peer)
        if self.candidate is not None:
            actions += self.candidate.on_lost(peer)
        if self.leader is not None:
            actions += self.leader.on_lost(peer)
        return actions

    def on_frame(self, peer: ReplicaId, frame: Frame) -> list[Action]:
        """Process a frame, except beats and the frames of joining."""
        if self.stopped or peer not in self.peers:
            return []
        if isinstance(frame, Refused):
            return self._on_refused(frame)
        if isinstance(frame, (Lead, Ask)):
            return self._on_higher(peer, frame)
        if self.leader is not None and frame.epoch == self.leader.epoch:
            match frame:
                case Matched():
                    return self.leader.on_matched(peer, frame.position)
                case Stored():
                    return self.leader.on_stored(peer, frame.position)
        if self.candidate is not None:
            return self._to_candidate(self.candidate, peer, frame)
        return self._to_follower(peer, frame) if self.leader is None else []

    def _on_higher(self, peer: ReplicaId, frame: Lead | Ask) -> list[Action]:
        """Process a frame of a leader or candidate. A higher epoch ends the role of this replica in its own epoch."""
        actions: list[Action] = []
        if frame.epoch > self.copy.promised:
            actions = self.end(f"{peer} leads in epoch {frame.epoch}")
        # The sender of a lower epoch was deposed, and learns that by the refusal (R6).
        if self.leader is not None or self.candidate is not None:
            return [Send(peer, Refused(self.copy.promised))] if frame.epoch < self.copy.promised else []
        if isinstance(frame, Lead):
            return actions + self.follower.on_lead(peer, frame)
        return actions + self.follower.on_ask(peer, frame)

    def _to_candidate(self, candidate: Candidate, peer: ReplicaId, frame: Frame) -> list[Action]:
        match frame:
            case Answer() if frame.epoch == candidate.epoch:
                return candidate.on_answer(peer, frame.lineage)
            case Segment():
                return candidate.on_segment(self.follower, peer, frame)
            case Data():
                return candidate.on_data(self.follower, peer, frame)
            case Fetched():
                return candidate.on_fetched(peer, frame.epoch)
        return []

    def _to_follower(self, peer: ReplicaId, frame: Frame) -> list[Action]:
        follower = self.follower
        match frame:
            case Segment():
                return follower.on_segment(peer, frame)
            case Data():
                return follower.on_data(peer, frame)
            case Complete():
                return follower.on_complete(peer, frame.epoch, frame.position)
            case Fetch():
                return follower.on_fetch(peer, frame)
            case Lost():
                return follower.on_lost_octets(peer, frame.epoch)
            case Resign() if frame.epoch == self.copy.promised:
                self.resigned = frame.epoch
            case Hello():
                pass
        return []

    def _on_refused(self, frame: Refused) -> list[Action]:
        """Process a refusal: a peer has promised a higher epoch. etcd must have that epoch; if not, etcd was reset to
        an older state.
        """
        # The refusal is late: this replica knows that epoch or a later one.
        if frame.epoch <= self.copy.promised or self.known is None:
            return []
        return [Read(self.known.v, frame.epoch)]

    # --- the disk ---

    def on_noted(self, epoch: int, mark: int) -> list[Action]:
        """Process the end of a write to ``replica``: promise and mark are synced."""
        if self.stopped:
            return []
        actions = self.follower.on_noted(epoch, mark)
        return actions + self.candidate.proceed() if self.candidate is not None else actions

    def note(self) -> list[Action]:
        """Record the complete position, to detect a disk that loses complete commits (R7)."""
        if self.stopped or self.copy.mark == self.copy.complete:
            return []
        return [Note(self.copy.promised, self.copy.complete)]

    def on_synced(self, position: int) -> list[Action]:
        """Record that the log is synced up to a position."""
        if self.stopped:
            return []
        if self.leader is not None:
            return self.leader.on_synced(position)
        actions = self.follower.on_synced(position)
        return actions + self.candidate.on_synced() if self.candidate is not None else actions

    def on_cut(self, position: int) -> list[Action]:
        """Record that the log is truncated and synced."""
        return [] if self.stopped else self.follower.on_cut(position)

    def on_begun(self, stretch: Stretch) -> list[Action]:
        """Record a synced segment of this replica's epoch: the first segment, or the next segment of the store."""
        if self.stopped:
            return []
        if self.leader is not None:
            self.copy.lineage = (*self.copy.lineage, stretch)
            return self.leader.on_synced(self.copy.end)
        candidate = self.candidate
        if candidate is None or candidate.phase != BEGINNING or stretch.epoch != candidate.epoch:
            return []
        self.copy.lineage = (*self.copy.lineage, stretch)
        # The caller has synced the segment, and the log before it.
        self.copy.stored = self.copy.end
        self.candidate = None
        self.leader = Leader(self.copy, candidate.value, position_at(stretch.segment, 0))
        actions = self.leader.advance()
        for peer in sorted(self.peers):
            actions += self._replaced(peer) + self.leader.lead(peer)
        return actions

    def on_written(self, position: int) -> list[Action]:
        """Record that the store of this leader has written up to a position."""
        if self.stopped or self.leader is None:
            return []
        return self.leader.on_written(position)

    def on_removed(self, segment: int) -> list[Action]:
        """Record the removal of the segments before a given segment. By the replica's own index, these were consumed
        and complete (R10, R11).
        """
        self.copy.kept = before(segment)
        self.copy.lineage = from_segment(self.copy.lineage, segment)
        return []

    # --- decisions of the caller ---

    def remove(self, leaving: Iterable[ReplicaId]) -> list[Action]:
        """Remove overdue replicas from the set."""
        return self.leader.remove(leaving) if self.leader is not None and not self.stopped else []

    def join(self, peer: ReplicaId) -> list[Action]:
        """Add a replica that keeps up to the set."""
        return self.leader.join(peer) if self.leader is not None and not self.stopped else []

    def gathered(self) -> list[Action]:
        """Continue without missing answers, after the time for answers."""
        return self.candidate.gathered() if self.candidate is not None and not self.stopped else []

    def hand_over(self, target: ReplicaId) -> list[Action]:
        """Offer leadership to a follower in the set."""
        return self.leader.hand_over(target) if self.leader is not None and not self.stopped else []

    def end(self, reason: str) -> list[Action]:
        """End the epoch of the local leader or candidate: the store is closed, or another replica leads.

        The store of an epoch may have written octets unknown to the replica. No answers are given until the store is
        closed, and its log was read (:meth:`on_closed`).
        """
        begun = self.leader is not None or (self.candidate is not None and self.candidate.phase == BEGINNING)
        self.leader = self.candidate = None
        if not begun or self.stopped:
            return []
        # Until the store is closed, its thread may append octets: no position of this copy is certain.
        self.copy.closing = True
        return [Close(reason)]

    def on_closed(self, lineage: Lineage) -> list[Action]:
        """Process the close of the store, with the final lineage of its log."""
        if self.stopped:
            return []
        self.copy.lineage, self.copy.closing = lineage, False
        actions = self.follower.proceed()
        return actions + self.candidate.proceed() if self.candidate is not None else actions

    def retry(self) -> list[Action]:
        """Repeat an unanswered swap."""
        if self.stopped:
            return []
        if self.leader is not None:
            return self.leader.retry()
        if self.claim is not None and self.known is not None:
            return [Read(self.known.v, self.copy.promised), Swap(self.known, self.claim)]
        return []

    def stop(self, reason: str) -> list[Action]:
        """End the process at once: its disk has failed, or etcd was set back (R9)."""
        self.stopped = self.stopped or reason
        self.leader = self.candidate = None
        return [Close(reason), Stop(reason)]
