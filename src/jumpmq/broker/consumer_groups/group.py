"""A consumer group: who has which unit, and how a unit passes from one member to the next. No sockets, no clock.

A *unit* is what one member at a time is fed from. Each is in one of these states:

==========  ==========  ===========================================================================
owner       holder      what is so
==========  ==========  ===========================================================================
none        none        it waits to be given to a member
a member    none        its member is away, and has a grace
a member    its session the member is fed
any         another     it *drains*: the holder is fed no more, and still has messages of it
==========  ==========  ===========================================================================

A member (its name) outlives its session (a ``basic.consume`` in force) by its grace. A unit drains until the holder has
none of its messages any more, whatever became of them; then its owner's session is fed. So a handover waits for no
answer, and no two sessions have messages of a unit at once. Only :meth:`ConsumerGroup.evict` ends a drain otherwise.

What a member leaves is given to others at once; what members have moves to even out the shares when none has come or
gone for a while. The first division waits a moment for members that start together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from jumpmq.broker.consumer_groups.assignment import assign, assign_unowned

GATHERING = 0.5
"""Seconds without another join, after which the first members are given units."""

LONGEST_GATHERING = 3.0
"""Seconds after the first join, at which they are at the latest."""

REBALANCE_DELAY = 1.0
"""Seconds without a join or leave, after which what members have may move, unless a member says otherwise."""

LONGEST_DELAYS = 10
"""Delays after which it moves in any case, however often members come and go."""

MAX_AWAY = 1000
"""Members that keep their share while they are away; others leave for good. All are gone through where members come and
go, and a name costs a client nothing."""

NEVER = float("inf")


class Unit(NamedTuple):
    """What one member at a time is fed from: a queue, or a slot of one.

    Attributes:
        queue: its name.
        queue_id: its number, never given twice.
        slot: the slot; None where the queue has none.
    """

    queue: str
    queue_id: int
    slot: int | None = None


class Session(Protocol):
    """A member's consumer.

    Attributes:
        handover_timeout: seconds that a unit of its may drain before it is evicted; None where only the delivery
            timeout ends it.
    """

    handover_timeout: float | None

    def start(self, unit: Unit) -> None:
        """Be fed from a unit. It may be asked again, where it has raised."""

    def stop(self, unit: Unit) -> None:
        """Be fed from it no more. It may be asked again, where it has raised."""

    def held(self, unit: Unit) -> int:
        """How many of its messages the session has not settled; none that are on their way back count as settled."""

    def evict(self) -> None:
        """Have no messages any more: they are back in their places."""


@dataclass(eq=False, slots=True)
class Member:
    """A member of a group.

    Attributes:
        name: as given, or one of its own.
        weight: its share in relation to the others'.
        grace: seconds for which it stays a member without a session.
        session: None while it is away.
        joined_at: when it joined first.
        away_until: when its grace ends, while it is away.
    """

    name: str
    weight: int
    grace: float
    session: Session | None
    joined_at: float
    away_until: float = NEVER


@dataclass(eq=False, slots=True)
class Place:
    """Where a unit is.

    Attributes:
        owner: whose it is, or will be.
        owned_since: since when.
        holder: the session that is fed, or that still has messages of it.
        started: whether the holder is fed, as far as is known: it was told to, and has not raised.
        draining_since: since when the holder is fed no more; None while it is.
    """

    owner: Member | None = None
    owned_since: float = 0.0
    holder: Session | None = None
    started: bool = False
    draining_since: float | None = None


@dataclass(slots=True)
class Counts:
    """What a group has counted.

    Attributes:
        joins, leaves: members that came and went; a member with a grace that comes back is not counted.
        moves: units that were taken from a member for another.
        handovers: drains that ended.
        forced_handovers: sessions that were evicted.
        late_acknowledgements: deliveries that were settled by a session after it was evicted, without effect.
    """

    joins: int = 0
    leaves: int = 0
    moves: int = 0
    handovers: int = 0
    forced_handovers: int = 0
    late_acknowledgements: int = 0


@dataclass(slots=True)
class _Timing:
    """When units may be given and moved.

    Attributes:
        begun: whether the first division was made.
        unowned: whether a unit may have no owner.
        first_join, last_join: times of joins, before that.
        unsettled_since: since when a join, a leave or another unit waits for its rebalancing; None where none does.
        quiet_since: the last of these.
    """

    begun: bool = False
    unowned: bool = False
    first_join: float = 0.0
    last_join: float = 0.0
    unsettled_since: float | None = None
    quiet_since: float = 0.0


@dataclass(eq=False)
class ConsumerGroup:
    """The members of a group and its units. Times are seconds of any clock that does not go back.

    Attributes:
        name: the group's.
        rebalance_delay: seconds; that of the member that last gave one.
        members: by name, in the order in which they joined.
        places: where each unit is, in order.
        counts: what happened so far.
        first_unit: how many units the homes before this one have; None where those of all homes are here.
    """

    name: str
    rebalance_delay: float = REBALANCE_DELAY
    first_unit: int | None = None
    members: dict[str, Member] = field(default_factory=dict)
    places: dict[Unit, Place] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    _draining: dict[Unit, Place] = field(default_factory=dict)
    _timing: _Timing = field(default_factory=_Timing)
    _unfollowed: bool = False  # whether sessions may not be fed as their members' units say

    @property
    def ended(self) -> bool:
        """Whether there are no members, and no session has messages of a unit any more."""
        return not self.members and not self._draining

    def member_of(self, session: Session) -> Member | None:
        """Whose session it is; None if it has left, or was replaced."""
        return next((member for member in self.members.values() if member.session is session), None)

    @property
    def state(self) -> str:
        """``gathering`` before the first division, ``draining`` or ``rebalancing`` while units are on their way to
        others, or will be soon, else ``stable``."""
        if not self._timing.begun:
            return "gathering"
        if self._draining:
            return "draining"
        return "stable" if self._timing.unsettled_since is None else "rebalancing"

    # --- what happens ---

    def join(self, session: Session, name: str, weight: int, grace: float, now: float) -> Session | None:
        """A session has come, as a member of this name. Returns the member's session until now, if it had one: that is
        fed no more, and what it has drains."""
        member = self.members.get(name)
        if member is None:
            self.members[name] = Member(name, weight, grace, session, now)
            self.counts.joins += 1
            if not self._timing.begun:
                self._timing.first_join = now if len(self.members) == 1 else self._timing.first_join
                self._timing.last_join = now
            self._unsettle(now)
            return None
        replaced = member.session
        if member.weight != weight:
            self._unsettle(now)
        member.session, member.weight, member.grace, member.away_until = session, weight, grace, NEVER
        self._follow(now)
        return replaced

    def leave(self, session: Session, now: float, *, for_good: bool = False) -> None:
        """A session is over; what it has drains.

        Args:
            for_good: its member goes too, whatever grace it has.
        """
        member = self.member_of(session)
        if member is not None:
            member.session = None
            away = sum(one.session is None for one in self.members.values())
            if for_good or not member.grace or away > MAX_AWAY:
                self._remove(member, now)
            else:
                member.away_until = now + member.grace
        self._follow(now)

    def set_units(self, units: Iterable[Unit], now: float, first: int | None = None) -> None:
        """These are the units from now on. A unit that is gone, is gone also where a member has messages of it.

        Args:
            first: see :attr:`first_unit`.
        """
        if first != self.first_unit:
            self.first_unit = first
            self._unsettle(now)
        places = {unit: self.places.get(unit) or Place() for unit in units}
        if places.keys() == self.places.keys():
            return
        for unit, place in self.places.items():
            if unit not in places:
                self._draining.pop(unit, None)
                if place.holder is not None and place.draining_since is None:
                    place.holder.stop(unit)
        self.places = places
        self._unsettle(now)

    def step(self, now: float) -> float:
        """Do what is due. If a session raises, what concerns others is done all the same, and the next step tries it
        again.

        Returns:
            When there is something to do next, if nothing else happens before; units that drain ask for it by nothing.
        """
        if self._unfollowed:
            self._follow(now)
        for member in [one for one in self.members.values() if one.away_until <= now]:
            self._remove(member, now)
        self._end_drains(now)
        self._evict_overdue(now)
        if not self.members:
            self._timing = _Timing()
        elif not self._timing.begun:
            if now < self._gathered_at:
                return min(self._gathered_at, self._next(now))
            self._timing.begun = True
            self._give(assign, now)
            self._timing.unsettled_since = None
        else:
            if self._timing.unowned:
                self._timing.unowned = False
                self._give(assign_unowned, now)
            if now >= self._moves_at:
                self._give(assign, now)
                self._timing.unsettled_since = None
        self._end_drains(now)  # of those who had no messages of what was taken from them
        return self._next(now)

    # --- how ---

    @property
    def _gathered_at(self) -> float:
        timing = self._timing
        return min(timing.last_join + GATHERING, timing.first_join + LONGEST_GATHERING)

    @property
    def _moves_at(self) -> float:
        since = self._timing.unsettled_since
        if since is None or not self._timing.begun:
            return NEVER
        return min(self._timing.quiet_since + self.rebalance_delay, since + LONGEST_DELAYS * self.rebalance_delay)

    def _next(self, now: float) -> float:
        away = min((member.away_until for member in self.members.values()), default=NEVER)
        return min(away, self._moves_at, min(map(_overdue_at, self._draining.values()), default=NEVER))

    def _unsettle(self, now: float) -> None:
        timing = self._timing
        timing.quiet_since, timing.unowned = now, True
        if timing.unsettled_since is None:
            timing.unsettled_since = now

    def _remove(self, member: Member, now: float) -> None:
        del self.members[member.name]
        self.counts.leaves += 1
        for place in self.places.values():
            if place.owner is member:
                place.owner = None
        self._unsettle(now)
        self._follow(now)

    def _give(self, divide: Callable[..., dict[Unit, str]], now: float) -> None:
        weights = {member.name: member.weight for member in self.members.values()}
        owners = {unit: place.owner.name for unit, place in self.places.items() if place.owner is not None}
        holders = {}
        for unit, place in self._draining.items():
            member = self.member_of(place.holder) if place.holder is not None else None
            if member is not None:
                holders[unit] = member.name
        if self.first_unit is not None:  # all homes go by one order
            weights = dict(sorted(weights.items()))
        for unit, name in divide(weights, list(self.places), owners, holders, self.first_unit).items():
            place, member = self.places[unit], self.members[name]
            if place.owner is not member:
                self.counts.moves += place.owner is not None
                place.owner, place.owned_since = member, now
        self._follow(now)

    def _follow(self, now: float) -> None:
        """Stop who is not the owner's session, and start the owner where no other holds messages of the unit."""
        self._unfollowed = True
        failure: Exception | None = None
        for unit, place in self.places.items():
            try:
                self._follow_unit(unit, place, now)
            except Exception as error:  # it holds up no other unit
                failure = failure or error
        if failure is not None:
            raise failure
        self._unfollowed = False

    def _follow_unit(self, unit: Unit, place: Place, now: float) -> None:
        """As :meth:`_follow`, of one unit. A session that raises is asked the same again."""
        wanted = place.owner.session if place.owner is not None else None
        if wanted is not None and place.holder in (None, wanted):
            if place.draining_since is not None:
                self._end_drain(unit, place)
            if place.holder is None or not place.started:
                place.holder, place.started = wanted, False
                wanted.start(unit)
                place.started = True
        elif place.holder is None:
            return
        elif place.draining_since is None:
            place.holder.stop(unit)
            place.started, place.draining_since = False, now
            self._draining[unit] = place

    def _end_drains(self, now: float) -> None:
        done = [unit for unit, place in self._draining.items() if place.holder is None or not place.holder.held(unit)]
        for unit in done:
            place = self._draining[unit]
            self._end_drain(unit, place)
            place.holder = None
            self.counts.handovers += 1
        if done:
            self._follow(now)

    def _end_drain(self, unit: Unit, place: Place) -> None:
        del self._draining[unit]
        place.draining_since = None

    def _evict_overdue(self, now: float) -> None:
        overdue = [place.holder for place in self._draining.values() if _overdue_at(place) <= now]
        for session in dict.fromkeys(overdue):
            if session is not None:
                self.evict(session, now)

    def evict(self, session: Session, now: float) -> None:
        """End a session that does not settle what it has; its member is gone at once."""
        self.counts.forced_handovers += 1
        try:
            self.leave(session, now, for_good=True)
        finally:
            session.evict()


def _overdue_at(place: Place) -> float:
    if place.holder is None or place.draining_since is None or place.holder.handover_timeout is None:
        return NEVER
    return place.draining_since + place.holder.handover_timeout
