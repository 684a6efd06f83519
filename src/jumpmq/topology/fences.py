"""Which changes of rings queues still wait for (:mod:`jumpmq.queues.fences`), and their records.

A change of an exchange whose keys are to stay in order is noted with the placement of keys as it was, a mark at each
queue that may have lost keys and is not empty, and the queues that may have got some, each with its number at which
that begins. As a queue that gets keys may get them by way of a third, it also waits for the changes before that are
still open. All of that is recorded with the change, in one commit; a mark's record goes when nothing is left at it,
the others with the last mark. Kinds of record: ``fence_ring``, ``fence_mark``, ``fence_queue``.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.queues import Queue, clock
from jumpmq.queues.fences import FenceFigures, Mark
from jumpmq.topology.exchanges import Destination, Exchange
from jumpmq.topology.exchanges.placement import Placement, restored
from jumpmq.topology.records import Keeper, key_of

if TYPE_CHECKING:
    from jumpmq.topology.topology import Topology

log = logging.getLogger(__name__)

RING, MARK, QUEUE = "fence_ring", "fence_mark", "fence_queue"

MAX_OPEN = 64
"""Changes of one exchange for which queues may wait at once. Each keeps a ring; what moves by another is not held."""

LOOK_INTERVAL = 1.0
"""Seconds between looks at marks at which nothing is left, unnoticed: what was damaged is in no queue any more."""


@dataclass(eq=False)
class RingChange:
    """A change of an exchange's ring; see :class:`jumpmq.queues.fences.RingChange`.

    Attributes:
        vhost: where the exchange is.
        number, exchange, since, marks: as there.
        placement: where keys went before.
        is_fed: whether messages come to the exchange from other exchanges.
        sources: the queues of the marks, by the names that the placement has for them.
        gainers: the queues that wait, and as what the placement would know them.
    """

    vhost: str
    exchange: str
    number: int
    since: float
    placement: Placement
    is_fed: Callable[[], bool]
    marks: dict[str, Mark] = field(default_factory=dict)
    sources: dict[str, Queue] = field(default_factory=dict)
    gainers: dict[Queue, str] = field(default_factory=dict)

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
        """The key of a record of it."""
        return key_of(self.vhost, self.exchange, self.number, *parts)


class Before(NamedTuple):
    """An exchange, before a change."""

    placement: Placement
    destinations: Mapping[str, Destination]


class Fences:
    """The changes that queues wait for.

    Args:
        topology: whose exchanges change.
        journal: keeps the records; None keeps nothing.
        enabled: whether there are fences: not where other processes route by rings of their own.
    """

    def __init__(self, topology: Topology, journal: Keeper | None, enabled: bool = True) -> None:
        self._topology = topology
        self._journal = journal
        self._enabled = enabled
        self._open: dict[tuple[str, str], list[RingChange]] = {}  # by virtual host and exchange
        self._next_number = 1
        self._fed: dict[tuple[str, str], tuple[int, bool]] = {}  # whether others feed an exchange, as of a revision
        self._looked_at = 0.0

    # --- changes ---

    def before(self, exchange: Exchange) -> Before | None:
        """To be called before an exchange's bindings change; None where nothing can be out of order thereby."""
        if not (exchange.ordered and self._enabled):
            return None
        destinations = exchange.placed()
        if (exchange.vhost, exchange.name) not in self._open and not any(
            isinstance(one, Queue) and one.message_count for one in destinations.values()
        ):
            return None
        placement = exchange.placement()
        return None if placement is None else Before(placement, destinations)

    def after(self, exchange: Exchange, before: Before) -> None:
        """The bindings have changed, within the same turn."""
        placement = exchange.placement()
        assert placement is not None
        lost, got = before.placement.moved(placement)
        if not lost:
            return
        changes = self._open.setdefault((exchange.vhost, exchange.name), [])
        if len(changes) < MAX_OPEN:
            self._note(changes, exchange, before, lost)
        else:
            log.warning(
                "exchange '%s' in vhost '%s' has changed %d times while queues wait for messages of keys that moved: "
                "what this change moves does not wait", exchange.name, exchange.vhost, MAX_OPEN
            )  # fmt: skip
        now = exchange.placed()
        for change in changes:
            for name in got:
                if isinstance(queue := now.get(name), Queue):
                    self._attach(change, queue, name)
        if not changes:
            del self._open[exchange.vhost, exchange.name]

    def _note(self, changes: list[RingChange], exchange: Exchange, before: Before, lost: Iterable[str]) -> None:
        change = self._made(exchange.vhost, exchange.name, self._next_number, time.time(), before.placement)
        for name in lost:
            queue = before.destinations.get(name)
            mark = queue.mark(partial(self._ended, change, name)) if isinstance(queue, Queue) else None
            if isinstance(queue, Queue) and mark is not None:
                change.marks[name], change.sources[name] = mark, queue
        if not change.marks:
            return
        self._next_number += 1
        changes.append(change)
        value = {"since": change.since, "placement": before.placement.state()}
        self._put(change, RING, value)
        for name in change.marks:
            self._put_mark(change, name, [])

    def _made(self, vhost: str, exchange: str, number: int, since: float, placement: Placement) -> RingChange:
        return RingChange(vhost, exchange, number, since, placement, partial(self._is_fed, vhost, exchange))

    def _attach(self, change: RingChange, queue: Queue, name: str) -> None:
        if queue in change.gainers or not change.marks.keys() - {name}:
            return
        if queue.fence(change, queue.next_seq, name):
            change.gainers[queue] = name
            self._put(change, QUEUE, {"queue": queue.id, "name": name, "first_seq": queue.next_seq}, queue.id)

    def _ended(self, change: RingChange, name: str) -> None:
        """Nothing is left at a mark."""
        self._delete(change, MARK, name)
        for queue in change.gainers:
            if not queue.deleted:
                queue.wake(clock.now())
        if any(mark.left for mark in change.marks.values()):
            return
        self._delete(change, RING)
        for queue in change.gainers:
            self._delete(change, QUEUE, queue.id)
        changes = self._open.get((change.vhost, change.exchange), [])
        if change in changes:
            changes.remove(change)
            if not changes:
                del self._open[change.vhost, change.exchange]

    def _is_fed(self, vhost: str, name: str) -> bool:
        """Whether other exchanges give messages to this one."""
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
        """Notice where nothing is left at a mark; to be called often, with the monotonic clock."""
        if not self._open or now - self._looked_at < LOOK_INTERVAL:
            return
        self._looked_at = now
        for change in list(self._all()):
            for name, mark in change.marks.items():
                if mark.left:
                    change.sources[name].recount(mark)

    def _all(self) -> Iterator[RingChange]:
        for changes in self._open.values():
            yield from changes

    def lift(self, queue: Queue, source: str) -> int:
        """Have a queue wait no longer for another; returns how many fences that lifts."""
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

    def figures(self, vhost: str) -> Iterator[tuple[Queue, FenceFigures]]:
        """The fences of a virtual host, with their queues."""
        queues = {queue: None for change in self._all() if change.vhost == vhost for queue in change.gainers}
        for queue in queues:
            if queue.fences is not None and not queue.deleted:
                yield from ((queue, found) for found in queue.fences.figures())

    # --- records ---

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Take back the records, before the messages of queues are restored."""
        found: dict[str, dict[tuple[Any, ...], list[Any]]] = {kind: defaultdict(list) for kind in (RING, MARK, QUEUE)}
        for kind, _, value in definitions:
            if kind in found:
                found[kind][value["vhost"], value["exchange"], value["number"]].append(value)
        queues = {queue.id: queue for host in self._topology.vhosts.values() for queue in host.queues.values()}
        for (vhost, exchange, number), [value] in sorted(found[RING].items(), key=lambda one: one[0][2]):
            self._next_number = max(self._next_number, number + 1)
            change = self._made(vhost, exchange, number, value["since"], restored(value["placement"]))
            lifted: dict[int, list[str]] = defaultdict(list)
            for one in found[MARK][vhost, exchange, number]:
                ended = partial(self._ended, change, one["name"])
                mark = Mark(one["source"], one["queue"], one["seq"], 1, ended)
                mark.lifted_in.update(one["lifted"])
                for queue_id in one["lifted"]:
                    lifted[queue_id].append(mark.source)
                change.marks[one["name"]] = mark
                if (source := queues.get(mark.queue_id)) is not None:
                    change.sources[one["name"]] = source
            for one in found[QUEUE][vhost, exchange, number]:
                queue = queues.get(one["queue"])
                if queue is not None and queue.fence(change, one["first_seq"], one["name"], lifted[queue.id]):
                    change.gainers[queue] = one["name"]
            self._open.setdefault((vhost, exchange), []).append(change)
            host = self._topology.vhosts.get(vhost)
            if host is not None and exchange in host.exchanges:
                host.exchanges[exchange].ordered = True

    def count_restored(self) -> None:
        """The messages of queues are restored."""
        for change in list(self._all()):
            for name, mark in change.marks.items():
                if (source := change.sources.get(name)) is not None:
                    source.restore_mark(mark)
                else:
                    mark.end()

    def _put_mark(self, change: RingChange, name: str, lifted: list[int]) -> None:
        mark = change.marks[name]
        value = {"name": name, "source": mark.source, "queue": mark.queue_id, "seq": mark.seq, "lifted": lifted}
        self._put(change, MARK, value, name)

    def _put(self, change: RingChange, kind: str, value: dict[str, Any], *parts: Any) -> None:
        if self._journal is not None:
            whose = {"vhost": change.vhost, "exchange": change.exchange, "number": change.number}
            self._journal.put(kind, change.key(*parts), whose | value)

    def _delete(self, change: RingChange, kind: str, *parts: Any) -> None:
        if self._journal is not None:
            self._journal.delete(kind, change.key(*parts))
