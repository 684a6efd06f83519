"""From a claim to an epoch: the promise, the longest log, the first segment of the new epoch (R4 to R6).

A candidate has won: etcd's value names it as the leader of an epoch that it has not promised before. It writes the
promise, asks other replicas for longer logs, takes the longest log that extends its own, and begins a segment. By R1
its own log already has all complete commits. Further commits of a longer log are unconfirmed; they may be kept.
"""

from jumpmq.replication.actions import Action, Begin, Drop, Send, Sync
from jumpmq.replication.configuration import Configuration, ReplicaId
from jumpmq.replication.copies import Copy
from jumpmq.replication.follower import Follower
from jumpmq.replication.frames import Ask, Data, Fetch, Segment
from jumpmq.replication.lineage import Lineage, end_of, extends

NOTING, GATHERING, FETCHING, SYNCING, BEGINNING = "noting", "gathering", "fetching", "syncing", "beginning"


class Candidate:
    """The winner of an epoch, until its first segment is begun.

    Attributes:
        copy: the winner's copy.
        value: configuration with this replica as leader.
        asked: replicas that may have longer logs.
        answers: lineages of the replicas that promised the epoch.
        source: replica from which octets are fetched.
        phase: one of this module's constants.
    """

    def __init__(self, copy: Copy, value: Configuration, asked: frozenset[ReplicaId]) -> None:
        self.copy = copy
        self.value = value
        self.epoch = value.epoch
        self.asked = asked - {copy.me}
        self.answers: dict[ReplicaId, Lineage] = {}
        self.source: ReplicaId | None = None
        self.phase = NOTING

    @property
    def progress(self) -> tuple[int, str, int]:
        """A value that changes whenever the candidate makes progress."""
        return self.epoch, self.phase, self.copy.end

    def begin(self, follower: Follower) -> list[Action]:
        """Promise the own epoch; :meth:`proceed` asks the other replicas once the promise is noted."""
        return follower.promise(self.epoch)

    def proceed(self) -> list[Action]:
        """Ask the other replicas, if the promise is noted and the store of an earlier epoch is closed."""
        if self.phase != NOTING or self.copy.noted < self.epoch or self.copy.closing:
            return []
        # Not before the promise is synced (R6): after a loss of power this replica could answer a lower epoch.
        self.phase = GATHERING
        return [Send(one, Ask(self.epoch)) for one in sorted(self.asked)] or self.gathered()

    def ask(self, peer: ReplicaId) -> list[Action]:
        """Ask a newly connected replica for its lineage while answers are being gathered."""
        if self.phase != GATHERING or peer not in self.asked:
            return []
        return [Send(peer, Ask(self.epoch))]

    def on_answer(self, peer: ReplicaId, lineage: Lineage) -> list[Action]:
        if self.phase != GATHERING or peer not in self.asked:
            return []
        self.answers = {**self.answers, peer: lineage}
        return self.gathered() if self.answers.keys() >= self.asked else []

    def gathered(self) -> list[Action]:
        """Continue with the answers received so far, after the time for answers.

        While octets are being fetched, this means that the source has sent none in time. Its connection is dropped, and
        the longest of the other logs is fetched. The source is not asked again, because it could send octets twice.
        """
        # The octets that were fetched so far stay: they extend the log by whole commits.
        if self.phase == FETCHING and self.source is not None:
            return [Drop(self.source)]
        return self._fetch() if self.phase == GATHERING else []

    def _fetch(self) -> list[Action]:
        """Fetch the octets missing here from the replica with the longest log."""
        self.source = self.longest()
        if self.source is None:
            self.phase = SYNCING
            return self._sync()
        self.phase = FETCHING
        return [Send(self.source, Fetch(self.epoch, self.copy.end))]

    def longest(self) -> ReplicaId | None:
        """Return the replica with the longest log that extends the own log (R5); None if no log is longer."""
        longer = {
            peer: end_of(lineage)
            for peer, lineage in self.answers.items()
            # A longer log with another history has no complete commits beyond the own log (R1).
            if end_of(lineage) > self.copy.end and extends(lineage, self.copy.lineage)
        }
        return max(sorted(longer), key=longer.__getitem__, default=None)

    def on_segment(self, follower: Follower, peer: ReplicaId, frame: Segment) -> list[Action]:
        return follower.open(peer, frame.stretch) if self._fetches(peer, frame.epoch) else []

    def on_data(self, follower: Follower, peer: ReplicaId, frame: Data) -> list[Action]:
        return follower.append(peer, frame) if self._fetches(peer, frame.epoch) else []

    def on_fetched(self, peer: ReplicaId, epoch: int) -> list[Action]:
        if not self._fetches(peer, epoch):
            return []
        self.phase = SYNCING
        return self._sync()

    def on_lost(self, peer: ReplicaId) -> list[Action]:
        """Drop the answer of a lost replica; if it was the source, fetch the longest of the remaining logs."""
        self.answers = {one: lineage for one, lineage in self.answers.items() if one != peer}
        return self._fetch() if self.phase == FETCHING and peer == self.source else []

    def on_synced(self) -> list[Action]:
        return self._sync() if self.phase == SYNCING else []

    def _sync(self) -> list[Action]:
        # Fetched octets are synced before the new segment begins: the segment implies that everything before it is
        # stored.
        if self.copy.stored < self.copy.end:
            return [Sync()]
        self.phase = BEGINNING
        last = self.copy.lineage[-1].segment if self.copy.lineage else 0
        return [Begin(last + 1, self.epoch)]

    def _fetches(self, peer: ReplicaId, epoch: int) -> bool:
        return self.phase == FETCHING and peer == self.source and epoch == self.epoch
