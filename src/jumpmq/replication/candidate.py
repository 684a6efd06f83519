"""The way from a claim to an epoch: promise, the longest tail, a segment of the new epoch (R4 to R6).

A candidate has won: etcd's value names it as leader of an epoch that it has not promised before. It notes the promise,
asks who has more, takes the longest log that extends its own, and begins a segment. All that is complete is in its log
already, by R1; what it takes beyond that was not confirmed, and may survive.
"""

from jumpmq.replication.actions import Action, Begin, Drop, Send, Sync
from jumpmq.replication.configuration import Configuration, Replica
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
        asked: replicas that may have more.
        answers: lineages of those that promised the epoch.
        source: replica that octets are fetched from.
        phase: one of this module's constants.
    """

    def __init__(self, copy: Copy, value: Configuration, asked: frozenset[Replica]) -> None:
        self.copy = copy
        self.value = value
        self.epoch = value.epoch
        self.asked = asked - {copy.me}
        self.answers: dict[Replica, Lineage] = {}
        self.source: Replica | None = None
        self.phase = NOTING

    @property
    def progress(self) -> tuple[int, str, int]:
        """Changes when the candidate gets any further."""
        return self.epoch, self.phase, self.copy.end

    def begin(self, follower: Follower) -> list[Action]:
        """Promise the epoch to itself; asking begins when that is noted."""
        return follower.promise(self.epoch)

    def proceed(self) -> list[Action]:
        """The promise may be noted now, and the worker of an earlier epoch gone."""
        if self.phase != NOTING or self.copy.noted < self.epoch or self.copy.closing:
            return []
        # Not before the promise is synced (R6): after a loss of power this replica could answer a lower epoch.
        self.phase = GATHERING
        return [Send(one, Ask(self.epoch)) for one in sorted(self.asked)] or self.gathered()

    def ask(self, peer: Replica) -> list[Action]:
        """Ask a newly connected replica for its lineage while answers are being gathered."""
        if self.phase != GATHERING or peer not in self.asked:
            return []
        return [Send(peer, Ask(self.epoch))]

    def on_answer(self, peer: Replica, lineage: Lineage) -> list[Action]:
        if self.phase != GATHERING or peer not in self.asked:
            return []
        self.answers = {**self.answers, peer: lineage}
        return self.gathered() if self.answers.keys() >= self.asked else []

    def gathered(self) -> list[Action]:
        """Go on with the answers received so far: replicas without an answer had their time.

        While octets are fetched, the source had its time: none came. Its connection ends, and the longest log of the
        others is taken. To ask the source again would have it send octets twice.
        """
        if self.phase == FETCHING and self.source is not None:
            return [Drop(self.source)]
        return self._fetch() if self.phase == GATHERING else []

    def _fetch(self) -> list[Action]:
        """Ask the replica with the longest log for what this log lacks."""
        self.source = self.longest()
        if self.source is None:
            self.phase = SYNCING
            return self._sync()
        self.phase = FETCHING
        return [Send(self.source, Fetch(self.epoch, self.copy.end))]

    def longest(self) -> Replica | None:
        """Return the replica with the longest log extending the own log (R5); None where no log is longer."""
        longer = {
            peer: end_of(lineage)
            for peer, lineage in self.answers.items()
            if end_of(lineage) > self.copy.end and extends(lineage, self.copy.lineage)
        }
        return max(sorted(longer), key=longer.__getitem__, default=None)

    def on_segment(self, follower: Follower, peer: Replica, frame: Segment) -> list[Action]:
        return follower.open(peer, frame.stretch) if self._fetches(peer, frame.epoch) else []

    def on_data(self, follower: Follower, peer: Replica, frame: Data) -> list[Action]:
        return follower.append(peer, frame) if self._fetches(peer, frame.epoch) else []

    def on_fetched(self, peer: Replica, epoch: int) -> list[Action]:
        if not self._fetches(peer, epoch):
            return []
        self.phase = SYNCING
        return self._sync()

    def on_lost(self, peer: Replica) -> list[Action]:
        """Drop the answer of a lost replica; if it was the source, fetch the longest of the remaining logs."""
        self.answers = {one: lineage for one, lineage in self.answers.items() if one != peer}
        return self._fetch() if self.phase == FETCHING and peer == self.source else []

    def on_synced(self) -> list[Action]:
        return self._sync() if self.phase == SYNCING else []

    def _sync(self) -> list[Action]:
        # What was fetched is synced first: the new segment says that all before it is there.
        if self.copy.stored < self.copy.end:
            return [Sync()]
        self.phase = BEGINNING
        last = self.copy.lineage[-1].segment if self.copy.lineage else 0
        return [Begin(last + 1, self.epoch)]

    def _fetches(self, peer: Replica, epoch: int) -> bool:
        return self.phase == FETCHING and peer == self.source and epoch == self.epoch
