"""Publishes to queues of other homes: sent over the links, and answered once the other home has them on disk.

The messages of a push to a home are a *batch* (:class:`~jumpmq.nodes.messages.units.Unit`), which holds each message
once, with its queues. A publish takes this path:

1. :func:`~jumpmq.broker.routing.routing.push` passes the routes to remote queues to :meth:`Enqueue.send`, which numbers
   a batch for each home (:meth:`_Outgoing.add`), and sends the batch in a record ``UNIT``.
2. The link is a *source* of receipts: the publish waits for a :class:`~jumpmq.broker.commit.receipts.Part` of the link,
   as it waits for a commit of the local store.
3. At the other home, :meth:`Enqueue.take` pushes the batch to its queues (:meth:`Enqueue._take_unit`), and
   :class:`_Incoming` waits for their commit, as a publisher does.
4. When the commit is complete, :meth:`_Incoming.send_confirms` answers with a record ``ANSWER``: the last complete
   batch, and the messages refused by queues.
5. Back at the publisher's home, :meth:`Enqueue._answered` completes the parts (:meth:`_Outgoing.complete`), and
   ``Turns.check_receipts`` has the channels send their confirms.

When a link breaks, batches without an answer count as refused. The other home may have them all the same: a publisher
that publishes again may then have a message twice, as after any broken connection.

A home with copies soon returns on another node. Until then its messages are held, at most :data:`HELD_MOST` octets and
for :data:`HOLD_TIMEOUT`, and sent over the next link.

A home always reads its links, so that a slow home delays no other home. Instead, a home stops reading from clients that
publish faster than another home answers, until the other home has caught up (:data:`IN_FLIGHT_MOST`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.commit.receipts import DONE, NOT_TAKEN, PENDING, REFUSED, Part, ReceiptState
from jumpmq.broker.commit.turns import CommitClient, Turns
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.routing.routing import push_to
from jumpmq.broker.routing.sending import Sent, may_refuse
from jumpmq.nodes.messages.units import NotKnownYet, Unit, decoded, destination
from jumpmq.nodes.transport.link import Link, RecordHandler
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import ANSWER, ANSWERED, READY, REFUSED_MESSAGE, REPLY, UNIT
from jumpmq.queues.base import FIRST_LINK
from jumpmq.queues.memory import MemoryAccount, held_octets
from jumpmq.topology import Topology
from jumpmq.topology.declared import DeclaredQueue

INDEX_BITS = 24
"""Low bits of a receipt's number, below the batch's number: the index of a message in the batch, counted from 1. All
bits are set for the batch as a whole.
"""

WHOLE = (1 << INDEX_BITS) - 1

PAUSE = 0.005
"""Interval between checks for a queue to become known here, and for a ring to be current at all homes, in seconds."""

log = logging.getLogger(__name__)

IN_FLIGHT_MOST = 32 << 20
"""Octets in flight to a home, unanswered, above which further publishers to the home are not read."""


HOLD_TIMEOUT = 30.0
"""Maximum time in seconds for which messages are kept for a home with copies that no node serves."""


HELD_MOST = 4 * IN_FLIGHT_MOST
"""Maximum octets held for a home without a link. Above :data:`IN_FLIGHT_MOST`, publishers to the home are not read."""


class _Outgoing:
    """Sending end of a link, as a source of receipts.

    Args:
        link: the link for the records; None to hold the records until a link comes up.

    Attributes:
        link: the current link; None while records are held, and after the end of the link.
        holds: True while records are held for a link.
        sent: number of the last sent batch, as a number of receipts.
    """

    def __init__(self, link: Link | None, account: MemoryAccount) -> None:
        self.link = link
        self.holds = link is None
        self._kept: list[tuple[int, tuple[bytes | memoryview, ...]]] = []  # held records
        self.sent = 0
        self._completed = 0  # up to this number, everything is complete except refused messages
        self._lost = 0  # up to this number, everything incomplete is refused
        self._refused: set[int] = set()  # refused messages of completed batches, until publishers are notified
        self._on_way: deque[tuple[int, int]] = deque()  # unanswered batches and their octets
        self._octets = 0  # of all unanswered batches
        self._unread: set[CommitClient] = set()  # publishers that are not read until fewer octets are in flight
        self._account = account  # charged with messages in flight

    @property
    def is_over(self) -> bool:
        """True if the link is broken, or none came up in time."""
        return self.link is None and not self.holds

    @property
    def takes(self) -> bool:
        """True if more can be sent."""
        return self.link is not None or (self.holds and self._octets <= HELD_MOST)

    def send(self, kind: int, *payload: bytes | memoryview) -> None:
        """Send a record, or hold it for the next link."""
        if self.link is not None:
            self.link.send(kind, *payload)
        else:
            self._kept.append((kind, payload))

    def begin(self, link: Link) -> None:
        """Send the held records over a new link."""
        self.link, self.holds = link, False
        kept, self._kept = self._kept, []
        for kind, payload in kept:
            link.send(kind, *payload)

    def add(self, octets: int, reader: CommitClient | None) -> int:
        """Register a sent batch; return the batch's number.

        Args:
            reader: the publisher; not read while too many octets are in flight. None outside the turn of a client.
        """
        unit = (self.sent >> INDEX_BITS) + 1
        self.sent = unit << INDEX_BITS | WHOLE
        self._on_way.append((unit, octets))
        self._count(octets)
        if self._octets > IN_FLIGHT_MOST and reader is not None and reader not in self._unread:
            self._unread.add(reader)
            reader.wait_for_home(True)
        return unit

    def _count(self, octets: int) -> None:
        self._octets += octets
        self._account.charge("staged", octets)
        if self._octets <= IN_FLIGHT_MOST // 2:
            while self._unread:
                self._unread.pop().wait_for_home(False)

    def state(self, number: int) -> ReceiptState:
        """See :class:`~jumpmq.broker.commit.receipts.ReceiptSource`."""
        if number in self._refused:
            return REFUSED
        if number <= self._completed:
            return DONE
        return REFUSED if number <= self._lost else PENDING

    def complete(self, unit: int, refused: Iterable[tuple[int, int]]) -> None:
        """Complete all batches up to the given number, except refused messages."""
        for number, place in refused:
            self._refused.add(number << INDEX_BITS | place)
        self._completed = max(self._completed, unit << INDEX_BITS | WHOLE)
        answered = 0
        while self._on_way and self._on_way[0][0] <= unit:
            answered += self._on_way.popleft()[1]
        self._count(-answered)

    def forget_refused(self) -> None:
        """Forget refused messages, after all waiting publishers are notified of the completed batches."""
        self._refused = {number for number in self._refused if number > self._completed}

    def lose(self) -> None:
        """Refuse all unanswered batches: the link broke, or no link came up in time."""
        self.link, self.holds, self._kept = None, False, []
        self._lost = self.sent
        self._on_way.clear()
        self._count(-self._octets)


class _Incoming:
    """Receiving end of a link: pushes batches to queues, and answers once complete. Acts as a publisher for commits."""

    def __init__(self, link: Link, turns: Turns) -> None:
        self._link = link  # for the answers
        self._turns = turns  # notify of completion
        self._confirms = Confirms()  # each batch is one publish
        self._refused: list[tuple[int, int]] = []  # not reported yet
        # True while memory or disk is short: answers are withheld, so that the peer's publishers stop
        self._withholds = False

    def block(self, reason: str) -> None:
        """See :class:`~jumpmq.broker.memory.alarms.BlockedPublisher`."""
        self._withholds = True

    def unblock(self) -> None:
        """See :class:`~jumpmq.broker.memory.alarms.BlockedPublisher`."""
        self._withholds = False
        with self._turns.turn():
            self.send_confirms()

    def add(self, unit: int, sources: int, refused: list[int]) -> None:
        """Register a batch pushed to queues with the given sources, and the indexes of refused messages."""
        assert unit == self._confirms.published + 1
        self._confirms.add(1, sources)
        self._refused += [(unit, place + 1) for place in refused]
        self._turns.confirm(self)

    def assign_receipts(self, parts: Mapping[int, Part]) -> bool:
        """See :class:`~jumpmq.broker.commit.turns.Publisher`."""
        self._confirms.assign_receipts(parts)
        return not self._confirms.due or self.send_confirms()

    def send_confirms(self) -> bool:
        """See :class:`~jumpmq.broker.commit.turns.Publisher`."""
        if self._withholds:
            return True
        answers = self._confirms.answers()
        if answers and self._link.up:
            assert all(isinstance(answer, m.BasicAck) for answer in answers)
            last = answers[-1].delivery_tag
            told = [one for one in self._refused if one[0] <= last]
            self._refused = [one for one in self._refused if one[0] > last]
            self._link.send(ANSWER, ANSWERED.pack(last, len(told)), *(REFUSED_MESSAGE.pack(*one) for one in told))
        return self._confirms.waiting


class Enqueue:
    """Sends messages to all other homes, and receives their messages: see
    :class:`~jumpmq.broker.routing.sending.Sender`.

    Args:
        account: account of memory, charged with messages in flight.
        is_dead: tells whether the process of a home without a link is known to have ended.
        comes_back: tells whether another node will soon serve a home without a link.

    Attributes:
        on_ready: called with the link to a home that has restored its queues.
    """

    def __init__(
        self,
        links: Links,
        turns: Turns,
        account: MemoryAccount,
        is_dead: Callable[[int], bool],
        comes_back: Callable[[int], bool],
    ) -> None:
        self._is_dead = is_dead
        self._comes_back = comes_back
        self._is_ahead: Callable[[int], bool] = lambda home: False  # tells whether a home's messages have to wait
        self.reply_prefix = b"%d." % links.home
        # While an alarm is in effect here, other homes get no answers, so that their clients get no confirms.
        self._alarms: Alarms | None = None
        self._account = account  # charged with messages in flight
        self._links = links  # to all peers
        self._turns = turns  # those of the broker
        self._topology: Topology  # finds the queues
        self._on_reply: Callable[[Message], object]  # delivers direct replies
        self._serves = False  # whether the local queues are loaded
        self.on_ready: list[Callable[[Link], None]] = []
        self._outgoing: dict[int, _Outgoing] = {}  # by home
        self._incoming: dict[int, _Incoming] = {}  # the same
        # per home: records waiting for a definition, and all later records
        self._early: dict[int, deque[tuple[int, bytes]]] = {}
        # Functions for records, by kind, that are processed in order with the messages of the same home.
        self._in_order: dict[int, RecordHandler] = {REPLY: self._take_reply}
        links.handlers[UNIT] = lambda link, payload: self.take(link, UNIT, payload)
        links.handlers[ANSWER] = self._answered
        links.handlers[REPLY] = lambda link, payload: self.take(link, REPLY, payload)
        links.handlers[READY] = lambda link, payload: self._ready(link)
        links.on_up.append(self._up)
        links.on_down.append(self._down)

    def follow_rings(self, kind: int, on_report: RecordHandler, is_ahead: Callable[[int], bool]) -> None:
        """Handle ring changes of other homes in order with the homes' messages.

        Args:
            kind: kind of the records that report a ring change.
            on_report: handles such a record.
            is_ahead: tells whether a home may already route by a ring not yet current at all homes. Messages from such
                a home wait.
        """
        self._links.handlers[kind] = lambda link, payload: self.take(link, kind, payload)
        self._in_order[kind] = on_report
        self._is_ahead = is_ahead

    def obey(self, alarms: Alarms) -> None:
        """Give other homes no answers while an alarm is in effect."""
        self._alarms = alarms

    def begin(self, topology: Topology) -> None:
        """Allow sending of messages, as messages of remote clients may be dead-lettered here; :meth:`serve` follows."""
        self._topology = topology

    def serve(self, on_reply: Callable[[Message], object]) -> None:
        """Start serving, as the queues are ready.

        Args:
            on_reply: delivers a direct reply to the client named by the message's routing key.
        """
        self._on_reply = on_reply
        self._serves = True
        with self._turns.turn():
            for home in self._links.homes:
                if (link := self._links.to(home)) is not None:
                    link.send(READY)

    def is_ready(self, home: int) -> bool:
        """Return True if another home has loaded its queues: state not outliving the home's last process has ended."""
        outgoing = self._outgoing.get(home)
        return outgoing is not None and outgoing.link is not None

    # --- sending ---

    def send(self, routes: dict[DeclaredQueue, list[Message]], flags: int) -> Sent:
        """See :class:`~jumpmq.broker.routing.sending.Sender`."""
        by_home: dict[int, list[tuple[DeclaredQueue, list[Message]]]] = {}
        copies = 0
        for queue, share in routes.items():
            if not queue.definition.is_kept and self._has_ended(queue.definition.home):
                continue  # the queue ended with its process, and its messages with the queue
            by_home.setdefault(queue.definition.home, []).append((queue, share))
            copies += len(share)
        sent: list[tuple[int, list[Message]]] = []
        parts: dict[int, tuple[Part, ...]] = {}
        by_source: dict[int, Part] = {}
        for home, shares in by_home.items():
            source = FIRST_LINK << home
            unit = Unit(shares)
            sent.append((source, unit.messages))
            outgoing = self._outgoing_to(home)
            if outgoing is None:
                by_source[source] = NOT_TAKEN
                for message in unit.messages:
                    parts[id(message)] = (*parts.get(id(message), ()), NOT_TAKEN)
                continue
            number = outgoing.add(held_octets(unit.messages), self._turns.reader)
            outgoing.send(UNIT, *unit.encoded(number, flags))
            by_source[source] = Part(outgoing, outgoing.sent)
            self._turns.note_sent(source, by_source[source])
            for queue, share in shares:
                if self._may_refuse(queue):
                    for message in share:
                        part = Part(outgoing, number << INDEX_BITS | unit.places[id(message)] + 1)
                        parts[id(message)] = (*parts.get(id(message), ()), part)
        return Sent(len(routes), copies, sent, parts, by_source)

    def send_reply(self, home: int, message: Message) -> bool:
        """See :class:`~jumpmq.broker.routing.sending.Sender`."""
        outgoing = self._outgoing_to(home)
        if outgoing is None:
            return False
        number = outgoing.add(held_octets([message]), self._turns.reader)
        outgoing.send(REPLY, *Unit([], [message]).encoded(number, 0))
        return True

    def _outgoing_to(self, home: int) -> _Outgoing | None:
        """Return the sending end for a home; None if the home does not accept messages."""
        outgoing = self._outgoing.get(home)
        if outgoing is None or outgoing.is_over:
            if not self._comes_back(home):
                return None
            outgoing = self._outgoing[home] = _Outgoing(None, self._account)
            asyncio.get_running_loop().call_later(HOLD_TIMEOUT, self._give_up, outgoing)
        return outgoing if outgoing.takes else None

    def _give_up(self, outgoing: _Outgoing) -> None:
        """Refuse the messages held for a home that did not return in time."""
        if outgoing.holds:
            with self._turns.turn():
                outgoing.lose()
                self._turns.check_receipts()

    def when_answered(self, sent: Sent, then: Callable[[], None]) -> None:
        """See :class:`~jumpmq.broker.routing.sending.Sender`."""
        self._turns.when_known(sent.by_source, then)

    def _has_ended(self, home: int) -> bool:
        """Return True if the process of a home has ended without a successor."""
        return not self.is_ready(home) and self._is_dead(home)

    def _may_refuse(self, queue: DeclaredQueue) -> bool:
        host = self._topology.vhosts.get(queue.vhost)
        return host is not None and may_refuse(host, queue)

    def _answered(self, link: Link, payload: memoryview) -> None:
        outgoing = self._outgoing[link.peer]
        unit, count = ANSWERED.unpack_from(payload)
        places = range(ANSWERED.size, ANSWERED.size + count * REFUSED_MESSAGE.size, REFUSED_MESSAGE.size)
        outgoing.complete(unit, [REFUSED_MESSAGE.unpack_from(payload, place) for place in places])
        self._turns.check_receipts()
        outgoing.forget_refused()

    # --- taking ---

    def take(self, link: Link, kind: int, payload: memoryview) -> None:
        """Handle messages, or a record ordered with messages."""
        early = self._early.get(link.peer)
        if early is not None:
            early.append((kind, bytes(payload)))
        elif (act := self._in_order.get(kind)) is not None:
            act(link, payload)
        elif self._is_ahead(link.peer) or not self._take_unit(link, payload):
            self._early[link.peer] = deque([(kind, bytes(payload))])
            delay = self._links.timing.unknown_queue
            asyncio.get_running_loop().call_later(delay, self._look_at_early, link, self._early[link.peer])
            asyncio.get_running_loop().call_later(PAUSE, self._take_early, link)

    def _take_early(self, link: Link) -> None:
        """Process the waiting records, as far as their queues and rings are known here now."""
        early = self._early.get(link.peer)
        if early is None or self._links.to(link.peer) is not link:
            return
        with self._turns.turn():
            while early:
                kind, payload = early[0]
                if (act := self._in_order.get(kind)) is not None:
                    act(link, memoryview(payload))
                elif self._is_ahead(link.peer) or not self._take_unit(link, memoryview(payload)):
                    asyncio.get_running_loop().call_later(PAUSE, self._take_early, link)
                    return
                early.popleft()
            del self._early[link.peer]

    def _look_at_early(self, link: Link, early: deque[tuple[int, bytes]]) -> None:
        """Log messages still waiting for a queue not known here."""
        if self._early.get(link.peer) is early:
            log.error(
                "messages of home %d have waited %g s for a queue that is unknown to this home: %d batches",
                link.peer, self._links.timing.unknown_queue, len(early),
            )  # fmt: skip

    def _take_unit(self, link: Link, payload: memoryview) -> bool:
        """Push a batch's messages; return False if a queue of the batch has moved here by a change not applied here
        yet.
        """
        unit, flags, messages, queues, at = decoded(payload)
        shares = []
        try:
            for _ in range(queues):
                queue, chosen, at = destination(self._topology, payload, at)
                if queue is not None:  # else deleted meanwhile
                    shares.append((queue, chosen))
        except NotKnownYet:
            return False
        refused: set[int] = set()
        sources = 0
        for queue, chosen in shares:
            share = messages[chosen] if isinstance(chosen, slice) else [messages[place] for place in chosen]
            sources |= queue.source
            back = push_to(queue, share, flags)
            if back:
                places = {id(message): place for place, message in enumerate(messages)}
                refused.update(places[id(message)] for message in back)
        incoming = self._incoming[link.peer]
        incoming.add(unit, sources, sorted(refused))
        if self._alarms is not None and self._alarms.active:
            self._alarms.block(incoming)
        return True

    def _take_reply(self, link: Link, payload: memoryview) -> None:
        unit, _, messages, _, _ = decoded(payload)
        for message in messages:
            self._on_reply(message)
        self._incoming[link.peer].add(unit, 0, [])

    # --- links ---

    def _up(self, link: Link) -> None:
        if self._alarms is not None and link.peer in self._incoming:
            self._alarms.forget(self._incoming[link.peer])
        self._incoming[link.peer] = _Incoming(link, self._turns)
        self._early.pop(link.peer, None)
        if self._serves:
            link.send(READY)

    def _ready(self, link: Link) -> None:
        outgoing = self._outgoing.get(link.peer)
        if outgoing is not None and outgoing.holds:
            outgoing.begin(link)
        else:
            self._outgoing[link.peer] = _Outgoing(link, self._account)
        for told in self.on_ready:
            told(link)

    def _down(self, link: Link) -> None:
        outgoing = self._outgoing.get(link.peer)
        if outgoing is not None and outgoing.link is link:
            outgoing.lose()
            self._turns.check_receipts()
