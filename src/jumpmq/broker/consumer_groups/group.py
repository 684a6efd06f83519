"""A consumer group: owners of partitions, and the handover of a partition between members. No sockets, no clock.

A *unit* is what one member at a time is fed from. Each is in one of these states:

========  ===========  ============================================================================
owner     holder       state of the unit
========  ===========  ============================================================================
none      none         waits to be given to a member
a member  none         the member is away, and has a grace
a member  its session  the member is fed
any       another      *drains*: the holder is fed no more, and still has messages of the unit
========  ===========  ============================================================================

A member (its name) outlives its session (a ``basic.consume`` in force) by its grace. A unit drains until the holder has
none of its messages any more, whatever became of them; then its owner's session is fed. So a handover waits for no
answer, and no two sessions have messages of a unit at once. Only :meth:`ConsumerGroup.evict` ends a drain otherwise.

What a member leaves is given to others at once; what members have moves to even out the shares when none has come or
gone for a while. The first division waits a moment for members that start together.

Units that the same members may have are a *pool*, and divided among these. There is one pool where all members may
have all units.

A change costs what it changes: a departure goes through the units of the session that ends, and marks them. Everything
else is done by :meth:`ConsumerGroup.step`, in slices, once for all changes before it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from jumpmq.broker.consumer_groups.assignment import Shares, divide

GATHERING = 0.5
"""Seconds without a further join after which the first members are given partitions."""

LONGEST_GATHERING = 3.0
"""Maximum seconds from the first join to the first assignment."""

REBALANCE_DELAY = 1.0
"""Seconds without a join or leave after which owned partitions may move, unless a member sets a different delay."""

LONGEST_DELAYS = 10
"""Number of delays after which partitions move in any case, however often members come and go."""

MAX_AWAY = 1000
"""Members keeping their share while away; further absent members leave for good. A name costs a client nothing."""

LOOK_INTERVAL = 1.0
"""Seconds between checks of all draining partitions. :meth:`ConsumerGroup.released` reports the end of a drain."""

NEVER = float("inf")


class Partition(NamedTuple):
    """Partition, fed to one member at a time: a queue, or a slot of a queue.

    Attributes:
        queue: its name.
        queue_id: its number, never given twice.
        slot: the slot; None where the queue has none.
    """

    queue: str
    queue_id: int
    slot: int | None = None


class MemberSession(Protocol):
    """A member's consumer.

    Attributes:
        handover_timeout: seconds that a unit of its may drain before it is evicted; None where only the delivery
            timeout ends it.
    """

    handover_timeout: float | None

    @property
    def reader(self) -> Hashable:
        """Principal, deciding by permissions on the partitions available to the member."""

    def start(self, unit: Partition) -> int:
        """Start feeding from a partition. May be called again after an exception. Returns the start's number, higher
        than earlier ones (:mod:`jumpmq.queues.epochs`)."""

    def stop(self, unit: Partition) -> None:
        """Stop feeding from a partition. May be called again after an exception."""

    def held(self, unit: Partition) -> int:
        """Return the number of the partition's messages not settled by the session; messages being returned count as
        settled.
        """

    def evict(self) -> None:
        """Give up all messages, returned to the queues in the original positions."""


@dataclass(eq=False, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        name: as given, or one of its own.
        reader: of its last session.
        weight: its share in relation to the others'.
        grace: seconds for which it stays a member without a session.
        session: None while it is away.
        joined_at: when it joined first.
        away_until: when its grace ends, while it is away.
        units: how many units it owns.
    """

    name: str
    reader: Hashable
    weight: int
    grace: float
    session: MemberSession | None
    joined_at: float
    away_until: float = NEVER
    units: int = 0


@dataclass(eq=False, slots=True)
class Pool:
    """Partitions available to an equal set of members.

    Attributes:
        barred: users without the right to these partitions.
        units: how many there are.
        unowned: those without an owner, in order.
        owned: those of each member, the last to be given last.
        first: how many such units the homes before this one have; None where those of all homes are here.
        shares: how many of them each member is to have.
    """

    barred: frozenset[Hashable]
    units: int = 0
    unowned: "dict[Partition, PartitionPlace]" = field(default_factory=dict)
    owned: "dict[GroupMember, dict[Partition, PartitionPlace]]" = field(default_factory=dict)
    first: int | None = None
    shares: Shares[str] = field(default_factory=Shares)


@dataclass(eq=False, slots=True)
class PartitionPlace:
    """Location and ownership of a partition.

    Attributes:
        pool: the pool of the unit.
        owner: current or future owner.
        owned_since: since when.
        holder: the session that is fed, or that still has messages of it.
        started: whether the holder is fed, as far as is known: it was told to, and has not raised.
        draining_since: since when the holder is fed no more; None while it is.
        epoch: the number under which the holder is, or was fed; 0 if none ever was.
    """

    pool: Pool
    owner: GroupMember | None = None
    owned_since: float = 0.0
    holder: MemberSession | None = None
    started: bool = False
    draining_since: float | None = None
    epoch: int = 0


@dataclass(slots=True)
class Counts:
    """Counters of a group.

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
    """The members and partitions of a group. Times are seconds of any monotonic clock.

    Attributes:
        name: name of the group.
        rebalance_delay: seconds; the value of the last member with one.
        members: by name, in the order in which they joined.
        places: home of each partition.
        counts: what happened so far.
        readers: how many members each has.
    """

    name: str
    rebalance_delay: float = REBALANCE_DELAY
    members: dict[str, GroupMember] = field(default_factory=dict)
    places: dict[Partition, PartitionPlace] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    readers: Counter[Any] = field(default_factory=Counter)
    _pools: dict[frozenset[Hashable], Pool] = field(default_factory=dict)
    _queues: dict[int, tuple[Partition, ...]] = field(default_factory=dict)  # the units of each queue
    _firsts: dict[frozenset[Hashable], int] | None = None  # of pools; None where all units are here
    _by_session: dict[MemberSession, GroupMember] = field(default_factory=dict)
    _away: dict[str, GroupMember] = field(default_factory=dict)
    # by holder
    _held: defaultdict[MemberSession, dict[Partition, PartitionPlace]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _draining: dict[Partition, PartitionPlace] = field(default_factory=dict)
    _released: dict[Partition, PartitionPlace] = field(default_factory=dict)  # of the draining ones, possibly drained
    # whose session may not be fed as the owner says
    _unfollowed: dict[Partition, PartitionPlace] = field(default_factory=dict)
    _timing: _Timing = field(default_factory=_Timing)
    _looked_at: float = 0.0  # when all that drain were looked at
    _overdue_from: float = NEVER  # before this no drain is overdue

    @property
    def ended(self) -> bool:
        """True if the group has no members, and no session holds messages of a partition."""
        return not self.members and not self._draining

    def member_of(self, session: MemberSession) -> GroupMember | None:
        """Return the member of a session; None if the member has left, or the session was replaced."""
        return self._by_session.get(session)

    @property
    def state(self) -> str:
        """``gathering`` before the first division, ``draining`` or ``rebalancing`` while partitions are moving, or will
        be soon, else ``stable``."""
        if not self._timing.begun:
            return "gathering"
        if self._draining:
            return "draining"
        return "stable" if self._timing.unsettled_since is None else "rebalancing"

    # --- what happens ---

    def join(self, session: MemberSession, name: str, weight: int, grace: float, now: float) -> MemberSession | None:
        """Add a session as the member of a name. Return the member's previous session, if any: no longer fed, its
        messages drain."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = GroupMember(name, session.reader, weight, grace, session, now)
            self._by_session[session] = member
            self._count_reader(session.reader, 1)
            self.counts.joins += 1
            if not self._timing.begun:
                self._timing.first_join = now if len(self.members) == 1 else self._timing.first_join
                self._timing.last_join = now
            self._unsettle(now)
            return None
        replaced = member.session
        if member.weight != weight or member.reader != session.reader:
            self._unsettle(now)
        if member.reader != session.reader:
            self._give_up(member)
            self._count_reader(member.reader, -1)
            self._count_reader(session.reader, 1)
        member.session, member.reader, member.weight, member.grace = session, session.reader, weight, grace
        member.away_until = NEVER
        self._away.pop(name, None)
        self._by_session[session] = member
        for pool in self._pools.values():
            self._unfollowed.update(pool.owned.get(member, {}))
        if replaced is not None:
            del self._by_session[replaced]
            self._stop_feeding(replaced, now)
        return replaced

    def leave(self, session: MemberSession, now: float, *, grace: float = NEVER, for_good: bool = False) -> None:
        """End a session; held messages drain.

        Args:
            grace: seconds that its member may stay at most, whatever grace it has.
            for_good: its member goes too.
        """
        member = self._by_session.pop(session, None)
        if member is not None:
            member.session = None
            grace = min(grace, member.grace)
            if for_good or grace <= 0 or len(self._away) >= MAX_AWAY:
                self._remove(member, now)
            else:
                member.away_until = now + grace
                self._away[member.name] = member
        self._stop_feeding(session, now)

    def remove(self, member: GroupMember, now: float) -> None:
        """Remove an absent member."""
        self._remove(member, now)

    def set_queue(self, units: tuple[Partition, ...], barred: frozenset[Hashable], now: float) -> None:
        """The units of a queue are shared from now on.

        Args:
            units: of one queue.
            barred: readers whose members may have none of them.
        """
        known = self._queues.get(units[0].queue_id)
        if known == units and self.places[units[0]].pool.barred == barred:
            return
        pool = self._pool(barred)
        for unit in units:
            place = self.places.get(unit)
            if place is None:
                place = self.places[unit] = PartitionPlace(pool)
                pool.unowned[unit] = place
            else:
                self._put_into(unit, place, pool, now)
            pool.units += 1
        self._queues[units[0].queue_id] = units
        self._unsettle(now)

    def bar(self, queue_id: int, barred: frozenset[Hashable], now: float) -> None:
        """Bar the members of the given readers from the partitions of a queue; members of different readers may have
        partitions.
        """
        if queue_id in self._queues:
            self.set_queue(self._queues[queue_id], barred, now)

    def forget_queue(self, queue_id: int, now: float) -> None:
        """The units of a queue are shared no more, also where a member has messages of one."""
        units = self._queues.pop(queue_id, ())
        for unit in units:
            place = self.places.pop(unit)
            self._take_out(unit, place)
            self._draining.pop(unit, None)
            self._released.pop(unit, None)
            self._unfollowed.pop(unit, None)
            if place.holder is not None:
                self._let_go(unit, place)
        if units:
            self._unsettle(now)

    def set_firsts(self, firsts: dict[frozenset[Hashable], int] | None, now: float) -> None:
        """Set the number of partitions at the preceding homes, by barred readers; None where the partitions of all
        homes are local."""
        if firsts != self._firsts:
            self._firsts = firsts
            for pool in self._pools.values():
                pool.first = None if firsts is None else firsts.get(pool.barred, 0)
            self._unsettle(now)

    def released(self, units: Iterable[Partition]) -> None:
        """Record partitions with fewer messages held by sessions; the next step checks the draining partitions."""
        for unit in units:
            if unit in self._draining:
                self._released[unit] = self._draining[unit]

    def step(self, now: float, more: Callable[[], bool] = lambda: True) -> float:
        """Do all due work. If a session raises, work for others is done all the same, and the next step retries.

        Args:
            more: whether there is time to go on.

        Returns:
            When there is something to do next, if nothing else happens before; ``now`` where there was no time to do
            all. Units that drain ask for it by :meth:`released`.
        """
        for member in [one for one in self._away.values() if one.away_until <= now]:
            self._remove(member, now)
        if self._draining and now >= self._looked_at + LOOK_INTERVAL:
            self._looked_at = now
            self._released.update(self._draining)
        self._end_drains(now, more)
        self._follow(now, more)
        self._evict_overdue(now)
        if not self._give_due(now, more):
            return now
        self._follow(now, more)
        self._end_drains(now, more)  # of members without messages of the revoked partitions
        self._follow(now, more)
        return now if self._unfollowed or self._released else self._next(now)

    # --- when ---

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
        away = min((member.away_until for member in self._away.values()), default=NEVER)
        gathered = self._gathered_at if self.members and not self._timing.begun else NEVER
        looks = self._looked_at + LOOK_INTERVAL if self._draining else NEVER
        return min(away, gathered, self._moves_at, looks, self._overdue_from)

    def _unsettle(self, now: float) -> None:
        timing = self._timing
        timing.quiet_since, timing.unowned = now, True
        if timing.unsettled_since is None:
            timing.unsettled_since = now

    # --- owners ---

    def _pool(self, barred: frozenset[Hashable]) -> Pool:
        pool = self._pools.get(barred)
        if pool is None:
            first = None if self._firsts is None else self._firsts.get(barred, 0)
            pool = self._pools[barred] = Pool(barred, first=first)
        return pool

    def _put_into(self, unit: Partition, place: PartitionPlace, pool: Pool, now: float) -> None:
        """Move a partition to a different pool; the owner keeps the partition, unless barred in the new pool."""
        owner = place.owner
        self._take_out(unit, place)
        place.pool = pool
        pool.unowned[unit] = place
        if owner is not None and owner.reader not in pool.barred:
            self._set_owner(unit, place, owner, place.owned_since)
        self._unfollowed[unit] = place

    def _take_out(self, unit: Partition, place: PartitionPlace) -> None:
        """Take a partition out of the pool."""
        pool = place.pool
        self._set_owner(unit, place, None, 0.0)
        del pool.unowned[unit]
        pool.units -= 1
        if not pool.units:
            del self._pools[pool.barred]

    def _set_owner(self, unit: Partition, place: PartitionPlace, owner: GroupMember | None, now: float) -> None:
        pool = place.pool
        if place.owner is None:
            del pool.unowned[unit]
        else:
            place.owner.units -= 1
            del pool.owned[place.owner][unit]
        if owner is None:
            pool.unowned[unit] = place
        else:
            owner.units += 1
            pool.owned.setdefault(owner, {})[unit] = place
        place.owner, place.owned_since = owner, now

    def _remove(self, member: GroupMember, now: float) -> None:
        del self.members[member.name]
        self._away.pop(member.name, None)
        self._count_reader(member.reader, -1)
        self.counts.leaves += 1
        self._give_up(member)
        self._unsettle(now)

    def _count_reader(self, reader: Hashable, members: int) -> None:
        self.readers[reader] += members
        if not self.readers[reader]:
            del self.readers[reader]

    def _give_up(self, member: GroupMember) -> None:
        """Remove the owner of a member's partitions."""
        for pool in self._pools.values():
            units = pool.owned.pop(member, {})
            pool.unowned.update(units)
            self._unfollowed.update(units)
            for place in units.values():
                place.owner = None
        member.units = 0

    def _give_due(self, now: float, more: Callable[[], bool]) -> bool:
        """Give members due partitions. Return True if time sufficed."""
        timing = self._timing
        if not self.members:
            self._timing = _Timing()
        elif not timing.begun and now >= self._gathered_at:
            timing.begun = timing.unowned = True
            timing.unsettled_since = -NEVER  # nothing waits for a rebalancing
        if timing.begun and self.members:
            moving = now >= self._moves_at
            if moving or timing.unowned:
                if not all(self._give(pool, moving, now, more) for pool in list(self._pools.values())):
                    return False
                timing.unowned = False
                if moving:
                    timing.unsettled_since = None
        return True

    def _give(self, pool: Pool, moving: bool, now: float, more: Callable[[], bool]) -> bool:
        """Give the partitions of a pool. Return True if time sufficed."""
        if not moving and not pool.unowned:
            return True
        weights = {one.name: one.weight for one in self.members.values() if one.reader not in pool.barred}
        owned = {member.name: units for member, units in pool.owned.items()}
        wanted = pool.shares.of(weights, owned, pool.units, pool.first, more)
        if wanted is None:
            return False
        drains = {
            unit: member.name
            for unit in (self._draining.keys() & pool.unowned.keys() if not moving else self._draining)
            if (holder := self._draining[unit].holder) is not None
            if (member := self._by_session.get(holder)) is not None and self._draining[unit].pool is pool
        }
        for unit, name in divide(wanted, owned, pool.unowned, drains, moving=moving):
            if not more():
                return False
            place, member = self.places[unit], self.members[name]
            self.counts.moves += place.owner is not None
            self._set_owner(unit, place, member, now)
            self._unfollowed[unit] = place
        return True

    # --- sessions ---

    def _hold(self, unit: Partition, place: PartitionPlace, session: MemberSession | None) -> None:
        """Record a session as the holder of a partition's messages."""
        if place.holder is not None:
            units = self._held[place.holder]
            del units[unit]
            if not units:
                del self._held[place.holder]
        place.holder = session
        if session is not None:
            self._held[session][unit] = place

    def _stop_feeding(self, session: MemberSession, now: float) -> None:
        """A session is over, or was replaced: it is fed from nothing more."""
        failure: Exception | None = None
        for unit, place in list(self._held.get(session, {}).items()):
            try:
                self._follow_unit(unit, place, now)
            except Exception as error:
                self._unfollowed[unit] = place
                failure = failure or error
        if failure is not None:
            raise failure

    def _follow(self, now: float, more: Callable[[], bool]) -> None:
        """Stop sessions of former owners, and start an owner's session where no other session holds messages of the
        partition.
        """
        failed: dict[Partition, PartitionPlace] = {}
        failure: Exception | None = None
        while self._unfollowed and more():
            unit, place = self._unfollowed.popitem()
            try:
                self._follow_unit(unit, place, now)
            except Exception as error:  # other partitions go on
                failure = failure or error
                failed[unit] = place
        if failure is not None:
            self._unfollowed.update(failed)
            raise failure

    def _follow_unit(self, unit: Partition, place: PartitionPlace, now: float) -> None:
        """As :meth:`_follow`, for a single partition. A session raising an exception gets the request again."""
        wanted = place.owner.session if place.owner is not None else None
        if wanted is not None and place.holder in (None, wanted):
            if place.draining_since is not None:
                self._end_drain(unit, place)
            if place.holder is None or not place.started:
                if place.holder is None:
                    self._hold(unit, place, wanted)
                place.started = False
                place.epoch = wanted.start(unit)
                place.started = True
        elif place.holder is None:
            return
        elif place.draining_since is None:
            holder = place.holder
            holder.stop(unit)
            place.started, place.draining_since = False, now
            self._draining[unit] = self._released[unit] = place
            self._overdue_from = min(self._overdue_from, _overdue_at(place))

    def _let_go(self, unit: Partition, place: PartitionPlace) -> None:
        """Drop a deleted partition and stop feeding the holder's session."""
        holder, drains = place.holder, place.draining_since is not None
        self._hold(unit, place, None)
        if holder is not None and not drains:
            holder.stop(unit)

    def _end_drains(self, now: float, more: Callable[[], bool]) -> None:
        while self._released and more():
            unit, place = self._released.popitem()
            if place.draining_since is None or (place.holder is not None and place.holder.held(unit)):
                continue
            self._end_drain(unit, place)
            self._hold(unit, place, None)
            self._unfollowed[unit] = place
            self.counts.handovers += 1

    def _end_drain(self, unit: Partition, place: PartitionPlace) -> None:
        del self._draining[unit]
        self._released.pop(unit, None)
        place.draining_since = None

    def _evict_overdue(self, now: float) -> None:
        if now < self._overdue_from:
            return
        overdue = [place.holder for place in self._draining.values() if _overdue_at(place) <= now]
        self._overdue_from = min(map(_overdue_at, self._draining.values()), default=NEVER)
        for session in dict.fromkeys(overdue):
            if session is not None:
                self.evict(session, now)
        self._overdue_from = min(map(_overdue_at, self._draining.values()), default=NEVER)

    def evict(self, session: MemberSession, now: float) -> None:
        """End a session with overdue settlements; remove the session's member at once."""
        self.counts.forced_handovers += 1
        try:
            self.leave(session, now, for_good=True)
        finally:
            session.evict()


def _overdue_at(place: PartitionPlace) -> float:
    if place.holder is None or place.draining_since is None or place.holder.handover_timeout is None:
        return NEVER
    return place.draining_since + place.holder.handover_timeout
