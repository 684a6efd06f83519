"""The consumer groups of a broker: the queues of a group, and the clock of its members.

A change of definitions only records the names of the affected queues and users. The groups check these later, in turn,
in time slices of two milliseconds shared by all groups. Until the permissions of a new user, or changed permissions,
are checked, a group assigns no partitions.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from jumpmq.amqp.errors import AccessRefused, AMQPError, NotFound, PreconditionFailed, ResourceLocked
from jumpmq.amqp.fields import Field
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.consumer_groups import group as state
from jumpmq.broker.consumer_groups.group import ConsumerGroup, Partition
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authorization import Authorization
from jumpmq.queues import Queue
from jumpmq.topology import (
    AddVirtualHost,
    Bind,
    Change,
    ChangePrincipal,
    ClearGlobalParameter,
    ClearPermissions,
    ClearTopicPermissions,
    ClearUserLimit,
    ClearVirtualHostLimit,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVirtualHost,
    Exchange,
    PutUser,
    SetGlobalParameter,
    SetPermissions,
    SetTopicPermissions,
    SetTracing,
    SetUserLimit,
    SetVirtualHostLimit,
    Topology,
    Unbind,
    VirtualHost,
)
from jumpmq.topology.bindings import Binding, DestinationKind
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.exchanges import HASH_EXCHANGES

log = logging.getLogger(__name__)

SLICE = 0.002
"""Seconds of work for groups before other work of the event loop."""

LOOK_INTERVAL = 1.0
"""Seconds between checks of queues refused because of foreign consumers."""

UNBOUND_INTERVAL = 0.1
"""Seconds between checks of unbound queues that are not yet empty."""

RETRY_INTERVAL = 1.0
"""Seconds after a failed step until the retry."""

MAX_UNITS = 16_384
"""Maximum number of partitions of a group."""

CLAIMED_AT_ONCE = 1024
"""Partitions added to a group before the answer to its first member; the others are added some time slices later."""

OF_NO_QUEUE = (
    *(AddVirtualHost, PutUser, SetTracing, SetTopicPermissions, ClearTopicPermissions, SetUserLimit, ClearUserLimit),
    *(SetVirtualHostLimit, ClearVirtualHostLimit, SetGlobalParameter, ClearGlobalParameter),
)
"""Changes without effect on the queues of groups."""


@dataclass(frozen=True, slots=True)
class GroupPrincipal:
    """Principal of a member: a user, or the permissions of a single token.

    Attributes:
        user: the user.
        token: identifies the token; None if the user's stored permissions decide.
    """

    user: Principal
    token: int | None

    @classmethod
    def of(cls, user: Principal) -> "GroupPrincipal":
        """Return the principal of a client."""
        return cls(user, None if user.granted is None else id(user.granted))


Key = tuple[str, str, str, str]
"""Key of a group: virtual host, kind and name of the source, and the group's name."""


class MemberConsumer(state.MemberSession, Protocol):
    """A member's consumer: a session of a client.

    Attributes:
        user: the client's user.
        identity, connection_name: identity and name of the connection.
        prefetch: maximum number of unacknowledged deliveries, 0 without a limit.
        arguments: arguments of ``basic.consume``.
    """

    prefetch: int
    arguments: list[Field]

    def replaced(self) -> None:
        """End the replaced consumer; the client can still settle its deliveries."""

    @property
    def user(self) -> Principal: ...

    @property
    def identity(self) -> str: ...

    @property
    def connection_name(self) -> str: ...


@dataclass(eq=False)
class LiveGroup:
    """A group with source and consumers.

    Attributes:
        vhost: the virtual host.
        kind, source: kind ("exchange" or "queue") and name of the source.
        group: members and partitions.
        queues: shared queues, by number.
        names: local queue by name; None for a queue that is known but not shared by this home.
        bound: names of the queues bound to the source.
        refused: names of queues that are left out, with the reason.
        exchanges: names of exchanges bound to the group's exchange; also in ``refused``.
        unbound: names of unbound queues that are not yet empty.
        special: names of queues with restricted membership, such as exclusive queues and streams.
        remote: number of partitions by remote queue, for homes with a lower number; 0 for homes with a higher number.
        barred: principals without the right to read a queue, by the queue's name.
        consumers: the sessions of the members.
        unlimited: members without a prefetch.
        identities: number of members of each connection.
        readers: readers with known permissions, or with a scheduled check.
        is_stale: True if all queues must be checked.
        to_look_at: names of queues to check.
        to_check: readers whose permissions must be checked; True while the check runs.
        work: remaining work of the check.
        looks_at: time of the next check of refused and unbound queues.
        reason: reason for the eviction of members; None for members with overdue deliveries.
        failed: True if the last step failed.
    """

    vhost: str
    kind: DestinationKind
    source: str
    group: ConsumerGroup
    queues: dict[int, Queue] = field(default_factory=dict)
    names: dict[str, Queue | None] = field(default_factory=dict)
    bound: dict[str, None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    exchanges: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    special: set[str] = field(default_factory=set)
    remote: dict[str, int] = field(default_factory=dict)
    barred: dict[str, frozenset[Hashable]] = field(default_factory=dict)
    consumers: dict[MemberConsumer, None] = field(default_factory=dict)
    unlimited: dict[MemberConsumer, None] = field(default_factory=dict)
    identities: Counter[str] = field(default_factory=Counter)
    readers: set[GroupPrincipal] = field(default_factory=set)
    is_stale: bool = True
    to_look_at: OrderedDict[str, None] = field(default_factory=OrderedDict)
    to_check: dict[GroupPrincipal, bool] = field(default_factory=dict)
    work: Iterator[None] | None = None
    looks_at: float = state.NEVER
    reason: str | None = None
    failed: bool = False

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    @property
    def key(self) -> Key:
        """Unique key of the group."""
        return self.vhost, self.kind, self.source, self.name

    @property
    def has_streams(self) -> bool:
        """True if the group shares streams."""
        return any((queue := self.names.get(name)) is not None and queue.offsets is not None for name in self.special)


class ConsumerGroups:
    """The groups of a broker with members, or with messages of former members.

    Args:
        reader_of: returns the reader group that takes messages from a queue; None without one.
        most_members: maximum number of members of a group.
        most_groups: maximum number of groups with members of a user.
    """

    def __init__(
        self,
        topology: Topology,
        turns: Turns,
        authorization: Authorization,
        reader_of: Callable[[Queue], object | None],
        most_members: int,
        most_groups: int,
    ) -> None:
        self._topology = topology
        self._turns = turns
        self._authorization = authorization
        self._reader_of = reader_of
        self._most_members = most_members
        self._most_groups = most_groups
        self._groups: dict[Key, LiveGroup] = {}
        self._of_host: dict[str, dict[LiveGroup, None]] = {}
        self._on_source: dict[tuple[str, str], dict[LiveGroup, None]] = {}  # by virtual host and source
        self._with_queue: dict[tuple[str, str], dict[LiveGroup, None]] = {}  # by virtual host and name of a queue
        self._of_user: dict[Principal, dict[LiveGroup, None]] = {}
        self._due: OrderedDict[LiveGroup, None] = OrderedDict()  # groups with due work
        self._timers: dict[LiveGroup, tuple[float, asyncio.TimerHandle]] = {}  # timers of later work, with their times
        self._loop = asyncio.get_running_loop()
        self._slice: asyncio.Handle | None = None  # the next time slice
        self._stopped = False

    def all(self, vhost: str) -> list[LiveGroup]:
        """Return the groups of a virtual host."""
        return list(self._of_host.get(vhost, ()))

    def stop(self) -> None:
        """Stop all scheduled work."""
        self._stopped = True
        if self._slice is not None:
            self._slice.cancel()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- members ---

    def find(self, host: VirtualHost, user: Principal, source: str, name: str) -> LiveGroup:
        """Return the group of this name on a queue or exchange; a new group if missing.

        Raises:
            NotFound: no queue or exchange of this name.
            PreconditionFailed: the exchange does not spread messages by key.
            AccessRefused: instead of the other errors, for a user without the right to read a queue of this name. The
                error hides the existence of the exchange.
        """
        kind: DestinationKind = "queue" if source in host.declared else "exchange"
        if kind == "exchange":
            exchange = host.exchanges.get(source) if source else None
            if not isinstance(exchange, HASH_EXCHANGES) and (
                exchange is None or host.in_force.sharding(exchange) is None
            ):
                # A user without the permission must not learn of the exchange's existence.
                self._authorization.require(user, host.name, "read", "queue", source)
            if exchange is None:
                raise NotFound(f"no queue '{source}' in vhost '{host.name}'")
            if not isinstance(exchange, HASH_EXCHANGES) and host.in_force.sharding(exchange) is None:
                raise PreconditionFailed(
                    f"exchange '{source}' in vhost '{host.name}' of type '{exchange.type}' has no consumer groups: "
                    "it is neither a hash exchange nor sharded"
                )
        key = host.name, kind, source, name
        return self._groups.get(key) or LiveGroup(*key[:3], ConsumerGroup(name))

    def require(
        self, live: LiveGroup, host: VirtualHost, user: Principal, identity: str, member: str | None = None
    ) -> None:
        """Refuse a member unable to share the group's queues.

        Args:
            member: name of the member, if any.

        Raises:
            AccessRefused: the user may read none of the queues, or consumers outside the group consume from one.
            ResourceLocked: a queue is exclusive to another connection, or shared by another group.
            PreconditionFailed: a group cannot share a queue, or the exchange; or the maximum number of members of the
                group, or of groups of the user, is reached.
        """
        self._require_place(live, user, member)
        begun, units = live.key in self._groups, 0
        # The permissions of known readers are checked at each change of permissions instead of each join.
        if begun and GroupPrincipal.of(user) in live.readers and GroupPrincipal.of(user) not in live.to_check:
            for name in live.special:
                host.declared_queue(name, identity)
            return
        readable, first = False, None
        for name in self._names(live, host):
            first = first or name
            if not self._authorization.allows(user, host.name, "read", name):
                continue
            readable = True
            if begun:
                if name in live.special and name not in live.refused:
                    host.declared_queue(name, identity)
                continue
            declared = host.declared_queue(name, identity)
            if declared.contents is not None:
                _require_shareable(declared.contents, live, self._reader_of)
            units += _unit_count(declared)
        if not readable:
            self._authorization.require(user, host.name, "read", "queue", first or live.source)
        if units > MAX_UNITS:
            raise PreconditionFailed(
                f"consumer group '{live.name}' would share {units} queues and slots, more than {MAX_UNITS}"
            )

    def _require_place(self, live: LiveGroup, user: Principal, member: str | None) -> None:
        """Refuse a member above the limit.

        Raises:
            PreconditionFailed: the maximum number of members of the group, or of groups of the user, is reached.
        """
        if member not in live.group.members and len(live.group.members) >= self._most_members:
            raise PreconditionFailed(
                f"consumer group '{live.name}' in vhost '{live.vhost}' has reached the maximum of {self._most_members} "
                "members"
            )
        groups = self._of_user.get(user, {})
        if live not in groups and len(groups) >= self._most_groups:
            raise PreconditionFailed(
                f"user '{user}' has reached the maximum of {self._most_groups} consumer groups with a member"
            )

    def queues(self, live: LiveGroup, host: VirtualHost) -> list[Queue]:
        """Return the queues to be shared by a group once the first member joins; for a begun group, the queues with
        restricted membership."""
        names: Iterable[str] = live.special if live.key in self._groups else self._names(live, host)
        return [host.queues[name] for name in names if name in host.queues]

    def join(
        self, live: LiveGroup, host: VirtualHost, consumer: MemberConsumer, member: str, weight: int, grace: float
    ) -> MemberConsumer | None:
        """Add a member admitted by :meth:`require`. Return the member's previous consumer, if any; the previous
        consumer is no longer fed.

        Args:
            live: the result of :meth:`find` in the same event-loop iteration: until its first member joins, another
                client may make a group with the same key.
        """
        begins = live.key not in self._groups
        assert begins or self._groups[live.key] is live, "a group has two sets of members"
        if begins:
            self._groups[live.key] = live
            self._of_host.setdefault(live.vhost, {})[live] = None
            self._on_source.setdefault((live.vhost, live.source), {})[live] = None
        if live.kind == "exchange":
            # From now on, keys that move to another queue wait there for earlier messages, so that members keep the
            # order.
            host.exchanges[live.source].ordered = True
        live.consumers[consumer] = None
        if not consumer.prefetch:
            live.unlimited[consumer] = None
        live.identities[consumer.identity] += 1
        session = live.group.join(consumer, member, weight, grace, self._loop.time())
        replaced = next((one for one in (session,) if one in live.consumers), None)
        if replaced is not None:
            self._forget(live, replaced)
        self._note_readers(live)
        # A member without prefetch excludes streams; a member of another connection excludes exclusive queues.
        if not consumer.prefetch or live.identities[consumer.identity] == 1:
            live.to_look_at.update(dict.fromkeys(live.special))
        if begins or len(live.consumers) == 1:
            arguments, known = consumer.arguments, self._has_begun(live, host)
            for _ in self._look(live, arguments, known):
                if len(live.group.places) >= CLAIMED_AT_ONCE and not self._is_stream(
                    host, next(iter(live.to_look_at), "")
                ):
                    break  # other queues are checked in slices; the start offset in streams is decided at once
        self.soon(live)
        return replaced

    def leave(self, live: LiveGroup, consumer: MemberConsumer) -> None:
        """Remove a member's consumer after cancellation or a channel close."""
        self._forget(live, consumer)
        self.soon(live)
        user = consumer.user
        gone = live.vhost not in self._topology.vhosts or user.account(self._topology) is None
        # The grace of a member with a token ends with the token.
        left = state.NEVER if user.until is None else user.until - time.time()
        live.group.leave(consumer, self._loop.time(), grace=left, for_good=gone)

    def _forget(self, live: LiveGroup, consumer: MemberConsumer) -> None:
        if consumer in live.consumers:
            del live.consumers[consumer]
            live.unlimited.pop(consumer, None)
            live.identities[consumer.identity] -= 1
            if not live.identities[consumer.identity]:
                del live.identities[consumer.identity]

    def queue_moved(self, queue: Queue) -> None:
        """Handle a queue's move to another home: the members of the queue's groups are cancelled, and settle their
        messages.
        """
        for live in list(self._on_source.get((queue.vhost, queue.name), ())):
            if live.kind == "queue":
                for consumer in list(live.consumers):
                    self.leave(live, consumer)
                    consumer.replaced()

    def evict(self, live: LiveGroup, consumer: MemberConsumer) -> None:
        """End a consumer with overdue settlements."""
        # Scheduled first: an exception of the eviction must not lose the next step.
        self.soon(live)
        live.group.evict(consumer, self._loop.time())

    def end_member(self, key: Key, name: str, reason: str) -> bool:
        """End a member: return held messages to the queues, and cancel the consumer. Return True if the member existed.

        Args:
            reason: for the log.
        """
        live = self._groups.get(key)
        member = None if live is None else live.group.members.get(name)
        if live is None or member is None:
            return False
        self.soon(live)
        if member.session is None:
            live.group.remove(member, self._loop.time())
            return True
        live.reason = reason
        try:
            live.group.evict(member.session, self._loop.time())
        finally:
            live.reason = None
        return True

    def dismiss(self, live: LiveGroup, consumer: MemberConsumer) -> None:
        """Handle the eviction of a consumer: log it, and remove the consumer."""
        log.warning(
            "consumer group '%s' in vhost '%s': a member of connection %s is cancelled, as %s",
            *(live.name, live.vhost, consumer.connection_name, live.reason or "its deliveries are not settled"),
        )
        self._forget(live, consumer)
        self.soon(live)

    def soon(self, live: LiveGroup) -> None:
        """Schedule a group's due work after the current work."""
        if self._stopped or live in self._due:
            return
        if live in self._timers:
            self._timers.pop(live)[1].cancel()
        self._due[live] = None
        if self._slice is None:
            self._slice = self._loop.call_soon(self._take_slice)

    # --- the clock ---

    def _take_slice(self) -> None:
        """Do due work, group by group, until the time slice ends."""
        self._slice = None
        until = time.perf_counter() + SLICE
        with self._turns.turn():
            # Each group once: a group that is due again waits for the next slice.
            for _ in range(len(self._due)):
                live, _ = self._due.popitem(last=False)
                self._step(live, lambda: time.perf_counter() < until)
                if time.perf_counter() >= until:
                    break
        if self._due and self._slice is None:
            self._slice = self._loop.call_soon(self._take_slice)

    def _step(self, live: LiveGroup, more: Callable[[], bool]) -> None:
        try:
            at = self._do_due(live, more)
        except Exception:
            at = self._loop.time() + RETRY_INTERVAL
            if not live.failed:
                live.failed = True
                log.exception("consumer group '%s' in vhost '%s': a step failed; retry every %.1f s",
                              live.name, live.vhost, RETRY_INTERVAL)  # fmt: skip
        else:
            live.failed = False
        if self._stopped or live in self._due:
            return
        if at <= self._loop.time():
            self._due[live] = None
        elif at != state.NEVER:
            self._timers[live] = at, self._loop.call_at(at, self._ring, live)

    def _ring(self, live: LiveGroup) -> None:
        del self._timers[live]
        self.soon(live)

    def _do_due(self, live: LiveGroup, more: Callable[[], bool]) -> float:
        """Do due work. Return the time of the next due work."""
        now = self._loop.time()
        if self._groups.get(live.key) is not live:
            return state.NEVER  # the group has ended
        # Permissions come first: a reader without permission must not get partitions in this step.
        if live.to_check and not self._go_on(live, more):
            return now
        at = live.group.step(now, more)
        self._note_readers(live)
        if live.group.ended:
            return now if self._end(live, more) else state.NEVER
        if at <= now:
            return now
        if now >= live.looks_at:
            live.to_look_at.update(dict.fromkeys([*live.unbound, *live.refused, *self._waited_for(live)]))
            live.is_stale |= bool(live.exchanges)
        if live.to_check or live.to_look_at or live.is_stale or live.work is not None:
            if self._go_on(live, more):
                waits = live.refused or self._waited_for(live)
                interval = UNBOUND_INTERVAL if live.unbound else LOOK_INTERVAL if waits else state.NEVER
                live.looks_at = now + interval
            return now
        return min(at, live.looks_at)

    def _end(self, live: LiveGroup, more: Callable[[], bool] = lambda: True) -> bool:
        """End a group that has no members, and no sessions with messages of its queues. Return True if time was
        insufficient; until the end a member may join and continue the group."""
        if self._groups.get(live.key) is not live:
            return False  # the group has ended before, and a new one with the same key may have begun
        for queue in list(live.queues.values()):
            self._unshare(live, queue)
            # The group was the last consumer of the auto-delete queue.
            if queue.auto_delete and not queue.consumers and not queue.deleted:
                self._topology.propose(DeleteQueue(queue.vhost, queue.name, queue.id))
            if live.queues and not more():
                live.is_stale = True
                return True
        del self._groups[live.key]
        _drop(self._of_host, live.vhost, live)
        _drop(self._on_source, (live.vhost, live.source), live)
        for name in list(live.names):
            self._forget_name(live, name)
        return False

    # --- changes of definitions ---

    def follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Handle a change of definitions: a listener of the topology."""
        match change:
            case SetPermissions(vhost=vhost, user=user) | ClearPermissions(vhost=vhost, user=user):
                self._check_soon(Principal(user), vhost)
            case DeleteUser(user):
                self._remove_away(Principal(user))
            case DeleteVirtualHost(vhost):
                for live in self.all(vhost):
                    self._disband(live)
            case Bind(vhost=vhost, binding=binding) | Unbind(vhost=vhost, binding=binding):
                self._follow_binding(vhost, binding)
            case DeclareQueue(definition):
                self._look_soon(definition.vhost, definition.name)
            case DeleteQueue(vhost=vhost, name=name):
                self._look_soon(vhost, name)
            case DeclareExchange(definition):
                self._follow_exchange(definition.vhost, definition.name)
            case DeleteExchange(vhost=vhost, name=name):
                self._follow_exchange(vhost, name)
            case _ if not isinstance(change, OF_NO_QUEUE):
                where = getattr(change, "vhost", None)
                for live in list(self._groups.values()) if where is None else self.all(where):
                    live.is_stale = True
                    self.soon(live)

    def _check_soon(self, user: Principal, vhost: str) -> None:
        """Schedule a check of a user's permissions."""
        for live in self._of_user.get(user, ()):
            if live.vhost == vhost:
                live.to_check[GroupPrincipal.of(user)] = False
                self.soon(live)

    def _remove_away(self, user: Principal) -> None:
        """Handle a user's deletion: remove absent members. The connections of present members are closed."""
        for live in list(self._of_user.get(user, ())):
            reader = GroupPrincipal.of(user)
            for member in [one for one in live.group.members.values() if one.reader == reader and one.session is None]:
                live.group.remove(member, self._loop.time())
            self.soon(live)

    def _disband(self, live: LiveGroup) -> None:
        """Handle a virtual host's deletion: remove all members of its groups. The members' connections are closed."""
        for member in list(live.group.members.values()):
            if member.session is None:
                live.group.remove(member, self._loop.time())
            else:
                live.group.leave(member.session, self._loop.time(), for_good=True)
        self._note_readers(live)
        self._end(live)

    def _follow_binding(self, vhost: str, binding: Binding) -> None:
        host = self._topology.vhosts.get(vhost)
        for live in self._on_source.get((vhost, binding.source), ()):
            if live.kind != "exchange" or host is None:
                continue
            name = binding.destination
            if binding.kind == "exchange":
                live.is_stale = True
            else:
                declared = host.declared.get(name)
                bound = [] if declared is None else host.bindings_to(declared.destination)
                if any(one.source == live.source for one in bound):
                    live.bound[name] = None
                else:
                    live.bound.pop(name, None)
                live.to_look_at.update(dict.fromkeys([name, *live.unbound]))
            self.soon(live)

    def _follow_exchange(self, vhost: str, name: str) -> None:
        """Handle a declared or deleted exchange. If a group with members exists on the exchange's name, moved keys of
        the new exchange get ordering barriers.
        """
        host = self._topology.vhosts.get(vhost)
        for live in self._on_source.get((vhost, name), ()):
            exchange = None if host is None else host.exchanges.get(name)
            if live.kind == "exchange" and exchange is not None:
                exchange.ordered = True
            live.is_stale = True
            self.soon(live)

    def _look_soon(self, vhost: str, name: str) -> None:
        """Schedule a check of a queue by the queue's groups."""
        for live in {**self._with_queue.get((vhost, name), {}), **self._on_source.get((vhost, name), {})}:
            if live.kind == "queue" and live.source == name:
                live.is_stale = True
            live.to_look_at[name] = None
            self.soon(live)

    def _note_readers(self, live: LiveGroup) -> None:
        """Schedule checks of the permissions of new readers, and the removal of departed readers from ``barred``."""
        readers = live.group.readers.keys()
        if readers == live.readers:
            return
        for reader in readers ^ live.readers:
            live.to_check[reader] = False
        gone = {one.user for one in live.readers} - (users := {one.user for one in readers})
        for user in gone:
            _drop(self._of_user, user, live)
        for user in users:
            self._of_user.setdefault(user, {})[live] = None
        live.readers = set(readers)
        self.soon(live)

    # --- checks, in steps ---

    def _go_on(self, live: LiveGroup, more: Callable[[], bool]) -> bool:
        """Process scheduled checks. Return True if time sufficed."""
        if live.work is None:
            live.work = self._look(live)
        for _ in live.work:
            if not more():
                return False
        live.work = None
        return True

    def _look(self, live: LiveGroup, start: list[Field] | None = None, known: bool = True) -> Iterator[None]:
        """Check the recorded users, then the recorded queues.

        Args:
            start, known: see :meth:`StreamOffsets.admit`.
        """
        while (host := self._topology.vhosts.get(live.vhost)) is not None:
            if live.is_stale:
                live.is_stale = False
                self._look_around(live, host)
            elif live.to_check:
                reader = next(iter(live.to_check))
                live.to_check[reader] = True
                yield from self._check(live, reader)
                if live.to_check.get(reader):  # the permissions have not changed meanwhile
                    del live.to_check[reader]
            elif live.to_look_at:
                name, _ = live.to_look_at.popitem(last=False)
                self._look_at(live, host, name, start or [], known)
            else:
                break
            yield
        live.group.set_firsts(self._firsts(live), self._loop.time())

    def _look_around(self, live: LiveGroup, host: VirtualHost) -> None:
        """Find the queues to check."""
        live.bound = dict.fromkeys(self._names(live, host))
        found = {exchange.name for exchange in self._exchanges(live, host)}
        for name in live.exchanges - found:
            live.refused.pop(name, None)
        live.exchanges = found
        for name in found:
            self._refuse(live, name, "it is an exchange: messages that it routes to queues reach no member")
        names = dict.fromkeys([*live.bound, *live.names, *self._waited_for(live)])
        # Streams first: their start offset is decided within the first join.
        live.to_look_at.update(dict.fromkeys(name for name in names if self._is_stream(host, name)))
        live.to_look_at.update(names)

    def _is_stream(self, host: VirtualHost, name: str) -> bool:
        declared = host.declared.get(name)
        return declared is not None and declared.append_only

    def _check(self, live: LiveGroup, reader: GroupPrincipal) -> Iterator[None]:
        """Update the set of queues that a principal may read. Without any such queue, end the principal's members."""
        is_member, readable = reader in live.group.readers, False
        names = list(live.bound | live.names)
        for name in names:
            if readable and name not in live.names:
                continue  # _note_name checks the permissions of all readers
            allowed = not is_member or self._may_read(reader, live.vhost, name)
            readable |= allowed
            barred = live.barred.get(name, frozenset())
            if allowed == (reader in barred):
                self._bar(live, name, barred - {reader} if allowed else barred | {reader})
            yield
        if not names:
            readable = self._may_read(reader, live.vhost, live.source)
        if is_member and not readable:
            for member in [one.name for one in live.group.members.values() if one.reader == reader]:
                self.end_member(live.key, member, f"user '{reader.user}' may no longer read any of its queues")

    def _may_read(self, reader: GroupPrincipal, vhost: str, name: str) -> bool:
        return self._authorization.allows(reader.user, vhost, "read", name)

    def _bar(self, live: LiveGroup, name: str, barred: frozenset[Hashable]) -> None:
        """Exclude the members of the given principals from a queue."""
        if barred:
            live.barred[name] = barred
        else:
            live.barred.pop(name, None)
        queue = live.names.get(name)
        if queue is not None:
            live.group.bar(queue.id, barred, self._loop.time())
        live.to_look_at[name] = None

    def _look_at(self, live: LiveGroup, host: VirtualHost, name: str, start: list[Field], known: bool) -> None:
        """Share a queue, or stop sharing."""
        declared, shared = host.declared.get(name), live.names.get(name)
        queue = None if declared is None else declared.contents
        if shared is not None and shared is not queue:
            self._unshare(live, shared)
            shared = None
        if declared is None or (name not in live.bound and queue is None):
            self._forget_name(live, name)
            return
        self._note_name(live, declared)
        if queue is None:
            live.remote[name] = _unit_count(declared) if declared.definition.home < self._topology.home else 0
            return
        live.remote.pop(name, None)
        problem = self._problem(live, queue)
        if name not in live.bound:  # other queues may wait until this one is empty: the group still consumes it
            if queue.deleted or queue.moved or not _left(queue, live) or (shared is None and problem is not None):
                if shared is not None:
                    self._unshare(live, queue)
                self._forget_name(live, name)
            else:
                live.unbound.add(name)
                self._share(live, queue)
            return
        live.unbound.discard(name)
        if problem is None and shared is None:
            if len(live.group.places) + _unit_count(declared) > MAX_UNITS:
                problem = f"the group shares {MAX_UNITS} queues and slots at most"
            else:
                problem = _not_admitted(live, queue, start, known)
        if problem is None:
            live.refused.pop(name, None)
            self._share(live, queue)
        else:
            if shared is not None:
                self._unshare(live, queue)
            self._refuse(live, name, problem)

    def _refuse(self, live: LiveGroup, name: str, problem: str) -> None:
        if name not in live.refused:
            log.warning("consumer group '%s' in vhost '%s' leaves out '%s': %s", live.name, live.vhost, name, problem)
        live.refused[name] = problem

    def _note_name(self, live: LiveGroup, declared: DeclaredQueue) -> None:
        """Add a queue to the queues known to the group."""
        name = declared.name
        if name in live.names:
            return
        live.names[name] = None
        self._with_queue.setdefault((live.vhost, name), {})[live] = None
        barred = [one for one in live.group.readers if not self._may_read(one, live.vhost, name)]
        if barred:
            live.barred[name] = frozenset(barred)
            if len(barred) < len(live.group.readers):
                log.warning("consumer group '%s' in vhost '%s': members of user '%s' get no messages of queue '%s', "
                            "which the user may not read", live.name, live.vhost, barred[0].user, name)  # fmt: skip
        if (
            declared.exclusive
            or declared.append_only
            or declared.contents is None
            or (not declared.contents.takes_global_prefetch)
        ):
            live.special.add(name)

    def _forget_name(self, live: LiveGroup, name: str) -> None:
        """Remove a queue from the queues known to the group."""
        live.names.pop(name, None)
        live.barred.pop(name, None)
        live.remote.pop(name, None)
        live.special.discard(name)
        live.unbound.discard(name)
        if name not in live.exchanges:
            live.refused.pop(name, None)
        _drop(self._with_queue, (live.vhost, name), live)

    def _share(self, live: LiveGroup, queue: Queue) -> None:
        if live.names.get(queue.name) is not queue:
            _claim(queue, live)
            live.names[queue.name] = live.queues[queue.id] = queue
            barred = live.barred.get(queue.name, frozenset())
            live.group.set_queue(_units(queue), barred, self._loop.time())

    def _unshare(self, live: LiveGroup, queue: Queue) -> None:
        # Members stop before other consumers may take messages from the queue.
        live.group.forget_queue(queue.id, self._loop.time())
        live.queues.pop(queue.id, None)
        live.names[queue.name] = None
        _release(queue, live)

    def _firsts(self, live: LiveGroup) -> dict[frozenset[Hashable], int] | None:
        """Return the number of partitions at homes with a lower number, by barred principals; None if no other home has
        partitions.
        """
        if not live.remote:
            return None
        firsts: Counter[frozenset[Hashable]] = Counter()
        for name, units in live.remote.items():
            firsts[live.barred.get(name, frozenset())] += units
        return dict(firsts)

    def _waited_for(self, live: LiveGroup) -> list[str]:
        """Return the local queues with markers of the exchange's ring changes: other queues wait for their older
        messages.
        """
        if live.kind != "exchange":
            return []
        return [queue.name for queue in self._topology.fences.sources(live.vhost, live.source)]

    def _has_begun(self, live: LiveGroup, host: VirtualHost) -> bool:
        """Return True if a group has an offset in any local stream of its source."""
        queues = (host.queues[name] for name in self._names(live, host) if name in host.queues)
        return any(queue.offsets is not None and queue.offsets.get(live.name) for queue in queues)

    def _names(self, live: LiveGroup, host: VirtualHost) -> Iterator[str]:
        """Yield the names of the queues to be shared by a group.

        Raises:
            PreconditionFailed: an exchange is bound to the group's exchange.
        """
        if live.kind == "queue":
            if live.source in host.declared:
                yield live.source
            return
        exchange = host.exchanges.get(live.source)
        if exchange is None:
            return
        other = next(self._exchanges(live, host), None)
        if other is not None and live.key not in self._groups:
            raise PreconditionFailed(
                f"exchange '{live.source}' in vhost '{live.vhost}' has no consumer groups: "
                f"it is bound to exchange '{other.name}'"
            )
        yield from dict.fromkeys(one.destination for one in exchange.bindings if one.kind == "queue")

    def _exchanges(self, live: LiveGroup, host: VirtualHost | None) -> Iterator[Exchange]:
        """Yield the exchanges bound to a group's exchange."""
        source = host.exchanges.get(live.source) if host is not None and live.kind == "exchange" else None
        if source is not None:
            yield from (one for one in source.bindings.values() if isinstance(one, Exchange))

    def _problem(self, live: LiveGroup, queue: Queue) -> str | None:
        """Return a reason why a group cannot share a queue at present; None if sharing is possible."""
        try:
            _require_shareable(queue, live, self._reader_of)
            readers = live.group.readers.keys()
            if readers and readers <= live.barred.get(queue.name, frozenset()):
                self._authorization.require(next(iter(readers)).user, live.vhost, "read", "queue", queue.name)
        except AMQPError as error:
            return error.text
        if queue.exclusive and live.identities.keys() - {queue.owner}:
            return "it is exclusive to another connection"
        if queue.offsets is not None and live.unlimited:
            name = next(iter(live.unlimited)).connection_name
            return f"it is a stream, and a member of connection {name} has no prefetch"
        return None


K = TypeVar("K", bound=Hashable)


def _drop(index: dict[K, dict[LiveGroup, None]], key: K, live: LiveGroup) -> None:
    """Remove a group from an index."""
    groups = index.get(key)
    if groups is not None:
        groups.pop(live, None)
        if not groups:
            del index[key]


def _require_shareable(queue: Queue, live: LiveGroup, reader_of: Callable[[Queue], object | None]) -> None:
    """Refuse a queue unsuitable for sharing by a group.

    Raises:
        AccessRefused: consumers or readers outside the group take messages from the queue.
        ResourceLocked: another group takes messages from the queue.
        PreconditionFailed: the queue keeps no order, or the stream has its maximum number of groups.
    """
    if queue.consumer_group is live:
        return
    queue.require_unshared()
    subject = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    if queue.offsets is not None:
        other = queue.offsets.members.get(live.name)
        if isinstance(other, LiveGroup) and other is not live:
            raise ResourceLocked(
                f"{subject} is consumed by members of consumer group '{live.name}' of {other.kind} '{other.source}'"
            )
        queue.offsets.require_place(live.name)
        return
    if (reason := queue.unshareable()) is not None:
        raise PreconditionFailed(f"{subject} has no consumer groups: {reason}")
    if queue.consumers:
        raise AccessRefused(f"{subject} has consumers outside consumer group '{live.name}'")
    if (reader := reader_of(queue)) is not None:
        raise AccessRefused(f"{subject} is read by {reader}")


def _unit_count(declared: DeclaredQueue) -> int:
    slots = declared.definition.arguments.get("x-slots")
    return 1 if slots is None else int(slots.value)


def _units(queue: Queue) -> tuple[Partition, ...]:
    """Return the partitions of a queue: its slots, or the whole queue."""
    if queue.slots is None:
        return (Partition(queue.name, queue.id),)
    return tuple(Partition(queue.name, queue.id, slot) for slot in range(queue.slots.slots))


def _left(queue: Queue, live: LiveGroup) -> int:
    """Return the number of a queue's messages that the group has not settled."""
    if queue.offsets is None:
        return queue.message_count
    found = queue.offsets.get(live.name)
    return 0 if found is None else found.ready(queue.next_seq) + found.unacknowledged


def _not_admitted(live: LiveGroup, queue: Queue, arguments: list[Field], known: bool) -> str | None:
    """Continue a group in a queue with stored offsets. Return a reason for refusal; None if admitted.

    Args:
        arguments, known: see :meth:`StreamOffsets.admit`.
    """
    if queue.offsets is not None:
        try:
            queue.offsets.admit(live, arguments, known=known)
        except AMQPError as error:
            return error.text
    return None


def _claim(queue: Queue, live: LiveGroup) -> None:
    """Claim a queue for exclusive consumption by the group, except a queue with stored offsets."""
    if queue.offsets is not None:
        return
    queue.consumer_group = live
    # No slot delivers before a member owns the slot.
    if queue.slots is not None:
        for slot in range(queue.slots.slots):
            queue.slots.give(slot, None)


def _release(queue: Queue, live: LiveGroup) -> None:
    """Release a queue: other consumers may take messages from it."""
    if queue.offsets is not None:
        queue.offsets.dismiss(live)
        return
    queue.consumer_group = None
    if queue.slots is not None and not queue.deleted:
        for slot in range(queue.slots.slots):
            queue.slots.give(slot, queue.slots.share)
