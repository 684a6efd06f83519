"""The leader role: completion of commits, and changes of the set that keep complete commits safe (R1 to R3, R10).

The invariant behind all of it: every replica that may take over, in the value that etcd has now, has stored all that is
complete (I1). The leader does not know the value that etcd has now, only the newest that it was told, and the swaps of
its own that may have landed since. So it waits for all replicas that are in the set of any of these.
"""

from collections.abc import Iterable

from jumpmq.replication.actions import Action, Read, Reveal, Send, Serve, Ship, Swap
from jumpmq.replication.configuration import Configuration, Replica, node_of
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Complete, Lead, Lost, Resign
from jumpmq.replication.lineage import grown_to, position_at


class Leader:
    """An epoch of a leading process.

    Attributes:
        copy: the leader's own copy.
        known: newest configuration that is known.
        epoch: of this life.
        start: position of the epoch's first segment. What is before it comes from earlier leaders.
        stored: position that each replica has stored, as it answered in this epoch.
        following: replicas with a connection whose logs are prefixes of this one.
        joining: replicas that are waited for before they are in the set.
        open: swaps of this life without an answer, each a next version of `known`; any one of them may land.
        settled: whether swaps of a predecessor in the same epoch can no longer land (R3).
        serving: whether all of the set had the log up to `start`, and the store was opened.
        handing: whether leadership was offered to another, who may deliver from then on.
    """

    def __init__(self, copy: Copy, known: Configuration, start: int, *, settled: bool = True) -> None:
        self.copy = copy
        self.known = known
        self.epoch = known.epoch
        self.start = start
        self.stored: dict[Replica, int] = {}
        self.following: frozenset[Replica] = frozenset()
        self.joining: frozenset[Replica] = frozenset()
        self.open: tuple[Configuration, ...] = ()
        self.settled = settled
        self.serving = False
        self.handing = False
        self._waits: tuple[object, frozenset[Replica]] = None, frozenset()  # what they follow from, and :meth:`waits`

    def begin(self) -> list[Action]:
        """The first act in an epoch.

        A life that goes on in its predecessor's epoch settles the predecessor's swaps by one of its own, and takes
        nothing for complete before.
        """
        return self.advance() if self.settled else self._swap(self.known.renewed())

    # --- what is complete ---

    def waits(self) -> frozenset[Replica]:
        """Replicas besides the leader, required to store a commit before completion (R1)."""
        state = self.known, self.joining, self.open
        if self._waits[0] != state:  # each commit asks several times, and these rarely change
            possible = frozenset().union(self.known.set, self.joining, *(value.set for value in self.open))
            self._waits = state, possible - {self.copy.me}
        return self._waits[1]

    def may_complete(self) -> bool:
        """True if commits can become complete: the set is known and has `min` replicas."""
        return self.settled and not self.known.short

    def advance(self) -> list[Action]:
        """Mark as complete everything stored by the leader and by all replicas it waits for."""
        if not self.may_complete():
            return []
        actions: list[Action] = []
        position = min([self.copy.stored, *(self.stored.get(one, 0) for one in self.waits())])
        if position > self.copy.complete:
            self.copy.complete = position
            actions.append(Reveal(position))
            actions += [Send(one, Complete(self.epoch, position)) for one in sorted(self.following)]
        if not self.serving and self.copy.complete >= self.start:
            self.serving = True
            actions.append(Serve(self.epoch))
        return actions

    # --- the own log ---

    def on_written(self, position: int) -> list[Action]:
        """The worker wrote up to a position, and may not have synced it."""
        self.copy.lineage = grown_to(self.copy.lineage, position)
        return []

    def on_synced(self, position: int) -> list[Action]:
        """The worker synced up to a position."""
        self.copy.stored = max(self.copy.stored, position)
        return self.advance()

    # --- followers ---

    def lead(self, peer: Replica) -> list[Action]:
        """Ask a connected replica to follow. The replica cuts its log at the end of this one: commits shipped ahead of
        the leader's own write no longer count as stored there (R7).
        """
        if self.stored.get(peer, 0) > self.copy.end:
            self.stored = {**self.stored, peer: self.copy.end}
        return [Send(peer, Lead(self.epoch, self.copy.kept, self.copy.lineage))]

    def on_matched(self, peer: Replica, position: int) -> list[Action]:
        """Process the position up to which a follower's log is a synced prefix of the leader's log, possibly lower than
        previously stored.
        """
        if peer in self.known.electable and position < self.copy.complete:
            # It stored this once. With less than is complete it must not be electable: whatever its disk lost, it
            # comes back under another identity.
            return [Send(peer, Lost(self.epoch, self.copy.complete)), *self.remove((), lost=(peer,))]
        self.stored = {**self.stored, peer: position}
        self.following |= {peer}
        actions: list[Action] = [Ship(peer, position), Send(peer, Complete(self.epoch, self.copy.complete))]
        return actions + self.advance() + self.grow()

    def on_stored(self, peer: Replica, position: int) -> list[Action]:
        """A follower synced up to a position."""
        if peer not in self.following:
            return []
        self.stored = {**self.stored, peer: max(position, self.stored[peer])}
        return self.advance() + self.grow()

    def on_lost(self, peer: Replica) -> list[Action]:
        """Process the end of a connection. Commits stored by the follower still count, since they were synced."""
        self.following -= {peer}
        return []

    # --- the set ---

    def join(self, peer: Replica) -> list[Action]:
        """Bring a follower into the set: wait for the follower first, and swap once it has all complete
        commits (R2).
        """
        if peer in self.known.set or peer not in self.following or node_of(peer) not in self.known.members:
            return []
        self.joining |= {peer}
        return self.grow()

    def grow(self) -> list[Action]:
        """Add joining replicas with all complete commits to the set, one swap at a time."""
        if not self.joining:
            return []
        enough = max(self.copy.complete, self.start)
        ready = [one for one in self.joining if one in self.following and self.stored[one] >= enough]
        if not ready or self.open or not self.settled:
            return []
        return self._swap(self.known.having(ready))

    def remove(self, leaving: Iterable[Replica], lost: Iterable[Replica] = ()) -> list[Action]:
        """Take replicas out of the set: swap first, and stop waiting when a newer value is known (R2).

        Args:
            leaving: replicas that are overdue, all in one swap.
            lost: replicas whose disks lost what they had stored, or that were replaced by another disk.
        """
        lost = {*lost}
        gone = {*leaving} | lost
        # A joiner that no open swap names can be dropped at once: no value with it can be in etcd.
        named = frozenset().union(*(value.set for value in self.open))
        self.joining -= gone - named
        return self.advance() + self._without(gone, lost, named)

    def _without(self, gone: set[Replica], lost: set[Replica], named: frozenset[Replica]) -> list[Action]:
        """The swap that takes replicas out of every value that etcd may have."""
        if gone & {*self.known.set} or lost & {*self.known.eligible}:
            return self._swap(self.known.without(gone, lost))
        if gone & named:
            return self._swap(self.known.renewed())
        return []

    def change(self, value: Configuration) -> list[Action]:
        """Swap in what an operator asked for: a value that a method of `known` made, with the next version."""
        if self.open or not self.settled or value.v != self.known.v + 1:
            return []
        return self._swap(value)

    def hand_over(self, target: Replica) -> list[Action]:
        """Offer leadership to a follower in the set. Nothing is delivered from here on.

        Does nothing unless all that was written is complete, which the caller waits for with paused clients.
        """
        ready = self.serving and not self.open and target in self.following and target in self.known.set
        if not ready or self.copy.complete < self.copy.end:
            return []
        self.handing = True
        return self._swap(self.known.handed(target))

    def resign(self) -> list[Action]:
        """Allow any electable replica to claim leadership at once. The caller ends this process: nothing is delivered
        from here on.
        """
        self.handing = True
        return [Send(one, Resign(self.epoch)) for one in sorted(self.following & self.electors())]

    def retry(self) -> list[Action]:
        """Send the newest open swap again, and read whether one has landed."""
        if not self.open:
            return []
        return [Read(self.known.v, self.epoch), Swap(self.known, self.open[-1])]

    def on_value(self, value: Configuration) -> list[Action]:
        """A newer configuration of this epoch is known, by an answer, a read or the watch."""
        self.known = value
        # All open swaps were made from an older version, so none can land any more (R3).
        self.open, self.settled, self.handing = (), True, False
        self.joining = frozenset(one for one in self.joining - {*value.set} if node_of(one) in value.members)
        return self.advance() + self.grow()

    def electors(self) -> frozenset[Replica]:
        """Replicas besides the leader, allowed to take over under any value possibly in etcd (R8)."""
        possible = frozenset().union(self.known.electable, self.joining, *(value.electable for value in self.open))
        return possible - {self.copy.me}

    def _swap(self, value: Configuration) -> list[Action]:
        """Ask for a change of the configuration, unless already asked for: :meth:`retry` repeats it."""
        if value in self.open:
            return []
        self.open = (*self.open, value)
        return [Swap(self.known, value)]


def start_of(copy: Copy, epoch: int) -> int:
    """Return the start position of an epoch's first segment, in a log with a segment of the epoch."""
    return position_at(next(one.segment for one in copy.lineage if one.epoch == epoch), 0)
