"""Ring changes that queues wait for (:mod:`jumpmq.queues.fences`), and their records.

For an exchange whose keys stay in order, a change of the ring records: the previous placement of keys; a marker at each
non-empty queue that may have lost keys; and the queues that may have got keys, each with the first number that may
wait. A queue may get keys that earlier came from a third queue, and therefore also waits for earlier open changes. All
records are in the commit of the change. A marker's record is deleted when no message is left before it, the other
records with the last marker.

If there are other homes (:class:`Others`), each home notes the change for its own queues. It does so once all homes
route by the new ring, and all messages routed by the old ring have arrived; until then nothing is published by the new
ring. The home of a marker's queue reports the number of messages before the marker.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues import Queue, clock
from jumpmq.queues.fences import FenceFigures
from jumpmq.queues.marks import Mark
from jumpmq.store.kinds import FENCE_MARK, FENCE_QUEUE, FENCE_RING
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import home_of
from jumpmq.topology.exchanges import HASH_EXCHANGES, Exchange
from jumpmq.topology.exchanges.placement import Placement, restored
from jumpmq.topology.records import RecordKeeper, key_of
from jumpmq.topology.vhost import Before, VirtualHost

log = logging.getLogger(__name__)

PLACE_BITS = 16
"""Bits of a ring change's number for its index within the change of definitions."""

MAX_OPEN = 64
"""Maximum number of open ring changes per exchange. Open changes keep a ring; keys moved by further changes are not
held back.
"""

LOOK_INTERVAL = 1.0
"""Seconds between checks for markers that were passed unnoticed, because damaged messages have left their queue."""


@dataclass(eq=False)
class RingChange:
    """A change of an exchange's ring; see :class:`jumpmq.queues.fences.FencingChange`.

    Attributes:
        vhost: virtual host of the exchange.
        number, exchange, since, marks: as in ``FencingChange``.
        placement: previous placement of keys.
        is_fed: tells whether the exchange gets messages from other exchanges.
        old_owners: ids and names of the queues that may have lost keys, by their names in the placement.
        new_names: names, in the new placement, of destinations that may have got keys.
        sources: queues of local markers, by their names in the placement.
        new_owners: waiting queues, with their names in the previous placement.
    """

    vhost: str
    exchange: str
    number: int
    since: float
    placement: Placement
    is_fed: Callable[[], bool]
    old_owners: dict[str, tuple[int, str]]
    new_names: list[str]
    marks: dict[str, Mark] = field(default_factory=dict)
    sources: dict[str, Queue] = field(default_factory=dict)
    new_owners: dict[Queue, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return self.placement.names

    def places(self, messages: list[Message]) -> list[int]:
        return self.placement.places(messages)

    def place(self, key: bytes) -> int:
        return self.placement.place(key)

    def may_pass(self, message: Message) -> bool:
        name = message.exchange
        return name == self.exchange or (bool(name) and self.is_fed())

    def key(self, *parts: Any) -> str:
        """Return the key of a record about the change."""
        return key_of(self.vhost, self.exchange, self.number, *parts)


class MarkName(NamedTuple):
    """Identifies an ordering marker: ring change and source queue."""

    vhost: str
    exchange: str
    number: int
    name: str


class Others(Protocol):
    """Other homes, routing by rings of their own."""

    def changed(self, number: int) -> None:
        """Report that this change of definitions has changed the bindings of a hash exchange here."""

    def wait(self, number: int) -> None:
        """Hold back publishing until all homes have applied this change; then call :meth:`Fences.note`."""

    def ask(self, home: int, marks: list[MarkName]) -> None:
        """Request the number of messages before markers of another home; the answer comes by :meth:`Fences.tell`."""

    def ended(self, mark: MarkName) -> None:
        """Notify other homes that no message is left before a marker here."""


class NoOthers:
    """No other homes: the next step follows at once."""

    def changed(self, number: int) -> None:
        pass

    def wait(self, number: int) -> None:
        raise AssertionError("a change without other homes waits for none")

    def ask(self, home: int, marks: list[MarkName]) -> None:
        pass

    def ended(self, mark: MarkName) -> None:
        pass


NO_OTHERS = NoOthers()


class FencedTopology(Protocol):
    """The definitions of a broker, as far as ring changes are concerned; see
    :class:`~jumpmq.topology.state.State`.
    """

    home: int
    homes: dict[int, str]
    vhosts: dict[str, VirtualHost]
    applied: int
    deciding: int
    revision: int


class Fences:
    """Ring changes awaited by queues.

    Args:
        topology: the definitions.
        journal: keeps the records; None for no records.

    Attributes:
        is_restoring: True while bindings are restored: no key moves.
    """

    def __init__(self, topology: FencedTopology, journal: RecordKeeper | None) -> None:
        self._others: Others = NO_OTHERS  # the other homes, once they are served
        self.is_restoring = False
        self._topology = topology
        self._journal = journal
        self._coming: list[RingChange] = []  # changes not applied by all homes yet
        self._open: dict[tuple[str, str], list[RingChange]] = {}  # by virtual host and exchange
        self._last: dict[tuple[str, str], int] = {}  # number of the last change, by exchange
        # by exchange: True if other exchanges feed it, with the revision of the result
        self._fed: dict[tuple[str, str], tuple[int, bool]] = {}
        self._looked_at = 0.0

    def serve(self, others: Others) -> None:
        """Ask the other homes, and report changes to them, from now on."""
        self._others = others

    # --- changes ---

    def before(self, exchange: Exchange) -> Before | None:
        """Return the state before a change of an exchange's bindings; None if the change cannot disturb the order.
        Call this before the change.
        """
        if not exchange.ordered or self.is_restoring:
            return None
        destinations = exchange.placed()
        if (
            not self._is_shared
            and (exchange.vhost, exchange.name) not in self._open
            # Without messages in any queue of the ring, no later message of a key can overtake an earlier one.
            and not any(isinstance(one, Queue) and one.message_count for one in destinations.values())
        ):
            return None
        placement = exchange.placement()
        return None if placement is None else Before(placement, destinations)

    @property
    def _is_shared(self) -> bool:
        """True if other homes exist, with possible messages even when this home has none."""
        return len(self._topology.homes) > 1

    def after(self, exchange: Exchange, before: Before) -> None:
        """Handle changed bindings, within the current event-loop iteration."""
        placement = exchange.placement()
        assert placement is not None
        old_names, new_names = before.placement.moved(placement)
        if not old_names:
            return
        number = self._number(exchange)
        queues = {name: before.destinations[name] for name in sorted(old_names) if name in before.destinations}
        owners = {name: (one.id, one.name) for name, one in queues.items() if isinstance(one, Queue | DeclaredQueue)}
        change = self._made(
            exchange.vhost, exchange.name, number, time.time(), before.placement, owners, sorted(new_names)
        )
        if self._others is NO_OTHERS:
            self._note(change)
            return
        # Recorded in the commit of the change: after a crash, the change continues to wait for the other homes.
        self._put_ring(change, is_coming=True)
        self._coming.append(change)
        self._others.wait(self._topology.deciding)

    def passed(self, exchange: Exchange) -> None:
        """Handle changed bindings that cannot disturb the order: moved keys continue at once."""
        if not self.is_restoring:
            for queue in exchange.placed().values():
                if isinstance(queue, Queue) and queue.consumers:
                    queue.renew_owners()

    def changed(self, exchange: Exchange) -> None:
        """Handle changed bindings of an exchange, also of an unordered one: other homes rely on the notification."""
        if isinstance(exchange, HASH_EXCHANGES):
            self._others.changed(self._topology.deciding)

    def _number(self, exchange: Exchange) -> int:
        """Return the number of a ring change: number of the change of definitions, equal in all homes, and an index."""
        where = exchange.vhost, exchange.name
        number = max(self._topology.deciding << PLACE_BITS, self._last.get(where, 0) + 1)
        self._last[where] = number
        return number

    def note(self, upto: int) -> None:
        """Note that all homes have applied the changes of definitions up to ``upto``."""
        noted = [change for change in self._coming if change.number >> PLACE_BITS <= upto]
        self._coming = self._coming[len(noted) :]
        for change in noted:
            self._note(change)

    def _note(self, change: RingChange) -> None:
        where = change.vhost, change.exchange
        changes = self._open.setdefault(where, [])
        if len(changes) < MAX_OPEN:
            # Each open change keeps a whole ring in memory, so their number has a limit.
            self._mark(change)
        else:
            log.warning(
                "exchange '%s' in vhost '%s' has changed %d times while queues wait for messages of keys that moved: "
                "keys moved by this change do not wait", change.exchange, change.vhost, MAX_OPEN
            )  # fmt: skip
        if change.marks:
            changes.append(change)
            self._put_ring(change)
            for name in change.marks:
                self._put_mark(change, name, [])
        else:
            self._delete(change, FENCE_RING)
        exchange = self._exchange(change)
        now = {} if exchange is None else exchange.placed()
        receiving = [(queue, name) for name in change.new_names if isinstance(queue := now.get(name), Queue)]
        for queue, name in receiving:
            # A key may have come to the queue's predecessor by an earlier change: all open changes hold it back.
            for one in changes:
                self._attach(one, queue, name)
            queue.renew_owners()
        if not changes:
            del self._open[where]

    def _mark(self, change: RingChange) -> None:
        """Place markers in the queues that may have lost keys."""
        for name, (number, queue_name) in change.old_owners.items():
            ended = partial(self._ended, change, name)
            declared = self._declared(change.vhost, queue_name, number)
            if declared is None:
                continue
            # The queue is at another home, which counts the messages; 1 stands for an unknown count until its answer.
            if declared.contents is None:
                change.marks[name] = Mark(queue_name, number, 0, 1, ended)
            elif (barriers := declared.contents.barriers()) is not None and (
                mark := barriers.markers.place(ended)
            ) is not None:
                change.marks[name], change.sources[name] = mark, declared.contents

    def _exchange(self, change: RingChange) -> Exchange | None:
        host = self._topology.vhosts.get(change.vhost)
        return None if host is None else host.exchanges.get(change.exchange)

    def _declared(self, vhost: str, name: str, number: int) -> DeclaredQueue | None:
        """Return the queue of a given number; None if deleted."""
        host = self._topology.vhosts.get(vhost)
        declared = None if host is None else host.declared.get(name)
        return declared if declared is not None and declared.id == number else None

    def _made(
        self,
        vhost: str,
        exchange: str,
        number: int,
        since: float,
        placement: Placement,
        old_owners: dict[str, tuple[int, str]],
        new_names: list[str],
    ) -> RingChange:
        is_fed = partial(self._is_fed, vhost, exchange)
        return RingChange(vhost, exchange, number, since, placement, is_fed, old_owners, new_names)

    def _attach(self, change: RingChange, queue: Queue, name: str) -> None:
        # A queue does not wait for its own marker: its messages before the marker are delivered in order anyway.
        if queue in change.new_owners or not change.marks.keys() - {name}:
            return
        barriers = queue.barriers()
        if barriers is not None and barriers.hold(change, queue.next_seq, name):
            change.new_owners[queue] = name
            self._put(change, FENCE_QUEUE, {"queue": queue.id, "name": name, "first_seq": queue.next_seq}, queue.id)

    def _ended(self, change: RingChange, name: str) -> None:
        """Handle a marker without messages before it."""
        self._delete(change, FENCE_MARK, name)
        if name in change.sources:
            self._others.ended(MarkName(change.vhost, change.exchange, change.number, name))
        for queue in change.new_owners:
            if not queue.deleted:
                queue.renew_owners()  # owner epochs must be higher than before
                queue.wake(clock.now())
        if any(mark.left for mark in change.marks.values()):
            return
        self._delete(change, FENCE_RING)
        for queue in change.new_owners:
            self._delete(change, FENCE_QUEUE, queue.id)
        changes = self._open.get((change.vhost, change.exchange), [])
        if change in changes:
            changes.remove(change)
            if not changes:
                del self._open[change.vhost, change.exchange]

    def _is_fed(self, vhost: str, name: str) -> bool:
        """Return True if the exchange gets messages from further exchanges."""
        revision, fed = self._fed.get((vhost, name), (-1, False))
        if revision != self._topology.revision:
            host = self._topology.vhosts.get(vhost)
            exchange = None if host is None else host.exchanges.get(name)
            fed = host is not None and (
                exchange is None
                or bool(host.bindings_to(exchange))
                or any(other.alternate == name for other in host.exchanges.values())
            )
            self._fed[vhost, name] = self._topology.revision, fed
        return fed

    # --- by the clock, and by operators ---

    def look(self, now: float) -> None:
        """Find markers without messages before them; to be called often, with the monotonic clock."""
        if not self._open or now - self._looked_at < LOOK_INTERVAL:
            return
        self._looked_at = now
        away: dict[int, list[MarkName]] = defaultdict(list)
        for change in list(self._all()):
            for name, mark in change.marks.items():
                if not mark.left:
                    continue
                if name in change.sources:
                    if (barriers := change.sources[name].barriers()) is not None:
                        barriers.markers.recount(mark)
                    else:
                        mark.end()
                elif self._declared(change.vhost, mark.source, mark.queue_id) is not None:
                    away[home_of(mark.queue_id)].append(MarkName(change.vhost, change.exchange, change.number, name))
                else:
                    mark.end()
        for home, marks in away.items():
            self._others.ask(home, marks)

    # --- markers of peers ---

    def left_at(self, mark: MarkName) -> int | None:
        """Return the number of messages before a marker here; None if unknown."""
        change = self._find(mark)
        if change is not None and mark.name in change.sources:
            return change.marks[mark.name].left
        # The change is not noted here yet: 0 would release the other home's queues too early.
        if mark.number >> PLACE_BITS > self._topology.applied or any(one.number <= mark.number for one in self._coming):
            return None
        return 0

    def tell(self, mark: MarkName, left: int) -> None:
        """Update a marker with another home's number of messages before it."""
        change = self._find(mark)
        there = None if change is None or mark.name in change.sources else change.marks.get(mark.name)
        if there is not None and there.left:
            # The marker ends once, by `end`: until then its number stays above 0.
            there.left = max(1, left)
            if not left:
                there.end()

    def _find(self, mark: MarkName) -> RingChange | None:
        changes = self._open.get((mark.vhost, mark.exchange), ())
        return next((one for one in changes if one.number == mark.number), None)

    def _all(self) -> Iterator[RingChange]:
        for changes in self._open.values():
            yield from changes

    def lift(self, queue: Queue, source: str) -> int:
        """Release a queue from waiting for ``source``; return the number of released barriers."""
        fences = queue.fences
        lifted = [] if fences is None else fences.lift(source)
        changes = [change for change in self._all() if change in lifted]
        for change in changes:
            for name, mark in change.marks.items():
                if mark.source == source:
                    mark.lifted_in.add(queue.id)
                    self._put_mark(change, name, sorted(mark.lifted_in))
        if changes:
            queue.wake(clock.now())
        return len(changes)

    def sources(self, vhost: str, exchange: str) -> set[Queue]:
        """Return the local queues awaited by further queues since a change of the exchange."""
        changes = self._open.get((vhost, exchange), ())
        return {queue for change in changes for name, queue in change.sources.items() if change.marks[name].left}

    def figures(self, vhost: str) -> Iterator[tuple[Queue, FenceFigures]]:
        """Yield the ordering barriers of a virtual host, with their queues."""
        queues = {queue: None for change in self._all() if change.vhost == vhost for queue in change.new_owners}
        for queue in queues:
            if queue.fences is not None and not queue.deleted:
                yield from ((queue, found) for found in queue.fences.figures())

    # --- records ---

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Restore the records, before the messages of queues."""
        found: dict[str, dict[tuple[Any, ...], list[Any]]] = {
            kind: defaultdict(list) for kind in (FENCE_RING, FENCE_MARK, FENCE_QUEUE)
        }
        for kind, _, value in definitions:
            if kind in found:
                found[kind][value["vhost"], value["exchange"], value["number"]].append(value)
        queues = {queue.id: queue for host in self._topology.vhosts.values() for queue in host.queues.values()}
        # By number: later changes wait for earlier ones.
        for (vhost, exchange, number), [value] in sorted(found[FENCE_RING].items(), key=lambda one: one[0][2]):
            self._last[vhost, exchange] = number
            placement = restored(value["placement"])
            old_owners = {name: (number, source) for name, (number, source) in value.get("lost", {}).items()}
            change = self._made(vhost, exchange, number, value["since"], placement, old_owners, value.get("got", []))
            host = self._topology.vhosts.get(vhost)
            if host is not None and exchange in host.exchanges:
                host.exchanges[exchange].ordered = True
            if value.get("is_coming"):
                self._coming.append(change)
                continue
            lifted: dict[int, list[str]] = defaultdict(list)
            for one in found[FENCE_MARK][vhost, exchange, number]:
                ended = partial(self._ended, change, one["name"])
                # The messages are not restored yet; `count_restored` counts them.
                mark = Mark(one["source"], one["queue"], one["seq"], 1, ended)
                mark.lifted_in.update(one["lifted"])
                for queue_id in one["lifted"]:
                    lifted[queue_id].append(mark.source)
                change.marks[one["name"]] = mark
                if (source := queues.get(mark.queue_id)) is not None:
                    change.sources[one["name"]] = source
            for one in found[FENCE_QUEUE][vhost, exchange, number]:
                queue = queues.get(one["queue"])
                barriers = None if queue is None else queue.barriers()
                if queue is None or barriers is None:
                    continue
                if barriers.hold(change, one["first_seq"], one["name"], lifted[queue.id]):
                    change.new_owners[queue] = one["name"]
            self._open.setdefault((vhost, exchange), []).append(change)

    def count_restored(self) -> None:
        """Note pending changes once all queues are restored. Messages of other homes have arrived by then, or were
        lost with the links.
        """
        for change in list(self._all()):
            for name, mark in change.marks.items():
                if (source := change.sources.get(name)) is not None:
                    if (barriers := source.barriers()) is not None:
                        barriers.markers.restore(mark)
                    else:
                        mark.end()
                # The queue of this marker is deleted.
                elif home_of(mark.queue_id) == self._topology.home:
                    mark.end()
        coming, self._coming = self._coming, []
        for change in coming:
            self._note(change)

    def _put_ring(self, change: RingChange, is_coming: bool = False) -> None:
        value = {"since": change.since, "placement": change.placement.state()}
        coming = {"is_coming": True, "lost": change.old_owners, "got": change.new_names} if is_coming else {}
        self._put(change, FENCE_RING, value | coming)

    def _put_mark(self, change: RingChange, name: str, lifted: list[int]) -> None:
        mark = change.marks[name]
        value = {"name": name, "source": mark.source, "queue": mark.queue_id, "seq": mark.seq, "lifted": lifted}
        self._put(change, FENCE_MARK, value, name)

    def _put(self, change: RingChange, kind: str, value: dict[str, Any], *parts: Any) -> None:
        if self._journal is not None:
            whose = {"vhost": change.vhost, "exchange": change.exchange, "number": change.number}
            self._journal.put(kind, change.key(*parts), whose | value)

    def _delete(self, change: RingChange, kind: str, *parts: Any) -> None:
        if self._journal is not None:
            self._journal.delete(kind, change.key(*parts))
