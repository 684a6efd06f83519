"""Outbox: messages for queues of other homes, kept here until on disk at the other home, with exactly-once delivery.

Batches published in bulk and dead letters take this path:

1. The store keeps the messages of each queue in a list of their own. They are part of the commit that also records
   their origin: a bulk writer's position, or the removal of the messages that died.
2. Once that commit is on disk, the messages are forwarded over the link, in order and in slices (:data:`SLICE_OCTETS`).
3. The other home records the number of the last received message in the commit of the messages themselves
   (:mod:`~jumpmq.nodes.messages.receiver`), and answers once that commit is on disk.
4. On the answer, the outbox deletes the messages.

After a break of the link, or a crash of either process, the outbox forwards unanswered messages again, and the remote
home skips those that it has.

The numbers of a queue's messages increase, across restarts too: they begin with the start time of the process. Each
data directory has a random *source*, which tells a new directory from an old one whose numbers were recorded.
"""

import asyncio
import contextlib
import logging
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from jumpmq.amqp.messages import Message, check_properties
from jumpmq.amqp.properties import EXPIRATION
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.peers import Forwarding
from jumpmq.nodes.messages.units import Unit
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import FORWARD, SLICE_HEAD, SLICE_TAKEN, TAKEN
from jumpmq.queues.memory import OVERHEAD, MemoryAccount, held_octets
from jumpmq.queues.runs import enter_queue, persistent, settle_stored
from jumpmq.store import Batch, Store
from jumpmq.store.definitions import AHEAD, ON_WAY
from jumpmq.store.kinds import OUTBOX
from jumpmq.topology import Change, ChangePrincipal, DeleteQueue, Topology
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import home_of

SLICE_OCTETS, SLICE_MESSAGES = 1 << 20, 1024
"""Maximum octets and messages of a slice; the last message may exceed the octets."""

WINDOW = 8 << 20
"""Maximum octets in flight to a home without an answer."""

MEMORY_SHARE = 8
"""Divisor of the memory limit for the octets kept for a home, beyond which no more messages are accepted."""

LONGEST_PAUSE = 1.0
"""Maximum delay before a refused slice is sent again, in seconds."""

READ_AGAIN = 1.0
"""Delay before unreadable messages kept by an earlier run are read again, in seconds; later messages wait."""

AWAITED = 5.0
"""Maximum wait of a publisher for running other homes, in seconds."""

TICKS = 30
"""Low bits of a message's number, below the start time of the process in seconds."""

log = logging.getLogger(__name__)


class _Line:
    """Messages in flight to a queue. Sent in the order: messages sent before, or kept by an earlier run; unread batches
    of an earlier run; new messages.

    Attributes:
        queue: the destination.
        number: id of the list in the store.
        next: number of the next new message.
        gone: True once the queue is deleted.
        is_due: True while the queue is among those to send from.
        is_reading: True while a batch is read, or waits to be read again.
        is_late: True once the log reports that a batch cannot be read.
        count, octets: messages and their octets, sent ones included.
        held: octets in memory.
        earlier, unread, new: messages to be sent, in this order.
        waiters: publishers waiting for a message, by its number.
    """

    def __init__(self, queue: DeclaredQueue, first: int) -> None:
        self.queue = queue
        self.next = first
        self.number = queue.id | ON_WAY
        self.gone = self.is_due = self.is_reading = self.is_late = False
        self.count = self.octets = self.held = 0
        self.earlier: deque[Message] = deque()
        self.unread: deque[Batch] = deque()
        self.new: deque[Message] = deque()
        self.waiters: deque[tuple[int, Forwarding]] = deque()

    @property
    def is_sendable(self) -> bool:
        """True if messages in memory are ready to be sent."""
        return bool(self.earlier or (self.new and not self.unread))

    def take(self, count: int, octets: int) -> list[Message]:
        """Take the next messages to send, with consecutive numbers, at least a single message."""
        source = self.earlier or self.new
        taken = [source.popleft()]
        octets -= len(taken[0].body)
        while source and len(taken) < count and octets > 0 and source[0].seq == taken[-1].seq + 1:
            taken.append(source.popleft())
            octets -= len(taken[-1].body) + OVERHEAD
        return taken


class _Way:
    """Path to a home.

    Attributes:
        link: the link to the home; None while the home is down.
        attempt: number of the attempt; incremented when sent messages have to be sent again.
        sent: number of the attempt's last slice.
        refusals: consecutive refusals of slices; while above 0, a single slice is in flight.
        pausing: True during the delay after a refusal.
        due: queues with messages to send.
        on_way: unanswered slices: number, octets, messages per queue.
        on_way_octets: octets of all unanswered slices.
        count, octets: all messages kept for the home, and their octets.
    """

    def __init__(self) -> None:
        self.link: Link | None = None
        self.attempt = 1
        self.sent = self.refusals = 0
        self.pausing = False
        self.due: deque[_Line] = deque()
        self.on_way: deque[tuple[int, int, list[tuple[_Line, list[Message]]]]] = deque()
        self.on_way_octets = self.count = self.octets = 0


class Outbox:
    """Outbox of the local home.

    Args:
        links: links to other homes.
        account: the memory account for messages in memory.
        store: store of the outbox; None if everything is in memory.
    """

    def __init__(self, links: Links, turns: Turns, account: MemoryAccount, store: Store | None) -> None:
        self._turns = turns  # those of the broker
        self._account = account  # for messages in memory
        self._store = store  # of the messages
        self._topology: Topology  # knows the queues
        self._source = uuid.uuid4()  # identity of the data directory
        self._next = int(time.time()) << TICKS  # first number for the next new queue
        self._is_noted = store is None  # True once source and first number are stored
        self._lines: dict[int, _Line] = {}  # by id of the queue
        self._ways: dict[int, _Way] = {}  # by home
        self._staged: list[tuple[_Line, list[Message]]] = []  # messages in the current commit
        self._awaited: set[Forwarding] = set()  # with a waiting publisher
        self._committing: asyncio.Task[None] | None = None  # waits for the commit
        self._is_stopped = False
        self._timing = links.timing
        links.handlers[TAKEN] = self._answered
        links.on_down.append(self._down)

    def restore(
        self, topology: Topology, definitions: Iterable[tuple[str, str, Any]], batches: dict[int, list[Batch]]
    ) -> None:
        """Restore the outbox from the store.

        Args:
            batches: all stored batches, by queue or list; the outbox removes its own.
        """
        self._topology = topology
        topology.listeners.append(self._follow)
        kept = {key: value for kind, key, value in definitions if kind == OUTBOX}
        if kept:
            self._source = uuid.UUID(kept["source"])
            # A clock set back must not repeat numbers: the destination would skip new messages as known ones.
            self._next = max(self._next, kept["first"] + (1 << TICKS))
        queues = {one.id: one for host in topology.vhosts.values() for one in host.declared.values()}
        for one in [one for one in queues.values() if one.definition.before]:
            before = one.definition.before
            queues[before] = DeclaredQueue(replace(one.definition, id=before, home=home_of(before)), None)
            queues[one.id | AHEAD] = ahead_of(one)
        for number in [number for number in batches if number & ON_WAY]:
            found = batches.pop(number)
            queue = queues.get(number ^ ON_WAY)
            # The queue was deleted while this process was down: its messages go as if contained in it.
            if queue is None:
                if self._store is not None:
                    self._store.drop_queue(number)
                continue
            line = self._line(queue)
            line.unread.extend(found)
            for batch in found:
                line.next = max(line.next, batch.last_seq + 1)
                self._count(line, batch.remaining, _estimate(batch))
            self._make_due(line)
        with self._turns.turn():  # homes may have reported ready before
            self._send_all()  # peers may have reported their queues before

    def stop(self) -> None:
        """Stop waiting for commits and reads."""
        self._is_stopped = True
        if self._committing is not None:
            self._committing.cancel()

    def figures(self) -> list[tuple[int, int, int]]:
        """Return the number, messages and octets of every home with kept messages."""
        return [(home, way.count, way.octets) for home, way in sorted(self._ways.items())]

    # --- what is published ---

    def full_home(self, homes: Iterable[int]) -> int | None:
        """Return a home, of the given homes, with so many kept octets that no more messages are accepted; None if all
        have room.
        """
        most = min(self._timing.outbox_octets, self._account.limit // MEMORY_SHARE)
        return next((home for home in homes if (way := self._ways.get(home)) is not None and way.octets > most), None)

    @property
    def is_full(self) -> bool:
        """True if so much is kept for a home that no more messages are accepted."""
        return self.full_home(self._ways) is not None

    def forwarding(self) -> Forwarding:
        """Return an object for :meth:`add`, awaited by :meth:`forwarded`."""
        return Forwarding()

    def add_dead_letters(self, queue: DeclaredQueue, messages: list[Message]) -> None:
        """Keep dead-lettered messages for a queue, as by :meth:`add`: transient messages are kept in memory only."""
        self._add(None, queue, messages, persistent)

    def add(self, forwarding: Forwarding, queue: DeclaredQueue, messages: list[Message]) -> None:
        """Append messages for a queue, in an event-loop iteration whose commit includes the messages."""
        self._add(forwarding, queue, messages, lambda messages: messages)

    def _add(
        self,
        forwarding: Forwarding | None,
        queue: DeclaredQueue,
        messages: list[Message],
        stored: Callable[[list[Message]], list[Message]],
    ) -> None:
        """
        Args:
            forwarding: the publisher's wait; None without a waiting publisher.
            stored: returns the messages that the store keeps.
        """
        line = self._line(queue)
        messages = enter_queue(messages, line, line.next)
        line.next += len(messages)
        if self._store is not None:
            # In the same commit as the first message: a restart would otherwise send it again under another source.
            if not self._is_noted:
                self._note_source(self._store, messages[0].seq)
            if kept := stored(messages):
                self._store.append(line.number, kept)
        octets = held_octets(messages)
        self._count(line, len(messages), octets)
        self._hold(line, octets)
        if forwarding is not None:
            line.waiters.append((messages[-1].seq, forwarding))
            forwarding.begin(queue.definition.home)
        self._staged.append((line, messages))
        if self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._commit())

    async def forwarded(self, forwarding: Forwarding) -> bool:
        """Wait until messages are on the disks of their homes, at most :data:`AWAITED` seconds, and not for a home that
        is down. Return True if all are on disk. Call this after the messages' own commit is on disk.
        """
        if not forwarding.is_done and all(self._ways[home].link is not None for home in forwarding.homes):
            self._awaited.add(forwarding)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AWAITED):
                        await forwarding.over.wait()
            finally:
                self._awaited.discard(forwarding)
        return forwarding.is_done

    def _note_source(self, store: Store, first: int) -> None:
        store.put(OUTBOX, "source", self._source.hex)
        store.put(OUTBOX, "first", first)
        self._is_noted = True

    async def _commit(self) -> None:
        """Send kept messages once on disk: after a crash, republished messages would otherwise exist twice, with
        different numbers."""
        while self._staged:
            staged, self._staged = self._staged, []
            await self._turns.committed()
            with self._turns.turn():
                for line, messages in staged:
                    if not line.gone:
                        line.new.extend(messages)
                        self._make_due(line)
                self._send_all()
        self._committing = None

    # --- accounts ---

    def _line(self, queue: DeclaredQueue) -> _Line:
        if (line := self._lines.get(queue.id)) is None:
            line = self._lines[queue.id] = _Line(queue, self._next)
        return line

    def has_for(self, queue: int) -> bool:
        """Return True if messages are in flight to the queue with the given id."""
        return queue in self._lines

    def count_for(self, queue: int) -> int:
        """Return the number of messages in flight to the queue with the given id."""
        line = self._lines.get(queue)
        return 0 if line is None else line.count

    def _way(self, home: int) -> _Way:
        return self._ways.setdefault(home, _Way())

    def _count(self, line: _Line, messages: int, octets: int) -> None:
        way = self._way(line.queue.definition.home)
        line.count += messages
        line.octets += octets
        way.count += messages
        way.octets += octets

    def _hold(self, line: _Line, octets: int) -> None:
        line.held += octets
        self._account.charge("staged", octets)

    def _follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Drop the messages for a deleted queue, as if contained in the queue."""
        if isinstance(change, DeleteQueue):
            for queue in change.id, change.id | AHEAD:
                if (line := self._lines.pop(queue, None)) is not None:
                    self._drop(line)

    def _drop(self, line: _Line) -> None:
        line.gone = True
        self._count(line, -line.count, -line.octets)
        self._hold(line, -line.held)
        if self._store is not None:
            self._store.drop_queue(line.number)
        for _, forwarding in line.waiters:
            forwarding.end()

    # --- sending ---

    def ready(self, link: Link) -> None:
        """Handle the readiness of a home's queues."""
        self._way(link.peer).link = link
        self._send(link.peer)

    def _down(self, link: Link) -> None:
        way = self._ways.get(link.peer)
        if way is not None and way.link is link:
            way.link = None
            _mark(way, way.sent)
            self._take_back(way)
            for forwarding in self._awaited:
                if link.peer in forwarding.homes:
                    forwarding.over.set()

    def _make_due(self, line: _Line) -> None:
        if not line.is_due and not line.gone:
            line.is_due = True
            self._way(line.queue.definition.home).due.append(line)

    def _send_all(self) -> None:
        for home in self._ways:
            self._send(home)

    def _send(self, home: int) -> None:
        """Send as much as allowed in flight."""
        way = self._ways[home]
        # After a refusal a single slice is in flight, so that a home without room is not sent a whole window again.
        most = 1 if way.refusals else WINDOW
        while way.link is not None and not way.pausing and way.on_way_octets < most:
            shares = self._slice(way)
            if not shares:
                return
            messages = [message for _, share in shares for message in share]
            octets = held_octets(messages)
            flags = EXPIRATION if any(message.expires_at for message in messages) else 0
            way.sent += 1
            way.on_way.append((way.sent, octets, shares))
            way.on_way_octets += octets
            head = SLICE_HEAD.pack(way.attempt, way.sent, self._topology.applied, self._source.bytes, len(shares))
            last = struct.pack(f"!{len(shares)}Q", *(share[-1].seq for _, share in shares))
            unit = Unit([(line.queue, share) for line, share in shares], messages)
            way.link.send(FORWARD, head, last, *unit.encoded(way.sent, flags))

    def _slice(self, way: _Way) -> list[tuple[_Line, list[Message]]]:
        """Take the messages to send next, in turn from every queue."""
        shares: list[tuple[_Line, list[Message]]] = []
        count, octets = SLICE_MESSAGES, SLICE_OCTETS
        while way.due and count > 0 and octets > 0:
            line = way.due[0]
            if line.is_sendable and not line.gone:
                share = line.take(count, octets)
                shares.append((line, share))
                count, octets = count - len(share), octets - held_octets(share)
            if line.gone or not line.is_sendable:
                way.due.popleft()
                line.is_due = False
                self._read_on(line)
            else:
                way.due.rotate(-1)
        return shares

    def _read_on(self, line: _Line) -> None:
        """Read the next batch kept by an earlier run."""
        if not line.unread or line.is_reading or line.gone or self._store is None:
            return
        batch, line.is_reading = line.unread[0], True
        self._store.read_soon(
            [(batch, batch.first_seq, batch.last_seq)], lambda found: self._on_read(line, batch, found)
        )

    def _on_read(self, line: _Line, batch: Batch, found: list[list[Message]] | None) -> None:
        if line.gone or self._store is None or self._is_stopped:
            return
        # Messages behind the batch wait: sent first, they would make the destination skip the batch's lower numbers.
        if found is None or (len(found[0]) < batch.remaining and self._store.is_unread(batch)):
            if not line.is_late:
                log.error("the messages kept for %r cannot be read now, and wait", line.queue)
            line.is_late = True
            asyncio.get_running_loop().call_later(READ_AGAIN, self._read_again, line)
            return
        messages = found[0]
        with self._turns.turn():
            self._count(line, -batch.remaining, -_estimate(batch))
            if len(messages) != batch.remaining:  # the store logs the damage
                log.error("%d messages for %r are lost", batch.remaining - len(messages), line.queue)
            for message in messages:
                message.persistent = check_properties(message.properties) == 2
                message.redelivered = True  # conservative: an earlier run may have delivered it
            line.is_reading = line.is_late = False
            line.unread.popleft()
            line.earlier.extend(messages)
            octets = held_octets(messages)
            self._count(line, len(messages), octets)
            self._hold(line, octets)
            if line.count:
                self._make_due(line)
                self._send(line.queue.definition.home)
            else:  # no message could be read
                self._end(line)

    def _read_again(self, line: _Line) -> None:
        line.is_reading = False
        if not self._is_stopped:
            self._read_on(line)

    # --- answers ---

    def _answered(self, link: Link, payload: memoryview) -> None:
        way = self._ways[link.peer]
        attempt, number, taken = SLICE_TAKEN.unpack(payload)
        # An answer to an earlier attempt says nothing about slices that were taken back since.
        if attempt != way.attempt or way.link is not link:
            return
        if not taken:
            # The destination drops all later slices of the attempt: these are sent again too, in order.
            way.pausing, way.refusals = True, way.refusals + 1
            _mark(way, number - 1)
            self._take_back(way)
            pause = min(self._timing.refusal_pause * way.refusals, LONGEST_PAUSE)
            asyncio.get_running_loop().call_later(pause, self._go_on, link)
            return
        way.refusals = 0
        while way.on_way and way.on_way[0][0] <= number:
            _, octets, shares = way.on_way.popleft()
            way.on_way_octets -= octets
            for line, share in shares:
                if not line.gone:
                    self._forget(line, share)
        self._send(link.peer)

    def _go_on(self, link: Link) -> None:
        self._ways[link.peer].pausing = False
        if self._ways[link.peer].link is not None:
            with self._turns.turn():
                self._send(link.peer)

    def _forget(self, line: _Line, messages: list[Message]) -> None:
        """Forget messages on disk at the destination home."""
        octets = held_octets(messages)
        self._count(line, -len(messages), -octets)
        self._hold(line, -octets)
        settle_stored(messages)
        while line.waiters and line.waiters[0][0] <= messages[-1].seq:
            line.waiters.popleft()[1].end()
        if not line.count:
            self._end(line)

    def _end(self, line: _Line) -> None:
        """Remove a queue without messages in flight."""
        del self._lines[line.queue.id]
        # The queue's next messages need higher numbers: the destination remembers the last number of the queue.
        self._next = max(self._next, line.next)

    def _take_back(self, way: _Way) -> None:
        """Prepare messages in flight to be sent again, in the same order."""
        way.attempt += 1
        while way.on_way:
            # From the last slice to the first: each is put before those already put back.
            for line, share in reversed(way.on_way.pop()[2]):
                line.earlier.extendleft(reversed(share))
                self._make_due(line)
        way.on_way_octets = 0


def _mark(way: _Way, upto: int) -> None:
    """Mark messages taken by a home, and not known to be on disk there, as possibly delivered before a kill.

    Args:
        upto: the last slice that the home may have received.
    """
    for number, _, shares in way.on_way:
        if number <= upto:
            for _, share in shares:
                for message in share:
                    message.redelivered = True


def ahead_of(queue: DeclaredQueue) -> DeclaredQueue:
    """Return a moving queue as the destination of the messages from before the move: with :data:`AHEAD` in the id."""
    return DeclaredQueue(replace(queue.definition, id=queue.id | AHEAD), None)


def _estimate(batch: Batch) -> int:
    """Return the estimated octets of the rest of an unread batch."""
    return batch.bytes * batch.remaining // batch.count + OVERHEAD * batch.remaining
