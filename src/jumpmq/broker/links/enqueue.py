"""Messages for queues of other homes: what a turn publishes goes over a link, which answers when it is complete there.

What is sent by one push to one home is a *unit*, which holds each message once and says which queues get it. Units of
a link are numbered, and the home answers in order: which messages its queues have refused, and up to which unit all is
complete. A link is so a source of receipts. When it breaks, what is not answered is refused: it may have arrived, and
whoever publishes it again may have it twice, as after any connection that broke.

A link is always read, so a home that is slow holds up no other. It is the clients who publish faster to it than it
answers that are not read, until it has (:data:`CREDIT`).
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain
from time import time

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.commit.receipts import DONE, NOT_TAKEN, PENDING, REFUSED, Part, State
from jumpmq.broker.commit.turns import Client, Turns
from jumpmq.broker.links.link import Link
from jumpmq.broker.links.links import Links
from jumpmq.broker.routing.elsewhere import Sent
from jumpmq.broker.routing.routing import push_to
from jumpmq.queues import Queue, clock
from jumpmq.queues.base import FIRST_LINK
from jumpmq.queues.memory import MemoryAccount, held_octets
from jumpmq.queues.runs import pack, unpack
from jumpmq.topology import Topology
from jumpmq.topology.declared import DeclaredQueue

UNIT, ANSWER, READY, REPLY = 64, 65, 66, 67
"""Kinds of records: messages for queues; what became of units; that the queues are there; a direct reply."""

INDEX_BITS = 24
"""Bits of a number of receipts behind the unit's: the message's place in the unit, from 1; all of them are set for the
unit as a whole."""

WHOLE = (1 << INDEX_BITS) - 1

_UNIT = struct.Struct("!QIII")
"""Number of the unit, property flags, messages, queues."""

_QUEUE = struct.Struct("!QHHI?")
"""Id, octets of virtual host and name; how many messages it gets; whether these are side by side, so that only the
place of the first follows, or that of each."""

_PLACE = struct.Struct("!I")

_ANSWER = struct.Struct("!QI")
"""The last unit that is complete; how many refused messages follow, each unit and place."""

_REFUSED = struct.Struct("!QI")

CREDIT = 32 << 20
"""Octets that may be on their way to a home without an answer, before who publishes more is not read."""

REFUSALS = frozenset({"reject-publish", "reject-publish-dlx"})


class _Outgoing:
    """One end of a link, as a source of receipts.

    Attributes:
        sent: the last unit that was sent, as a number of receipts.
    """

    def __init__(self, link: Link | None, account: MemoryAccount) -> None:
        self.link = link
        self.sent = 0
        self._completed = 0  # everything up to here is complete, but for what was refused
        self._lost = 0  # everything up to here that was not complete is refused
        self._refused: set[int] = set()  # messages that were refused by themselves, and not asked for yet
        self._on_way: deque[tuple[int, int]] = deque()  # units that are not answered, and octets of each
        self._octets = 0  # of all of them
        self._held: set[Client] = set()  # are not read until fewer are on their way
        self._account = account  # what is on its way is charged to it

    def add(self, octets: int, reader: Client | None) -> int:
        """One more unit is sent; returns its number.

        Args:
            reader: who is not to be read while too much is on its way; None where that cannot be.
        """
        unit = (self.sent >> INDEX_BITS) + 1
        self.sent = unit << INDEX_BITS | WHOLE
        self._on_way.append((unit, octets))
        self._count(octets)
        if self._octets > CREDIT and reader is not None and reader not in self._held:
            self._held.add(reader)
            reader.wait_for_home(True)
        return unit

    def _count(self, octets: int) -> None:
        self._octets += octets
        self._account.charge("staged", octets)
        if self._octets <= CREDIT // 2:
            while self._held:
                self._held.pop().wait_for_home(False)

    def state(self, number: int) -> State:
        """See :class:`~jumpmq.broker.commit.receipts.Source`."""
        if number in self._refused:
            return REFUSED
        if number <= self._completed:
            return DONE
        return REFUSED if number <= self._lost else PENDING

    def complete(self, unit: int, refused: Iterable[tuple[int, int]]) -> None:
        """All units up to one are complete, but for what was refused."""
        for number, place in refused:
            self._refused.add(number << INDEX_BITS | place)
        self._completed = max(self._completed, unit << INDEX_BITS | WHOLE)
        answered = 0
        while self._on_way and self._on_way[0][0] <= unit:
            answered += self._on_way.popleft()[1]
        self._count(-answered)

    def forget_refused(self) -> None:
        """Those who wait have been told of what is complete."""
        self._refused = {number for number in self._refused if number > self._completed}

    def lose(self) -> None:
        """The link is broken."""
        self.link = None
        self._lost = self.sent
        self._on_way.clear()
        self._count(-self._octets)


class _Incoming:
    """The other end: pushes units to its queues, and answers when that is complete. To turns it is a publisher."""

    def __init__(self, link: Link, turns: Turns) -> None:
        self._link = link  # where the answers go
        self._turns = turns  # tell when it is complete
        self._confirms = Confirms()  # a unit is one publish
        self._refused: list[tuple[int, int]] = []  # not told yet

    def add(self, unit: int, sources: int, refused: list[int]) -> None:
        """A unit was pushed to queues with these sources, and they have refused the messages at these places."""
        assert unit == self._confirms.published + 1
        self._confirms.add(1, sources)
        self._refused += [(unit, place + 1) for place in refused]
        self._turns.confirm(self)

    def seal_confirms(self, parts: Mapping[int, Part]) -> bool:
        """See :class:`~jumpmq.broker.commit.turns.Publisher`."""
        self._confirms.seal(parts)
        return not self._confirms.due or self.send_confirms()

    def send_confirms(self) -> bool:
        """The same."""
        answers = self._confirms.answers()
        if answers and self._link.up:
            assert all(isinstance(answer, m.BasicAck) for answer in answers)
            last = answers[-1].delivery_tag
            told = [one for one in self._refused if one[0] <= last]
            self._refused = [one for one in self._refused if one[0] > last]
            self._link.send(ANSWER, _ANSWER.pack(last, len(told)), *(_REFUSED.pack(*one) for one in told))
        return self._confirms.waiting


class Enqueue:
    """Sends to all other homes, and takes what they send: see :class:`~jumpmq.broker.routing.elsewhere.Elsewhere`."""

    def __init__(self, links: Links, turns: Turns, account: MemoryAccount) -> None:
        self._account = account  # what is on its way is charged to it
        self._links = links  # one to each home
        self._turns = turns  # those of the broker
        self._topology: Topology  # finds the queues
        self._on_reply: Callable[[Message], object]  # delivers answers
        self._serves = False  # whether they are there
        self._outgoing: dict[int, _Outgoing] = {}  # by home
        self._incoming: dict[int, _Incoming] = {}  # the same
        links.handlers[UNIT] = self._take
        links.handlers[ANSWER] = self._answered
        links.handlers[REPLY] = self._take_reply
        links.handlers[READY] = lambda link, payload: self._ready(link)
        links.on_up.append(self._up)
        links.on_down.append(self._down)

    def serve(self, topology: Topology, on_reply: Callable[[Message], object]) -> None:
        """The queues are there from now on.

        Args:
            on_reply: delivers an answer to the direct reply-to address that is its routing key.
        """
        self._topology, self._on_reply = topology, on_reply
        self._serves = True
        with self._turns.turn():
            for home in self._links.homes:
                if (link := self._links.to(home)) is not None:
                    link.send(READY)

    # --- sending ---

    def send(self, routes: dict[DeclaredQueue, list[Message]], flags: int) -> Sent:
        """See :class:`~jumpmq.broker.routing.elsewhere.Elsewhere`."""
        by_home: dict[int, list[tuple[DeclaredQueue, list[Message]]]] = {}
        copies = 0
        for queue, share in routes.items():
            by_home.setdefault(queue.definition.home, []).append((queue, share))
            copies += len(share)
        sent: list[tuple[int, list[Message]]] = []
        parts: dict[int, tuple[Part, ...]] = {}
        by_source: dict[int, Part] = {}
        for home, shares in by_home.items():
            source = FIRST_LINK << home
            unit = _Unit(shares)
            sent.append((source, unit.messages))
            outgoing = self._outgoing.get(home)
            if outgoing is None or outgoing.link is None:
                by_source[source] = NOT_TAKEN
                for message in unit.messages:
                    parts[id(message)] = (*parts.get(id(message), ()), NOT_TAKEN)
                continue
            number = outgoing.add(held_octets(unit.messages), self._turns.reader)
            outgoing.link.send(UNIT, *unit.encoded(number, flags))
            by_source[source] = Part(outgoing, outgoing.sent)
            self._turns.note_sent(source, by_source[source])
            for queue, share in shares:
                if self._may_refuse(queue):
                    for message in share:
                        part = Part(outgoing, number << INDEX_BITS | unit.places[id(message)] + 1)
                        parts[id(message)] = (*parts.get(id(message), ()), part)
        return Sent(len(routes), copies, sent, parts, by_source)

    def send_reply(self, home: int, message: Message) -> bool:
        """See :class:`~jumpmq.broker.routing.elsewhere.Elsewhere`."""
        outgoing = self._outgoing.get(home)
        if outgoing is None or outgoing.link is None:
            return False
        outgoing.link.send(REPLY, *_Unit([], [message]).encoded(0, 0))
        return True

    def when_answered(self, sent: Sent, then: Callable[[], None]) -> None:
        """See :class:`~jumpmq.broker.routing.elsewhere.Elsewhere`."""
        self._turns.when_known(sent.by_source, then)

    def _may_refuse(self, queue: DeclaredQueue) -> bool:
        """Whether a queue may refuse a message by itself."""
        if queue.definition.arguments.plain().get("x-overflow") in REFUSALS:
            return True
        host = self._topology.vhosts.get(queue.vhost)
        return host is not None and host.in_force(queue).definition.get("overflow") in REFUSALS

    def _answered(self, link: Link, payload: memoryview) -> None:
        outgoing = self._outgoing[link.peer]
        unit, count = _ANSWER.unpack_from(payload)
        places = range(_ANSWER.size, _ANSWER.size + count * _REFUSED.size, _REFUSED.size)
        outgoing.complete(unit, [_REFUSED.unpack_from(payload, place) for place in places])
        self._turns.look_at_receipts()
        outgoing.forget_refused()

    # --- taking ---

    def _take(self, link: Link, payload: memoryview) -> None:
        unit, flags, messages, queues, at = _decoded(payload)
        refused: set[int] = set()
        sources = 0
        for _ in range(queues):
            queue, chosen, at = self._destination(payload, at)
            if queue is None:  # deleted meanwhile: they reach no queue
                continue
            share = messages[chosen] if isinstance(chosen, slice) else [messages[place] for place in chosen]
            sources |= queue.source
            back = push_to(queue, share, flags)
            if back:
                places = {id(message): place for place, message in enumerate(messages)}
                refused.update(places[id(message)] for message in back)
        self._incoming[link.peer].add(unit, sources, sorted(refused))

    def _take_reply(self, link: Link, payload: memoryview) -> None:
        for message in _decoded(payload)[2]:
            self._on_reply(message)

    def _destination(self, payload: memoryview, at: int) -> tuple[Queue | None, tuple[int, ...] | slice, int]:
        """A queue, the places of what it gets, and where the next begins."""
        number, host_octets, name_octets, count, side_by_side = _QUEUE.unpack_from(payload, at)
        at += _QUEUE.size
        vhost = bytes(payload[at : at + host_octets]).decode(errors="surrogateescape")
        at += host_octets
        name = bytes(payload[at : at + name_octets]).decode(errors="surrogateescape")
        at += name_octets
        chosen: tuple[int, ...] | slice
        if side_by_side:
            first = _PLACE.unpack_from(payload, at)[0]
            chosen = slice(first, first + count)
            at += _PLACE.size
        else:
            chosen = struct.unpack_from(f"!{count}I", payload, at)
            at += 4 * count
        host = self._topology.vhosts.get(vhost)
        queue = None if host is None else host.queues.get(name)
        return (queue if queue is not None and queue.id == number else None), chosen, at

    # --- links ---

    def _up(self, link: Link) -> None:
        self._incoming[link.peer] = _Incoming(link, self._turns)
        if self._serves:
            link.send(READY)

    def _ready(self, link: Link) -> None:
        self._outgoing[link.peer] = _Outgoing(link, self._account)

    def _down(self, link: Link) -> None:
        outgoing = self._outgoing.get(link.peer)
        if outgoing is not None and outgoing.link is link:
            outgoing.lose()
            self._turns.look_at_receipts()


class _Unit:
    """What goes to one home together.

    Args:
        shares: the messages of each queue.
        messages: all of them, each once; found in ``shares`` unless given.
    """

    def __init__(
        self, shares: list[tuple[DeclaredQueue, list[Message]]], messages: list[Message] | None = None
    ) -> None:
        self.messages = list(chain.from_iterable(share for _, share in shares)) if messages is None else messages
        self._shares = shares  # of each queue
        self._side_by_side = len(shares) <= 1 or len(set(map(id, self.messages))) == len(self.messages)
        if not self._side_by_side:  # some go to several queues
            self.messages = list({id(message): message for message in self.messages}.values())

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each message, by its ``id``."""
        return {id(message): place for place, message in enumerate(self.messages)}

    def encoded(self, number: int, flags: int) -> list[bytes]:
        buffers = [_UNIT.pack(number, flags, len(self.messages), len(self._shares))]
        buffers += pack(self.messages, clock.now())
        first = 0
        for queue, share in self._shares:
            host, name = queue.vhost.encode(errors="surrogateescape"), queue.name.encode(errors="surrogateescape")
            buffers += (_QUEUE.pack(queue.id, len(host), len(name), len(share), self._side_by_side), host, name)
            if self._side_by_side:
                buffers.append(_PLACE.pack(first))
                first += len(share)
            else:
                buffers.append(struct.pack(f"!{len(share)}I", *(self.places[id(message)] for message in share)))
        return buffers


def _decoded(payload: memoryview) -> tuple[int, int, list[Message], int, int]:
    """The unit's number, flags and messages, the number of its queues, and where these begin."""
    unit, flags, count, queues = _UNIT.unpack_from(payload)
    messages, at = unpack(payload, _UNIT.size, count, time(), clock.now())
    return unit, flags, messages, queues, at
