"""Mutants: the protocol with one rule broken. Walks must find every mutant.

A mutant replaces a method of a real class by a version that a hurried reader of the rule might write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from tests.replication import stories, walks, world

from jumpmq.replication import actions as a
from jumpmq.replication import follower, lineage
from jumpmq.replication.candidate import Candidate
from jumpmq.replication.configuration import Configuration
from jumpmq.replication.copies import Copy
from jumpmq.replication.follower import Follower
from jumpmq.replication.frames import Beaten, Lead, Matched
from jumpmq.replication.joining import Install, Joining
from jumpmq.replication.leader import Leader
from jumpmq.replication.pace import MICROSECONDS, Pace
from jumpmq.replication.replica import Replica


class Mutant(NamedTuple):
    """A broken rule.

    Attributes:
        rule: its number.
        name: the deviation from the rule.
        changes: class or module, name of an attribute, and replacement.
        timed: True if walks with clocks find the mutant.
        temper: temper of walks that find the mutant soon.
        story: the story that finds the mutant, if no walk finds it soon.
    """

    rule: str
    name: str
    changes: Sequence[tuple[Any, str, Any]]
    timed: bool = False
    temper: walks.Temper | None = None
    story: Callable[[int], None] | None = None


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run with the mutant's rule broken."""
    former = [(owner, name, owner.__dict__[name]) for owner, name, _ in mutant.changes]
    try:
        for owner, name, new in mutant.changes:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in former:
            setattr(owner, name, old)


def _known_set(self: Leader) -> frozenset[str]:
    return frozenset(self.known.set) - {self.copy.me}


def _written_counts(self: Leader, advance: Callable[[Leader], list[a.Action]] = Leader.advance) -> list[a.Action]:
    stored, self.copy.stored = self.copy.stored, self.copy.end
    try:
        return advance(self)
    finally:
        self.copy.stored = stored


def _only_asks(self: Leader, peer: str) -> list[a.Action]:
    return [a.Send(peer, Lead(self.epoch, self.copy.kept, self.copy.lineage))]


def _stop_waiting_first(self: Leader, leaving: Sequence[str], lost: Sequence[str] = ()) -> list[a.Action]:
    new = self.known.without([one for one in leaving if one in self.known.set], lost)
    swap = a.Swap(self.known, new)
    self.known, self.joining = new, self.joining - {*leaving}
    return [swap, *self.advance()]


def _swap_before_stored(self: Leader) -> list[a.Action]:
    ready = [one for one in self.joining if one in self.following]
    return self._swap(self.known.having(ready)) if ready and not self.open else []


def _always_eligible(self: Configuration, **changes: Any) -> Configuration:
    return replace(self, v=self.v + 1, **changes)


def _forget_open(self: Leader) -> list[a.Action]:
    self.open, self.joining = (), frozenset()
    return [a.Read(self.known.v, self.epoch)]


def _drop_joiner(self: Leader, leaving: Sequence[str], lost: Sequence[str] = ()) -> list[a.Action]:
    gone = {*leaving, *lost}
    self.joining -= gone
    self.open = tuple(value for value in self.open if not gone & ({*value.set} - {*self.known.set}))
    if gone & {*self.known.electable}:
        return self._swap(self.known.without(gone & {*self.known.set}, lost))
    return []


def _anyone_claims(self: Configuration, me: str) -> Configuration:
    stay = tuple(one for one in self.set if one != self.leader and one != me)
    return self._settled(epoch=self.epoch + 1, leader=me, set=(me, *stay), eligible=())


def _same_epoch_again(self: Replica, take_over: Callable[[Replica], list[a.Action]] = Replica.take_over) -> Any:
    known, copy = self.known, self.copy
    again = known is not None and (known.leader, known.epoch) == (copy.me, copy.promised)
    if again and self.leader is None and self.candidate is None and not copy.closing:
        assert known is not None
        self.candidate = Candidate(copy, known, frozenset(known.electable))
        return self.candidate.proceed()
    return take_over(self)


def _any_longer(self: Candidate) -> str | None:
    longer = {peer: lineage.end_of(one) for peer, one in self.answers.items() if lineage.end_of(one) > self.copy.end}
    return max(sorted(longer), key=longer.__getitem__, default=None)


def _serves_at_once(self: Leader, advance: Callable[[Leader], list[a.Action]] = Leader.advance) -> list[a.Action]:
    served, self.serving = self.serving, True
    return [*advance(self), *([] if served else [a.Serve(self.epoch)])]


def _answers_before_noted(
    self: Follower, proceed: Callable[[Follower], list[a.Action]] = Follower.proceed
) -> list[a.Action]:
    noted, self.copy.noted = self.copy.noted, self.copy.promised
    try:
        return proceed(self)
    finally:
        self.copy.noted = noted


def _accepts_lower(self: Follower, peer: str, lead: Any) -> list[a.Action]:
    actions = self.promise(lead.epoch)
    self.leader, self.lead, self.matched, self.told = peer, lead, False, 0
    return actions + self.proceed()


def _by_position(mine: Any, theirs: Any) -> int:
    return min(lineage.end_of(mine), lineage.end_of(theirs))


def _no_cut(self: Follower) -> list[a.Action]:
    assert self.lead is not None and self.leader is not None
    self.matched, epoch = True, self.lead.epoch
    self.lead = None
    return [a.Send(self.leader, Matched(epoch, self.copy.stored))]


def _end_does_not_sink(self: Follower, position: int) -> list[a.Action]:
    self.copy.lineage = lineage.cut_to(self.copy.lineage, position)
    self.cutting = None
    return self.proceed()


def _lease_from_receipt(self: Pace, peer: str, beaten: Beaten, now: float) -> None:
    _on_beaten(self, peer, Beaten(beaten.epoch, round(now * MICROSECONDS)), now)


_on_beaten = Pace.on_beaten
_on_beat = Pace.on_beat


def _set_keeps_lease(self: Leader) -> frozenset[str]:
    return frozenset(self.known.set) - {self.copy.me}


def _delivers_at_once(self: Pace, before: Any, value: Any, now: float) -> None:
    self.heard = now


def _goes_on(self: world.World, node: Any) -> list[a.Action]:
    return [a.Sync()]


def _applies_stored(self: Follower) -> list[a.Action]:
    if self.copy.stored <= self.copy.complete:
        return []
    self.copy.complete = self.copy.stored
    return [a.Apply(self.copy.stored)]


def _deletes_what_is_absent(self: Follower, peer: str, lead: Any, on_lead: Any = Follower.on_lead) -> list[a.Action]:
    self.copy.__dict__["absent"] = lineage.segment_at(lead.kept) + 1
    actions: list[a.Action] = on_lead(self, peer, lead)
    return actions


def _removable_where_absent(self: Copy) -> int:
    absent: int = self.__dict__.get("absent", 0)
    return max(lineage.segment_at(self.complete), absent)


def _first_file_is_enough(self: Joining) -> Any:
    file = _next_file(self)
    assert self.manifest is not None
    if file is None or file != self.manifest.files[0]:
        return [Install(self.manifest.kept, self.manifest.lineage)]
    return _next(self)


_next, _next_file = Joining._next, Joining._current


def _crc_is_not_looked_at(octets: bytes, begin: int = 0) -> int:
    return 0


def _shorter(self: Candidate) -> None:
    return None


LATE = {"failures": ["lose_answer", "cut"], "late": 0.97, "rash": 0.3, "rate": 0.03}
DAMAGED = {"failures": ["flips", "kill", "block", "mend_network"], "rate": 0.05, "rash": 0.1, "late": 0}
SLEEPY = {"failures": ["suspend", "suspend", "shut_etcd", "mend_etcd"], "rate": 0.01, "late": 0, "nodes": 3}

MUTANTS = [
    Mutant("R1", "complete below min", [(Leader, "may_complete", lambda self: True)]),
    Mutant("R1", "complete before the leader has synced", [(Leader, "advance", _written_counts)]),
    Mutant("R1", "waits for the known set only", [(Leader, "waits", _known_set)]),
    Mutant("R2", "stops waiting before the swap", [(Leader, "remove", _stop_waiting_first)]),
    Mutant("R2", "swaps a joiner in before it has all", [(Leader, "grow", _swap_before_stored)]),
    Mutant("R2", "all that leave stay eligible", [(Configuration, "_settled", _always_eligible)]),
    Mutant("R3", "a swap without an answer is forgotten", [(Leader, "retry", _forget_open)], temper=LATE),
    Mutant(
        "R3",
        "a joiner is dropped at a lost answer",
        [(Leader, "remove", _drop_joiner)],
        story=stories.a_joiner_is_dropped_while_its_swap_may_land,
    ),
    Mutant(
        "R4",
        "any replica takes over",
        [(Configuration, "claimed", _anyone_claims), (Replica, "electable", property(lambda self: True))],
        story=stories.the_last_of_the_set_is_away,
    ),
    Mutant("R4", "a restarted leader keeps its epoch", [(Replica, "take_over", _same_epoch_again)]),
    Mutant(
        "R5",
        "the longest log, whether it extends the own one or not",
        [(Candidate, "longest", _any_longer)],
        story=stories.a_tail_of_another_epoch,
    ),
    Mutant("R5", "longer logs are left behind", [(Candidate, "longest", _shorter)]),
    Mutant("R5", "serves before the set has the log", [(Leader, "advance", _serves_at_once)]),
    Mutant("R6", "answers before the promise is synced", [(Follower, "proceed", _answers_before_noted)]),
    Mutant(
        "R6",
        "lower epochs are accepted",
        [(Follower, "on_lead", _accepts_lower)],
        story=stories.a_promise_outlives_the_candidate,
    ),
    Mutant(
        "R7",
        "truncates by position",
        [(follower, "common_end", _by_position)],
        story=stories.a_deposed_leader_connects_again,
    ),
    Mutant(
        "R7",
        "counts what a follower is asked to cut",
        [(Leader, "lead", _only_asks)],
        temper={"failures": ["cut"], "rate": 0.03},
    ),
    Mutant("R7", "does not truncate", [(Follower, "_match", _no_cut)], story=stories.a_deposed_leader_connects_again),
    Mutant(
        "R7",
        "the reported end does not sink",
        [(Follower, "on_cut", _end_does_not_sink)],
        story=stories.a_deposed_leader_connects_again,
    ),
    Mutant(
        "R7",
        "truncates below the mark",
        [(Follower, "may_cut", lambda self, position: True)],
        story=stories.a_leader_that_lost_octets,
    ),
    Mutant(
        "R7",
        "a disk that lost octets keeps its identity",
        [(Copy, "lost", property(lambda self: False))],
        temper=DAMAGED,
    ),
    Mutant(
        "R8",
        "a lease counts from the answer",
        [(Pace, "on_beaten", _lease_from_receipt)],
        story=stories.answers_that_come_late,
    ),
    Mutant(
        "R8",
        "a lease is longer than the followers' patience",
        [(walks, "TIMES", replace(walks.TIMES, lease=3 * walks.TIMES.failover))],
        story=stories.one_follower_sees_the_old_leader,
    ),
    Mutant(
        "R8",
        "the known set keeps the lease",
        [(Leader, "electors", _set_keeps_lease)],
        story=stories.all_but_the_leader_are_eligible,
    ),
    Mutant(
        "R8", "a new leader delivers at once", [(Pace, "on_value", _delivers_at_once)], story=stories.a_claim_lands_late
    ),
    Mutant(
        "R8",
        "the clock stands still while suspended",
        [(walks.Clock, "now", walks.MONOTONIC)],
        timed=True,
        temper=SLEEPY,
    ),
    Mutant("R9", "goes on after a sync that failed", [(world.World, "sync_failed", _goes_on)]),
    Mutant("R9", "a sync that hangs is waited for", [(walks, "TIMES", walks.TIMES_WITHOUT_END)], timed=True),
    Mutant("R10", "applies what is stored", [(Follower, "_apply", _applies_stored)]),
    Mutant(
        "R10",
        "removes what is not complete",
        [(Copy, "removable", property(lambda self: lineage.segment_at(self.end)))],
    ),
    Mutant(
        "R11",
        "deletes what the leader does not list",
        [(Follower, "on_lead", _deletes_what_is_absent), (Copy, "removable", property(_removable_where_absent))],
    ),
    Mutant(
        "R11",
        "a copy takes over when its first file is whole",
        [(Joining, "_next", _first_file_is_enough)],
        story=stories.a_member_was_away_for_long,
    ),
]
"""Mutants of all rules, at least one per rule."""
