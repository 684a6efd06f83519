"""The follower role: promises, truncation, and stored positions (R6, R7, R11).

A replica that starts following notes the epoch, syncs its log, truncates the log to the common prefix with the
leader's, and reports the resulting position. From then on it appends the leader's octets there, and reports each sync.
"""

from jumpmq.replication.actions import Action, Alarm, Append, Apply, Cut, Drop, Fill, Note, Open, Renew, Send, Sync
from jumpmq.replication.configuration import ReplicaId
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Answer, Ask, Data, Fetch, Lead, Matched, Refused, Segment, Stored, Unfit
from jumpmq.replication.lineage import Stretch, common_end, cut_to, grown_to, position_at


class Follower:
    """A copy that receives a leader's log.

    Attributes:
        copy: the copy.
        leader: the leader that the copy follows, or is about to follow.
        lead: the leader's request to follow, until the log is matched.
        matched: True if the log is a prefix of the leader's, in the promised epoch.
        cutting: position of a truncation in progress; None without one.
        asks: candidates waiting for a promise, with their epochs.
        told: position reported as complete by the leader; the copy may not have stored it yet.
    """

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.leader: ReplicaId | None = None
        self.lead: Lead | None = None
        self.matched = False
        self.cutting: int | None = None
        self.asks: tuple[tuple[ReplicaId, int], ...] = ()
        self.told = 0

    def promise(self, epoch: int) -> list[Action]:
        """Promise an epoch: refuse lower epochs from now on, and write the promise to disk. :meth:`proceed` answers."""
        if epoch <= self.copy.promised:
            return []
        self.copy.promised = epoch
        self.leader, self.lead, self.matched, self.told = None, None, False, 0
        # An answer to a lower epoch would break the promise (R6).
        self.asks = tuple(ask for ask in self.asks if ask[1] >= epoch)
        return [Note(epoch, self.copy.mark)]

    def accepts(self, epoch: int) -> bool:
        """True if a frame of this epoch is to be processed (R6)."""
        return epoch >= self.copy.promised

    # --- following ---

    def on_lead(self, peer: ReplicaId, lead: Lead) -> list[Action]:
        if not self.accepts(lead.epoch):
            return [Send(peer, Refused(self.copy.promised))]
        actions = self.promise(lead.epoch)
        self.leader, self.lead, self.matched, self.told = peer, lead, False, 0
        return actions + self.proceed()

    def on_ask(self, peer: ReplicaId, ask: Ask) -> list[Action]:
        if not self.accepts(ask.epoch):
            return [Send(peer, Refused(self.copy.promised))]
        actions = self.promise(ask.epoch)
        self.asks = (*(one for one in self.asks if one[0] != peer), (peer, ask.epoch))
        return actions + self.proceed()

    def on_noted(self, epoch: int, mark: int) -> list[Action]:
        self.copy.noted = max(self.copy.noted, epoch)
        self.copy.mark = max(self.copy.mark, mark)
        return self.proceed()

    def on_synced(self, position: int) -> list[Action]:
        self.copy.stored = max(self.copy.stored, min(position, self.copy.end))
        if not self.matched:
            return self.proceed()
        assert self.leader is not None
        return [Send(self.leader, Stored(self.copy.promised, self.copy.stored)), *self._apply()]

    def on_cut(self, position: int) -> list[Action]:
        self.copy.lineage = cut_to(self.copy.lineage, position)
        self.copy.stored = min(self.copy.stored, position)  # the reported position may decrease
        self.cutting = None
        return self.proceed()

    def proceed(self) -> list[Action]:
        """Do the next step, if its precondition holds: the store is closed, the promise is on disk, the log is synced,
        the log is truncated. The last step is the answer.
        """
        waiting = self.lead is not None or self.asks
        # The promise is on disk before any answer: after a loss of power a lower epoch must still be refused (R6).
        if not waiting or self.copy.noted < self.copy.promised or self.cutting is not None or self.copy.closing:
            return []
        # An answered position counts as stored at the leader or candidate: it must survive a loss of power.
        if self.copy.stored < self.copy.end:
            return [Sync()]
        actions: list[Action] = [Send(peer, Answer(epoch, self.copy.lineage)) for peer, epoch in self.asks]
        self.asks = ()
        return actions + self._match() if self.lead is not None else actions

    def _match(self) -> list[Action]:
        """Make the log a prefix of the leader's."""
        assert self.lead is not None and self.leader is not None
        lead, epoch = self.lead, self.lead.epoch
        # Segments removed here were complete, so every leader has, or had, them.
        common = max(common_end(self.copy.lineage, lead.lineage), self.copy.kept)
        if common < lead.kept and self.copy.complete <= lead.kept:
            # The leader has removed the segments that would show the common prefix. All of them were complete.
            self.lead = None
            return [Send(self.leader, Unfit(epoch, True, f"{self.copy.me} ends before the leader's log begins"))]
        if not self.may_cut(common):
            self.lead = None
            reason = f"{self.copy.me} knows more to be complete than it has in common with {self.leader}"
            return [Alarm(reason), Send(self.leader, Unfit(epoch, False, reason))]
        if common < self.copy.end:
            self.cutting = common
            return [Cut(common)]
        self.lead, self.matched = None, True
        return [Send(self.leader, Matched(epoch, self.copy.stored))]

    def may_cut(self, position: int) -> bool:
        """Return True if the log may be truncated at a position, that is, not below the complete position (R7)."""
        return position >= min(self.copy.complete, self.copy.end)

    # --- octets ---

    def on_segment(self, peer: ReplicaId, frame: Segment) -> list[Action]:
        if not self._follows(peer, frame.epoch):
            return []
        return self.open(peer, frame.stretch)

    def on_data(self, peer: ReplicaId, frame: Data) -> list[Action]:
        if not self._follows(peer, frame.epoch):
            return []
        return self.append(peer, frame)

    def open(self, peer: ReplicaId, stretch: Stretch) -> list[Action]:
        """Open a segment at the log's end. If the segment's position is not the log's end, close the connection."""
        # A new connection starts with a new match, which finds the right position.
        if position_at(stretch.segment, 0) <= self.copy.end or stretch.end:
            return [Drop(peer)]
        self.copy.lineage = (*self.copy.lineage, stretch)
        return [Open(stretch)]

    def append(self, peer: ReplicaId, frame: Data) -> list[Action]:
        """Append octets. If the position is not the log's end, close the connection."""
        if frame.position != self.copy.end or not self.copy.lineage:
            return [Drop(peer)]
        self.copy.lineage = grown_to(self.copy.lineage, frame.position + len(frame.octets))
        return [Append(frame.position, frame.octets)]

    def on_complete(self, peer: ReplicaId, epoch: int, position: int) -> list[Action]:
        if not self._follows(peer, epoch):
            return []
        self.told = max(self.told, position)
        return self._apply()

    def on_fetch(self, peer: ReplicaId, fetch: Fetch) -> list[Action]:
        # A winner takes only synced octets, under the epoch that it has won (R5, R6).
        if fetch.epoch != self.copy.noted or self.copy.stored < self.copy.end:
            return [Send(peer, Refused(self.copy.promised))] if not self.accepts(fetch.epoch) else []
        return [Fill(peer, fetch.position, fetch.epoch)]

    def on_lost_octets(self, peer: ReplicaId, epoch: int) -> list[Action]:
        if peer != self.leader or epoch != self.copy.noted:
            return []
        return [Renew("the log has less than this disk had stored")]

    def on_lost(self, peer: ReplicaId) -> list[Action]:
        self.asks = tuple(ask for ask in self.asks if ask[0] != peer)
        if peer == self.leader:
            self.leader, self.lead, self.matched, self.told = None, None, False, 0
        return []

    def _follows(self, peer: ReplicaId, epoch: int) -> bool:
        return self.matched and peer == self.leader and epoch == self.copy.promised

    def _apply(self) -> list[Action]:
        """Apply the commits that are complete and stored here (R10)."""
        # Octets complete at the set may be missing here: a follower outside the set lags behind.
        position = min(self.told, self.copy.stored)
        if position <= self.copy.complete:
            return []
        self.copy.complete = position
        return [Apply(position)]
