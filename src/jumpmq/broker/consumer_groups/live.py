"""The consumer groups of a broker: which queues a group has, and the clock of its members."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from jumpmq.amqp.errors import AccessRefused, AMQPError, NotFound, PreconditionFailed, ResourceLocked
from jumpmq.amqp.fields import Field
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.consumer_groups import group as state
from jumpmq.broker.consumer_groups.group import ConsumerGroup, Unit
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authorization import Authorization
from jumpmq.queues import Queue
from jumpmq.topology import Asker, Change, Exchange, Topology, VirtualHost
from jumpmq.topology.bindings import Kind
from jumpmq.topology.changes import DeclareExchange, DeleteQueue
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.exchanges import HASH_EXCHANGES

log = logging.getLogger(__name__)

FOLLOWED_AFTER = 0.02
"""Seconds after a change of definitions, with which others may come, until groups take notice."""

LOOK_INTERVAL = 1.0
"""Seconds between looks at queues that are unbound and not yet empty, and at those that others consume from."""

RETRY_INTERVAL = 1.0
"""Seconds after a step that failed, until it is tried again."""

MAX_UNITS = 16_384
"""Queues and slots that one group shares: all of them are gone through where members come and go."""

Key = tuple[str, Kind, str, str]
"""Of a group: virtual host, kind and name of what it consumes, and its own name."""


class Consumer(state.Session, Protocol):
    """A member's consumer: a session of a client.

    Attributes:
        user: whose it is.
        identity, connection_name: of its connection.
        prefetch: unacknowledged deliveries that it may hold, 0 is any number.
        arguments: those of ``basic.consume``.
    """

    prefetch: int
    arguments: list[Field]

    def replaced(self) -> None:
        """It is over, and settles what it has."""

    @property
    def user(self) -> Principal: ...

    @property
    def identity(self) -> str: ...

    @property
    def connection_name(self) -> str: ...


@dataclass(eq=False)
class LiveGroup:
    """A group, and what it consumes.

    Attributes:
        vhost: the virtual host.
        kind, source: of what it consumes, "exchange" or "queue", and its name.
        group: who has what.
        queues: those that are shared, by unit.
        refused: queues that are not shared, by name, and why.
        unbound: names of queues that no binding leads to any more, and that are not empty yet.
        consumers: the sessions of the members.
        stale: whether definitions have changed since its queues were looked for.
        failed: whether its last step failed.
    """

    vhost: str
    kind: Kind
    source: str
    group: ConsumerGroup
    queues: dict[Unit, Queue] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unbound: set[str] = field(default_factory=set)
    consumers: list[Consumer] = field(default_factory=list)
    stale: bool = False
    failed: bool = False

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    @property
    def key(self) -> Key:
        """What tells it from other groups."""
        return self.vhost, self.kind, self.source, self.name


class ConsumerGroups:
    """The groups of a broker that have members, or had until a moment ago.

    Attributes:
        reader_of: the reader group that takes messages from a queue; None where there is none.
    """

    def __init__(self, topology: Topology, turns: Turns, authorization: Authorization) -> None:
        self.reader_of: Callable[[Queue], object | None] = lambda queue: None
        self._topology = topology
        self._turns = turns
        self._authorization = authorization
        self._groups: dict[Key, LiveGroup] = {}
        self._timers: dict[LiveGroup, tuple[float, asyncio.Handle]] = {}  # and when they end
        self._loop = asyncio.get_running_loop()
        self._follow_timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def all(self, vhost: str) -> list[LiveGroup]:
        """The groups of a virtual host."""
        return [one for one in self._groups.values() if one.vhost == vhost]

    def stop(self) -> None:
        """Do nothing more by itself."""
        self._stopped = True
        if self._follow_timer is not None:
            self._follow_timer.cancel()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- members ---

    def find(self, host: VirtualHost, user: Principal, source: str, name: str) -> LiveGroup:
        """The group of this name on a queue or exchange; a new one where there is none.

        Raises:
            NotFound: neither a queue nor an exchange is called so.
            PreconditionFailed: it is an exchange that does not spread messages by their keys.
            AccessRefused: one of these, and the user may not read a queue of this name.
        """
        kind: Kind = "queue" if source in host.declared else "exchange"
        if kind == "exchange":
            exchange = host.exchanges.get(source) if source else None
            if not isinstance(exchange, HASH_EXCHANGES) and (exchange is None or host.sharding(exchange) is None):
                self._authorization.require(user, host.name, "read", "queue", source)
            if exchange is None:
                raise NotFound(f"no queue '{source}' in vhost '{host.name}'")
            if not isinstance(exchange, HASH_EXCHANGES) and host.sharding(exchange) is None:
                raise PreconditionFailed(
                    f"exchange '{source}' in vhost '{host.name}' of type '{exchange.type}' has no consumer groups: "
                    "it is neither a hash exchange nor sharded"
                )
        key = host.name, kind, source, name
        return self._groups.get(key) or LiveGroup(*key[:3], ConsumerGroup(name))

    def require(self, live: LiveGroup, host: VirtualHost, user: Principal, identity: str) -> None:
        """Refuse a member that cannot share what the group consumes.

        Raises:
            AccessRefused: the user may not read one of the queues, or others consume from one.
            ResourceLocked: one is another connection's.
            PreconditionFailed: a queue, or the exchange, is none that a group can share.
        """
        begun, units = live.key in self._groups, 0
        for name in self._names(live, host):
            if begun and name in live.refused:
                continue
            self._authorization.require(user, host.name, "read", "queue", name)
            declared = host.declared_queue(name, identity)
            if not begun:
                if declared.contents is not None:
                    _require_shareable(declared.contents, live, self.reader_of)
                units += _unit_count(declared)
        if units > MAX_UNITS:
            raise PreconditionFailed(
                f"consumer group '{live.name}' would share {units} queues and slots, more than {MAX_UNITS}"
            )
        if not units and not live.queues and not any(self._names(live, host)):
            self._authorization.require(user, host.name, "read", "queue", live.source)

    def queues(self, live: LiveGroup, host: VirtualHost) -> list[Queue]:
        """The queues that a group shares, or is to share once it has a member."""
        return [host.queues[name] for name in self._names(live, host) if name in host.queues]

    def join(
        self, live: LiveGroup, host: VirtualHost, consumer: Consumer, member: str, weight: int, grace: float
    ) -> Consumer | None:
        """A member has come that :meth:`require` admits. Returns its consumer until now, if it had one, which is fed no
        more.

        Args:
            live: what :meth:`find` has returned in the same turn; until a member joins, others may make such a group.
        """
        assert self._groups.get(live.key, live) is live, "a group has two sets of members"
        self._groups[live.key] = live
        if live.kind == "exchange":
            host.exchanges[live.source].ordered = True
        live.consumers.append(consumer)
        session = live.group.join(consumer, member, weight, grace, self._loop.time())
        replaced = next((one for one in live.consumers if one is session), None)
        if replaced is not None:
            live.consumers.remove(replaced)
        self.soon(live)
        live.stale = True
        self._look(live, host, consumer if len(live.consumers) == 1 else None)
        return replaced

    def leave(self, live: LiveGroup, consumer: Consumer) -> None:
        """A member's consumer is over: it was cancelled, or its channel is closed."""
        if consumer in live.consumers:
            live.consumers.remove(consumer)
        self.soon(live)
        live.group.leave(consumer, self._loop.time())

    def queue_moved(self, queue: Queue) -> None:
        """A queue is at another home now: the members of its groups are cancelled, and settle what they have."""
        for live in [one for one in self.all(queue.vhost) if one.kind == "queue" and one.source == queue.name]:
            for consumer in list(live.consumers):
                self.leave(live, consumer)
                consumer.replaced()

    def evict(self, live: LiveGroup, consumer: Consumer) -> None:
        """End a consumer that does not settle what it has."""
        self.soon(live)
        live.group.evict(consumer, self._loop.time())

    def dismiss(self, live: LiveGroup, consumer: Consumer) -> None:
        """A consumer is being evicted."""
        log.warning(
            "consumer group '%s' in vhost '%s': a member of connection %s is cancelled, as it settles no deliveries",
            *(live.name, live.vhost, consumer.connection_name),
        )
        if consumer in live.consumers:
            live.consumers.remove(consumer)
        self.soon(live)

    def soon(self, live: LiveGroup) -> None:
        """Have a group do what is due, when the current work is done."""
        self._set_timer(live, 0.0)

    # --- the clock ---

    def _set_timer(self, live: LiveGroup, at: float) -> None:
        if self._stopped:
            return
        if live in self._timers:
            set_for, timer = self._timers[live]
            if set_for <= at:
                return
            timer.cancel()
        self._timers[live] = at, self._loop.call_at(at, self._step, live)

    def _step(self, live: LiveGroup) -> None:
        del self._timers[live]
        with self._turns.turn():
            try:
                at = self._do_due(live)
            except Exception:
                at = self._loop.time() + RETRY_INTERVAL
                if not live.failed:
                    live.failed = True
                    log.exception("consumer group '%s' in vhost '%s': a step failed; it is tried again every %.1f s",
                                  live.name, live.vhost, RETRY_INTERVAL)  # fmt: skip
            else:
                live.failed = False
        if at != state.NEVER:
            self._set_timer(live, at)

    def _do_due(self, live: LiveGroup) -> float:
        """Do what is due. Returns when there is something to do next."""
        now = self._loop.time()
        if live.stale or live.unbound or live.refused:
            self._look(live, self._topology.vhosts.get(live.vhost))
        at = live.group.step(now)
        if live.group.ended:
            self._end(live)
            return state.NEVER
        return min(at, now + LOOK_INTERVAL) if live.unbound or live.refused else at

    def _end(self, live: LiveGroup) -> None:
        if self._groups.get(live.key) is live:  # else it has ended before, and another of this key has begun
            del self._groups[live.key]
        for queue in set(live.queues.values()):
            _release(queue, live)
            if queue.auto_delete and not queue.consumers and not queue.deleted:
                self._topology.propose(DeleteQueue(queue.vhost, queue.name, queue.id))
        live.queues.clear()

    # --- queues ---

    def follow(self, change: Change, asker: Asker) -> None:
        """Definitions have changed."""
        if isinstance(change, DeclareExchange):
            self._keep_ordered(change.definition.vhost, change.definition.name)
        if self._groups and self._follow_timer is None:
            self._follow_timer = self._loop.call_later(FOLLOWED_AFTER, self._follow)

    def _keep_ordered(self, vhost: str, name: str) -> None:
        """An exchange was declared, perhaps anew under members of a group: keys that move wait there, too."""
        if any(live.kind == "exchange" and live.source == name for live in self.all(vhost)):
            exchange = self._topology.vhosts[vhost].exchanges.get(name)
            if exchange is not None:
                exchange.ordered = True

    def _follow(self) -> None:
        self._follow_timer = None
        for live in self._groups.values():
            live.stale = True
            self.soon(live)

    def _look(self, live: LiveGroup, host: VirtualHost | None, first_member: Consumer | None = None) -> None:
        """Find out which queues a group shares now.

        Args:
            first_member: says where the group begins in queues that keep what is settled, if it has not begun yet.
        """
        names = list(self._names(live, host)) if host is not None else []
        bound = set(names)
        shared = set(live.queues.values())
        waited_for = self._topology.fences.sources(live.vhost, live.source) if live.kind == "exchange" else set()
        unbound = {  # if nobody consumed those that others wait for, they would wait without end
            queue.name: queue
            for queue in shared | waited_for
            if queue.name not in bound and not queue.deleted and not queue.moved and _left(queue, live)
            if queue in shared or self._problem(live, queue) is None
        }
        live.unbound = set(unbound)
        queues: dict[Unit, Queue] = {}
        refused: dict[str, str] = {}
        first: int | None = None  # how many units the homes before this one have
        arguments = [] if first_member is None else first_member.arguments
        known = first_member is None or (host is not None and self._has_begun(live, host))
        for name in names:
            declared = host.declared.get(name) if host is not None else None
            if declared is None:
                continue
            queue = declared.contents
            if queue is None:
                before = declared.definition.home < self._topology.home
                first = (first or 0) + before * _unit_count(declared)
                continue
            problem = self._problem(live, queue)
            if problem is None and len(queues) + _unit_count(declared) > MAX_UNITS:
                problem = f"the group shares {MAX_UNITS} queues and slots at most"
            if problem is None:
                problem = _not_admitted(live, queue, arguments, known)
            if problem is None:
                queues.update(dict.fromkeys(_units(queue), queue))
            else:
                refused[name] = problem
        for exchange in self._exchanges(live, host):
            refused[exchange.name] = "it is an exchange: what goes by it to queues comes to no member"
        for name in refused.keys() - live.refused.keys():
            log.warning("consumer group '%s' in vhost '%s' leaves out '%s': %s",
                        live.name, live.vhost, name, refused[name])  # fmt: skip
        for queue in unbound.values():
            queues.update(dict.fromkeys(_units(queue), queue))
        left = set(live.queues.values()) - set(queues.values())
        for queue in set(queues.values()) - set(live.queues.values()):
            _claim(queue, live)
        live.group.set_units(queues, self._loop.time(), first)
        live.queues, live.refused = queues, refused
        for queue in left:
            _release(queue, live)
        live.stale = False

    def _has_begun(self, live: LiveGroup, host: VirtualHost) -> bool:
        """Whether a group has an offset in one of its streams here."""
        return any(queue.offsets is not None and queue.offsets.get(live.name) for queue in self.queues(live, host))

    def _names(self, live: LiveGroup, host: VirtualHost) -> Iterator[str]:
        """Names of the queues that a group is to share.

        Raises:
            PreconditionFailed: some are bound through another exchange.
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
        """Exchanges that a group's own is bound to."""
        source = host.exchanges.get(live.source) if host is not None and live.kind == "exchange" else None
        if source is not None:
            yield from (one for one in source.bindings.values() if isinstance(one, Exchange))

    def _problem(self, live: LiveGroup, queue: Queue) -> str | None:
        """Why a group cannot share a queue now; None if it can."""
        try:
            _require_shareable(queue, live, self.reader_of)
            for consumer in live.consumers:
                self._authorization.require(consumer.user, live.vhost, "read", "queue", queue.name)
                if queue.exclusive and queue.owner != consumer.identity:
                    return "it is exclusive to another connection"
                if queue.offsets is not None and not consumer.prefetch:
                    return f"it is a stream, and a member of connection {consumer.connection_name} has no prefetch"
        except AMQPError as error:
            return error.text
        return None


def _require_shareable(queue: Queue, live: LiveGroup, reader_of: Callable[[Queue], object | None]) -> None:
    """Refuse a queue that a group cannot share.

    Raises:
        AccessRefused: consumers or readers outside the group take messages from it.
        ResourceLocked: another group does.
        PreconditionFailed: it has no order to keep, or as many groups as it may have.
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
        queue.require_place(live.name)
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


def _units(queue: Queue) -> list[Unit]:
    """What of a queue can be at different members: its slots, or all of it."""
    if queue.slots is None:
        return [Unit(queue.name, queue.id)]
    return [Unit(queue.name, queue.id, slot) for slot in range(queue.slots.slots)]


def _left(queue: Queue, live: LiveGroup) -> int:
    """How many messages of a queue the group has not settled, and others may have none of."""
    if queue.offsets is None:
        return queue.message_count
    found = queue.offsets.get(live.name)
    return 0 if found is None else found.ready(queue.next_seq) + found.unacknowledged


def _not_admitted(live: LiveGroup, queue: Queue, arguments: list[Field], known: bool) -> str | None:
    """Have a group go on in a queue that keeps what is settled. Returns why it cannot; None if it can.

    Args:
        arguments, known: see :meth:`Queue.admit_group`.
    """
    if queue.offsets is not None:
        try:
            queue.admit_group(live, arguments, known=known)
        except AMQPError as error:
            return error.text
    return None


def _claim(queue: Queue, live: LiveGroup) -> None:
    """From now on only this group takes messages from the queue, unless it keeps what is settled."""
    if queue.offsets is not None:
        return
    queue.consumer_group = live
    if queue.slots is not None:
        for slot in range(queue.slots.slots):
            queue.slots.give(slot, None)


def _release(queue: Queue, live: LiveGroup) -> None:
    """From now on anyone may take messages from the queue."""
    if queue.offsets is not None:
        queue.dismiss_group(live)
        return
    queue.consumer_group = None
    if queue.slots is not None and not queue.deleted:
        for slot in range(queue.slots.slots):
            queue.slots.give(slot, queue.slots.share)
