"""A consumer group: owners of partitions, and the handover of a partition between members. No sockets, no clock.

A *partition* (a queue, or a slot of a queue; called unit in the API) feeds one member at a time. States of a partition:

========  ===============  ===========================================================================
owner     holder           state of the partition
========  ===============  ===========================================================================
none      none             waits for its assignment to a member
a member  none             the member is absent, within its grace
a member  owner's session  the partition feeds the member
any       other session    *drains*: the holder gets no more messages, and still holds some
========  ===============  ===========================================================================

A member (a name) outlives its session (an active ``basic.consume``) by its grace. A partition drains until the holder
has no unsettled message of the partition. Then the partition feeds its owner's session. The handover needs no reply
from a client, and no two sessions hold messages of a partition at once. Only :meth:`ConsumerGroup.evict` ends a drain
earlier.

The partitions of a leaving member are assigned to other members at once. To even out the shares, owned partitions move
when no member has joined or left for a while. The first assignment waits a moment for members that start together.

A *pool* has the partitions that are available to the same members, and is divided among these members. If all members
may read all partitions, there is one pool.

The cost of a change grows with the changed partitions: a departure only marks the partitions of the ended session.
:meth:`ConsumerGroup.step` does all further work in time slices, once for all changes before the step.
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
"""Maximum number of absent members that keep their partitions; further ones leave for good. Without a limit, a client
could fill the memory with names.
"""

LOOK_INTERVAL = 1.0
"""Seconds between checks of all draining partitions. :meth:`ConsumerGroup.released` reports the end of a drain."""

NEVER = float("inf")


class Partition(NamedTuple):
    """A partition: a queue, or a slot of a queue, which feeds one member at a time.

    Attributes:
        queue: name of the queue.
        queue_id: number of the queue, never reused.
        slot: the slot; None for a queue without slots.
    """

    queue: str
    queue_id: int
    slot: int | None = None


class MemberSession(Protocol):
    """A member's consumer.

    Attributes:
        handover_timeout: seconds that a partition of the session may drain before the session is evicted; None if only
            the delivery timeout ends the session.
    """

    handover_timeout: float | None

    @property
    def reader(self) -> Hashable:
        """Principal, whose permissions decide about the partitions available to the member."""

    def start(self, unit: Partition) -> int:
        """Start feeding from a partition. May be called again after an exception. Returns the owner epoch, higher than
        all earlier ones of the partition (:mod:`jumpmq.queues.epochs`)."""

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
        name: the given name, or a generated one.
        reader: principal of the last session.
        weight: share in relation to the weights of other members.
        grace: seconds of membership without a session.
        session: the session; None while the member is absent.
        joined_at: time of the first join.
        away_until: end of the grace, while the member is absent.
        units: number of owned partitions.
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
    """Partitions available to the same members.

    Attributes:
        barred: principals without the right to these partitions.
        units: number of partitions.
        unowned: partitions without an owner, in order.
        owned: partitions of each member, in the order of assignment.
        first: number of the pool's partitions at homes with a lower number; None if no other home has partitions.
        shares: target number of partitions per member.
    """

    barred: frozenset[Hashable]
    units: int = 0
    unowned: "dict[Partition, PartitionPlace]" = field(default_factory=dict)
    owned: "dict[GroupMember, dict[Partition, PartitionPlace]]" = field(default_factory=dict)
    first: int | None = None
    shares: Shares[str] = field(default_factory=Shares)


@dataclass(eq=False, slots=True)
class PartitionPlace:
    """Pool and ownership of a partition.

    Attributes:
        pool: the pool of the partition.
        owner: current or future owner.
        owned_since: start of the ownership.
        holder: the fed session, or the session that still holds messages.
        started: True if the holder's ``start`` has returned without an exception.
        draining_since: start of the drain; None while the holder is fed.
        epoch: owner epoch of the holder; 0 before the first holder.
    """

    pool: Pool
    owner: GroupMember | None = None
    owned_since: float = 0.0
    holder: MemberSession | None = None
    started: bool = False
    draining_since: float | None = None
    epoch: int = 0


@dataclass(slots=True)
class GroupCounts:
    """Counters of a group.

    Attributes:
        joins, leaves: joined and departed members, without members that return within their grace.
        moves: partitions taken from a member for another member.
        handovers: completed drains.
        forced_handovers: evicted sessions.
        late_acknowledgements: deliveries settled by a session after its eviction, without effect.
    """

    joins: int = 0
    leaves: int = 0
    moves: int = 0
    handovers: int = 0
    forced_handovers: int = 0
    late_acknowledgements: int = 0


@dataclass(slots=True)
class _Timing:
    """Times of assignments and moves.

    Attributes:
        begun: True after the first assignment.
        unowned: True if a partition may have no owner.
        first_join, last_join: times of joins, before the first assignment.
        unsettled_since: time of the first change (a join, a leave, a change of partitions) that waits for a
            rebalancing; None without one.
        quiet_since: time of the last such change.
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
        members: members by name, in the order of joining.
        places: pool and ownership of each partition.
        counts: counters since the begin of the group.
        readers: number of members of each principal.
    """

    name: str
    rebalance_delay: float = REBALANCE_DELAY
    members: dict[str, GroupMember] = field(default_factory=dict)
    places: dict[Partition, PartitionPlace] = field(default_factory=dict)
    counts: GroupCounts = field(default_factory=GroupCounts)
    readers: Counter[Any] = field(default_factory=Counter)
    _pools: dict[frozenset[Hashable], Pool] = field(default_factory=dict)
    _queues: dict[int, tuple[Partition, ...]] = field(default_factory=dict)  # partitions by queue
    _firsts: dict[frozenset[Hashable], int] | None = None  # Pool.first by Pool.barred; None if all are local
    _by_session: dict[MemberSession, GroupMember] = field(default_factory=dict)
    _away: dict[str, GroupMember] = field(default_factory=dict)
    # partitions by holder
    _held: defaultdict[MemberSession, dict[Partition, PartitionPlace]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _draining: dict[Partition, PartitionPlace] = field(default_factory=dict)
    _released: dict[Partition, PartitionPlace] = field(default_factory=dict)  # draining ones that may be drained
    # partitions whose fed session may differ from the owner's session
    _unfollowed: dict[Partition, PartitionPlace] = field(default_factory=dict)
    _timing: _Timing = field(default_factory=_Timing)
    _looked_at: float = 0.0  # time of the last check of all draining partitions
    _overdue_from: float = NEVER  # no drain is overdue before this time

    @property
    def ended(self) -> bool:
        """True if the group has no members, and no session holds messages of a partition."""
        return not self.members and not self._draining

    def member_of(self, session: MemberSession) -> GroupMember | None:
        """Return the member of a session; None if the member has left, or the session was replaced."""
        return self._by_session.get(session)

    @property
    def state(self) -> str:
        """``gathering`` before the first assignment, ``draining`` or ``rebalancing`` while partitions move or will move
        soon, otherwise ``stable``."""
        if not self._timing.begun:
            return "gathering"
        if self._draining:
            return "draining"
        return "stable" if self._timing.unsettled_since is None else "rebalancing"

    # --- events ---

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
        # The new reader may be barred from partitions of the former reader.
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
        # Last: the partitions belong to the new session by now, so they only drain from the replaced one.
        if replaced is not None:
            del self._by_session[replaced]
            self._stop_feeding(replaced, now)
        return replaced

    def leave(self, session: MemberSession, now: float, *, grace: float = NEVER, for_good: bool = False) -> None:
        """End a session; held messages drain.

        Args:
            grace: upper limit of the member's grace, in seconds.
            for_good: True to remove the member, too.
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
        """Add the partitions of a queue, or change their barred readers.

        Args:
            units: partitions of one queue.
            barred: readers whose members may not have these partitions.
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
        """Exclude the members of the given principals from a queue's partitions. Members of all other principals stay
        eligible.
        """
        if queue_id in self._queues:
            self.set_queue(self._queues[queue_id], barred, now)

    def forget_queue(self, queue_id: int, now: float) -> None:
        """Remove the partitions of a queue, also while members hold messages of them."""
        units = self._queues.pop(queue_id, ())
        for unit in units:
            place = self.places.pop(unit)
            self._take_out(unit, place)
            self._draining.pop(unit, None)
            self._released.pop(unit, None)
            self._unfollowed.pop(unit, None)
            if place.holder is not None:
                self._drop_partition(unit, place)
        if units:
            self._unsettle(now)

    def set_firsts(self, firsts: dict[frozenset[Hashable], int] | None, now: float) -> None:
        """Set the number of partitions at homes with a lower number, by barred principals; None if no other home has
        partitions.
        """
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
        """Do all due work. If a session raises an exception, the work for other sessions is still done, and the next
        step retries.

        Args:
            more: returns True while time is left.

        Returns:
            The time of the next due work; ``now`` if the time slice ended before all due work was done. An event may
            make work due earlier; after :meth:`released`, a further step is due at once.
        """
        for member in [one for one in self._away.values() if one.away_until <= now]:
            self._remove(member, now)
        if self._draining and now >= self._looked_at + LOOK_INTERVAL:
            self._looked_at = now
            self._released.update(self._draining)
        # First: a partition whose drain has ended starts at its new owner in the same step.
        self._end_drains(now, more)
        self._follow(now, more)
        # Before partitions are given away, so that an evicted member gets none.
        self._evict_overdue(now)
        if not self._give_due(now, more):
            return now
        self._follow(now, more)
        self._end_drains(now, more)  # of members without messages of the revoked partitions
        self._follow(now, more)
        return now if self._unfollowed or self._released else self._next(now)

    # --- times ---

    @property
    def _gathered_at(self) -> float:
        timing = self._timing
        # Bounded: members that keep joining must not delay the first assignment forever.
        return min(timing.last_join + GATHERING, timing.first_join + LONGEST_GATHERING)

    @property
    def _moves_at(self) -> float:
        since = self._timing.unsettled_since
        if since is None or not self._timing.begun:
            return NEVER
        # Bounded: members that keep joining and leaving must not delay the moves forever.
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
            timing.unsettled_since = -NEVER  # all partitions may move at once
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
        """Stop feeding an ended or replaced session from all its partitions."""
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
        """As :meth:`_follow`, for a single partition. If a session raises an exception, the next step repeats the
        request.
        """
        wanted = place.owner.session if place.owner is not None else None
        # A partition keeps its order with one holder at a time: messages of another session drain first.
        if wanted is not None and place.holder in (None, wanted):
            if place.draining_since is not None:
                self._end_drain(unit, place)
            if place.holder is None or not place.started:
                if place.holder is None:
                    self._hold(unit, place, wanted)
                # If `start` fails, the partition counts as not started, and the next step tries again.
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

    def _drop_partition(self, unit: Partition, place: PartitionPlace) -> None:
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
        # Set before the evictions: after an exception, the next step still finds the other overdue drains.
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
            # Also after an exception of `leave`: the session's messages must go back to their queues.
            session.evict()


def _overdue_at(place: PartitionPlace) -> float:
    if place.holder is None or place.draining_since is None or place.holder.handover_timeout is None:
        return NEVER
    return place.draining_since + place.holder.handover_timeout
