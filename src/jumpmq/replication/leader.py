"""The leader role: completion of commits, and changes of the set that keep complete commits safe (R1 to R3, R10).

The goal is invariant I1: each replica that may take over, by etcd's current value, has stored all complete commits. The
leader does not know etcd's current value. It knows the newest received value, and its own later swaps, each of which
may have landed. It therefore waits for every replica in the set of any of these values.
"""

from collections.abc import Iterable

from jumpmq.replication.actions import Action, Apply, Read, Send, Serve, Ship, Swap
from jumpmq.replication.configuration import Configuration, ReplicaId, node_of
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Complete, Lead, Lost, Resign
from jumpmq.replication.lineage import grown_to


class Leader:
    """The leader of an epoch. The state is lost with the process.

    Attributes:
        copy: the leader's own copy.
        known: newest known configuration.
        epoch: epoch of this life.
        start: position of the epoch's first segment. Octets before it come from earlier leaders.
        stored: position stored by each replica, as reported in this epoch.
        following: connected replicas whose logs are prefixes of this one.
        joining: replicas awaited for each commit, before they are in the set.
        open: swaps of this life without an answer, each a next version of `known`; any one of them may land.
        serving: True from the time when the whole set had the log up to `start`, and the store was opened.
        handing: True once leadership was offered to another replica, which may deliver from then on.
    """

    def __init__(self, copy: Copy, known: Configuration, start: int) -> None:
        self.copy = copy
        self.known = known
        self.epoch = known.epoch
        self.start = start
        self.stored: dict[ReplicaId, int] = {}
        self.following: frozenset[ReplicaId] = frozenset()
        self.joining: frozenset[ReplicaId] = frozenset()
        self.open: tuple[Configuration, ...] = ()
        self.serving = False
        self.handing = False
        self._waits: tuple[object, frozenset[ReplicaId]] = None, frozenset()  # what they follow from, and :meth:`waits`

    # --- what is complete ---

    def waits(self) -> frozenset[ReplicaId]:
        """Replicas besides the leader that have to store a commit before it is complete (R1)."""
        state = self.known, self.joining, self.open
        if self._waits[0] != state:  # each commit asks several times, and these rarely change
            possible = frozenset().union(self.known.set, self.joining, *(value.set for value in self.open))
            self._waits = state, possible - {self.copy.me}
        return self._waits[1]

    def may_complete(self) -> bool:
        """True if commits can become complete: the set has `min` replicas."""
        return not self.known.short

    def advance(self) -> list[Action]:
        """Mark as complete everything stored by the leader and by all awaited replicas."""
        if not self.may_complete():
            return []
        actions: list[Action] = []
        # R1: a replica without a report in this epoch counts as 0, and holds back completion.
        position = min([self.copy.stored, *(self.stored.get(one, 0) for one in self.waits())])
        if position > self.copy.complete:
            self.copy.complete = position
            actions.append(Apply(position))
            actions += [Send(one, Complete(self.epoch, position)) for one in sorted(self.following)]
        # Commits of earlier leaders lie before `start`. The store opens only when the whole set has them (R5).
        if not self.serving and self.copy.complete >= self.start:
            self.serving = True
            actions.append(Serve(self.epoch))
        return actions

    # --- the own log ---

    def on_written(self, position: int) -> list[Action]:
        """Note that the store has written up to a position, possibly without a sync."""
        self.copy.lineage = grown_to(self.copy.lineage, position)
        return []

    def on_synced(self, position: int) -> list[Action]:
        """Note that the store has synced up to a position."""
        self.copy.stored = max(self.copy.stored, position)
        return self.advance()

    # --- followers ---

    def lead(self, peer: ReplicaId) -> list[Action]:
        """Ask a connected replica to follow. The replica truncates its log at the end of the leader's log. Commits that
        were shipped ahead of the leader's own write therefore no longer count as stored there (R7).
        """
        if self.stored.get(peer, 0) > self.copy.end:
            self.stored = {**self.stored, peer: self.copy.end}
        return [Send(peer, Lead(self.epoch, self.copy.kept, self.copy.lineage))]

    def on_matched(self, peer: ReplicaId, position: int) -> list[Action]:
        """Record the position up to which a follower's log is a synced prefix of the leader's log. The position may be
        lower than an earlier stored position of the follower.
        """
        if peer in self.known.electable and position < self.copy.complete:
            # The replica has stored this once. A replica without all complete commits must not be electable: its disk
            # has lost octets, and returns under a new identity.
            return [Send(peer, Lost(self.epoch, self.copy.complete)), *self.remove((), lost=(peer,))]
        # Not the maximum: the follower may have cut its log, and the cut octets no longer count as stored (R7).
        self.stored = {**self.stored, peer: position}
        self.following |= {peer}
        actions: list[Action] = [Ship(peer, position), Send(peer, Complete(self.epoch, self.copy.complete))]
        return actions + self.advance() + self.grow()

    def on_stored(self, peer: ReplicaId, position: int) -> list[Action]:
        """Note that a follower has synced up to a position."""
        if peer not in self.following:
            return []
        self.stored = {**self.stored, peer: max(position, self.stored[peer])}
        return self.advance() + self.grow()

    def on_lost(self, peer: ReplicaId) -> list[Action]:
        """Record the end of a connection. Commits stored by the follower still count, because they are synced."""
        self.following -= {peer}
        return []

    # --- the set ---

    def join(self, peer: ReplicaId) -> list[Action]:
        """Bring a follower into the set: wait for the follower first, and swap once it has all complete
        commits (R2).
        """
        if peer in self.known.set or peer not in self.following or node_of(peer) not in self.known.members:
            return []
        # R2: were the swap first, a replica without all complete commits could be electable for a moment.
        self.joining |= {peer}
        return self.grow()

    def grow(self) -> list[Action]:
        """Add joining replicas with all complete commits to the set, one swap at a time."""
        if not self.joining:
            return []
        # A log that ends before the epoch's start lacks commits that this leader inherited, complete or not.
        enough = max(self.copy.complete, self.start)
        ready = [one for one in self.joining if one in self.following and self.stored[one] >= enough]
        if not ready or self.open:
            return []
        return self._swap(self.known.having(ready))

    def remove(self, leaving: Iterable[ReplicaId], lost: Iterable[ReplicaId] = ()) -> list[Action]:
        """Remove replicas from the set: swap first, and stop waiting once a newer value is known (R2).

        Args:
            leaving: overdue replicas, all removed in one swap.
            lost: replicas whose disks have lost stored octets, or were replaced.
        """
        lost = {*lost}
        gone = {*leaving} | lost
        # A joiner in no open swap can be dropped at once: no value of etcd can have it.
        named = frozenset().union(*(value.set for value in self.open))
        self.joining -= gone - named
        return self.advance() + self._without(gone, lost, named)

    def _without(self, gone: set[ReplicaId], lost: set[ReplicaId], named: frozenset[ReplicaId]) -> list[Action]:
        """Swap the replicas out of every value that etcd may have."""
        if gone & {*self.known.set} or lost & {*self.known.eligible}:
            return self._swap(self.known.without(gone, lost))
        # The replica is only in open swaps: once the next version of the known value lands, none of these can (R3).
        if gone & named:
            return self._swap(self.known.renewed())
        return []

    def change(self, value: Configuration) -> list[Action]:
        """Swap in an operator's change: a value made by a method of `known`, with the next version."""
        # The operator's change derives from `known`. An open swap may land first, and would make that value outdated.
        if self.open or value.v != self.known.v + 1:
            return []
        return self._swap(value)

    def hand_over(self, target: ReplicaId) -> list[Action]:
        """Offer leadership to a follower in the set. From now on, no message is delivered.

        Does nothing unless all written commits are complete: the caller pauses clients before, and waits.
        """
        ready = self.serving and not self.open and target in self.following and target in self.known.set
        if not ready or self.copy.complete < self.copy.end:
            return []
        self.handing = True
        return self._swap(self.known.handed(target))

    def resign(self) -> list[Action]:
        """Allow any electable replica to claim leadership at once. No message is delivered any more, and the caller
        ends this process.
        """
        self.handing = True
        return [Send(one, Resign(self.epoch)) for one in sorted(self.following & self.electors())]

    def retry(self) -> list[Action]:
        """Send the newest open swap again, and read etcd's value, to find a landed swap."""
        if not self.open:
            return []
        # The read comes first: the answer to the first attempt may have been lost, and the swap have landed.
        return [Read(self.known.v, self.epoch), Swap(self.known, self.open[-1])]

    def on_value(self, value: Configuration) -> list[Action]:
        """Process a newer configuration of this epoch, from an answer, a read or the watch."""
        self.known = value
        # All open swaps were made from an older version, so none can land any more (R3).
        self.open, self.handing = (), False
        self.joining = frozenset(one for one in self.joining - {*value.set} if node_of(one) in value.members)
        return self.advance() + self.grow()

    def electors(self) -> frozenset[ReplicaId]:
        """Replicas besides the leader that may take over by any value that etcd may have (R8)."""
        possible = frozenset().union(self.known.electable, self.joining, *(value.electable for value in self.open))
        return possible - {self.copy.me}

    def _swap(self, value: Configuration) -> list[Action]:
        """Request a change of the configuration, unless the same request is open; :meth:`retry` repeats open
        requests.
        """
        if value in self.open:
            return []
        self.open = (*self.open, value)
        return [Swap(self.known, value)]
