"""Client's side of remote channels: a channel's requests for queues at remote homes.

A channel has one remote channel at each home that it has asked for something. The home serves it as it serves a channel
of its own clients (:mod:`jumpmq.nodes.channels.served_channels`), and numbers its deliveries; the client's channel
gives them its own tags. A delivery from another home is a message whose queue is one of
:mod:`jumpmq.nodes.channels.remote_consumers`: to settle it tells its home. Rights are judged here, queues and consumers
there.
"""

import asyncio
import itertools
import json
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, InternalError, NotFound
from jumpmq.amqp.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from jumpmq.amqp.messages import Message, decode_deliveries
from jumpmq.broker.channel.group_consumer import GroupArguments
from jumpmq.broker.channel.remote import Then
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.security.tokens import told
from jumpmq.nodes.channels.group_members import SpreadMember
from jumpmq.nodes.channels.remote_consumers import RemoteConsumer, RemoteQueue, Taker
from jumpmq.nodes.channels.shard_choice import ShardChoice
from jumpmq.nodes.messages.enqueue import HOLD_TIMEOUT
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import (
    ASKED,
    CLOSE,
    CODE,
    CREDIT,
    FRAME_REFUSAL,
    FRAMES,
    METHOD,
    NUMBER,
    OPEN,
    PREFETCH,
    SETTLE,
    SETTLED,
    START,
    TWO,
)
from jumpmq.nodes.transport.windows import Owed
from jumpmq.queues import Outcome
from jumpmq.queues.arguments import Limits
from jumpmq.queues.runs import packed_seqs
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel

OUTCOMES = [Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.REQUEUED, Outcome.FAILED]

RESUME_TIMEOUT = 60.0
"""Maximum time in seconds for which a consumer waits for its lost home, before it is cancelled."""

_DELIVER = b"\x00\x3c\x00\x3c"
"""First octets of the payload of ``basic.deliver``."""

_ERRORS = {error.code: error for error in AMQPError.__subclasses__()}
"""By reply code."""


Answered = Callable[[Any, Message | None], None]
"""Callback for the method answering a request, and the method's message, if any."""


@dataclass(slots=True)
class Request:
    """Method not answered yet.

    Attributes:
        queue: what it is about; None where that is no single queue.
        then: acts on the answer.
        waiting: for the answer, or for ``raised``.
        raised: why it is refused, if it is.
    """

    queue: DeclaredQueue | None
    then: "Answered"
    waiting: Waiting
    raised: list[AMQPError] = field(default_factory=list)


class Remote:
    """Remote channel of a channel, at a single home."""

    def __init__(self, ends: "ChannelLinks", channel: "Channel", link: Link, number: int, owed: Owed) -> None:
        self.channel = channel
        self.link = link
        self.number = number
        self.requests: deque[Request] = deque()
        self.consumers: dict[str, Taker] = {}
        self.gone = False
        self._ends = ends  # all of this process
        self._queues: dict[int, RemoteQueue] = {}  # by id
        self._owed = owed  # octets that have come to the client, and that its home has not been told of

    def send(self, kind: int, *payload: bytes) -> None:
        """Send a record."""
        if not self.gone:
            self.link.send(kind, *payload)

    def queue(self, declared: DeclaredQueue) -> RemoteQueue:
        """Return a queue of the remote channel's home."""
        found = self._queues.get(declared.id)
        if found is None:
            in_force = self.channel.connection.vhost.in_force.of(declared).definition
            limits = Limits.of(declared.definition.arguments.plain(), in_force)
            found = self._queues[declared.id] = RemoteQueue(self, declared.vhost, declared.name, declared.id, limits)
        return found

    def source(self) -> RemoteQueue:
        """Return a placeholder for all queues of the remote home with deliveries to a member of a consumer group."""
        return RemoteQueue(self, self.channel.connection.vhost.name, "", 0, Limits.of({}, {}))

    def settle(self, messages: list[Message], outcome: Outcome) -> None:
        """Report the outcome of deliveries."""
        head = SETTLED.pack(self.number, OUTCOMES.index(outcome))
        self.send(SETTLE, head, packed_seqs(messages))

    def add(self, consumer: Taker) -> None:
        """Register a consumer served at the remote home."""
        self.consumers[consumer.tag] = consumer
        self._ends.consumers[consumer.queue.id] += 1

    def forget(self, consumer: Taker) -> None:
        """Unregister a consumer."""
        if self.consumers.get(consumer.tag) is consumer:
            del self.consumers[consumer.tag]
            self._ends.consumers[consumer.queue.id] -= 1

    def lose(self) -> None:
        """Handle the loss of the remote home."""
        self.gone = True
        self._owed.take(self)
        comes_back = self._ends.comes_back(self.link.peer)
        for consumer in list(self.consumers.values()):
            if comes_back and isinstance(consumer, RemoteConsumer) and consumer.resumes:
                self.forget(consumer)
                self._ends.resume(consumer)
            else:
                consumer.cancelled()
        while self.requests:
            request = self.requests.popleft()
            queue = request.queue
            request.raised.append(NotFound("home node is down") if queue is None else down(self.channel, queue))
            request.waiting.end()

    def count(self, octets: int) -> None:
        """So many octets of frames have come."""
        if not self.gone and self._owed.add(self, octets) and not self.channel.connection.congested:
            self._owed.tell()

    def make_room(self) -> None:
        """Acknowledge octets passed on to the client."""
        if octets := self._owed.take(self):
            self.send(CREDIT, TWO.pack(self.number, octets))

    # --- what comes ---

    def take(self, payload: memoryview) -> None:
        """Act on frames."""
        at, content = NUMBER.size, None
        while at < len(payload):
            kind, _, size = START.unpack_from(payload, at)
            begin = at + START.size
            is_delivery = kind == FRAME_METHOD and payload[begin : begin + 4] == _DELIVER
            if is_delivery and (end := self._hand_on(payload, at)) > at:
                at = end
                continue
            at = begin + size + 1
            if is_delivery:
                content = _Content.delivered(payload, begin + 4)
            elif kind == FRAME_METHOD:
                method = m.decode(bytes(payload[begin : begin + size]))
                content = _Content.got(method) if isinstance(method, m.BasicGetOk) else None
                if content is None:
                    self._act(method)
            elif kind == FRAME_HEADER:
                assert content is not None
                content.size = int.from_bytes(payload[begin + 4 : begin + 12])
                content.message.properties = bytes(payload[begin + 12 : begin + size])
            elif kind == FRAME_BODY:
                assert content is not None
                content.pieces.append(bytes(payload[begin : begin + size]))
                content.size -= size
            elif kind == FRAME_REFUSAL:
                self._refused(payload[begin : begin + size])
            if content is not None and not content.size:
                message = content.whole()
                if isinstance(content.method, m.BasicGetOk):
                    self._answer(content.method, message)
                else:
                    self._deliver(content.tag, [message])
                content = None
        self.count(len(payload))

    def _hand_on(self, payload: memoryview, at: int) -> int:
        """Pass on consecutive deliveries to a single consumer, as far as completely received; return
        the end position."""
        begin = at + START.size + len(_DELIVER) + 1
        tag = str(payload[begin : begin + payload[begin - 1]], "utf-8", "surrogateescape")
        consumer = self.consumers.get(tag)
        if isinstance(consumer, RemoteConsumer):
            return consumer.relay(payload, at)
        _, messages, end = decode_deliveries(payload, at)
        if messages:
            self._deliver(tag, messages)
        return end

    def _deliver(self, tag: str, messages: list[Message]) -> None:
        consumer = self.consumers.get(tag)
        if consumer is not None:
            queue = consumer.queue
            for message in messages:
                message.queue = queue
            consumer.deliver(messages)

    def _act(self, method: m.Method) -> None:
        if isinstance(method, m.BasicCancel):
            consumer = self.consumers.get(method.consumer_tag)
            if consumer is not None:
                consumer.cancelled()
        else:
            self._answer(method, None)

    def _answer(self, method: m.Method, message: Message | None) -> None:
        request = self.requests.popleft()
        if not self.channel.closed:
            try:
                request.then(method, message)
            except AMQPError as error:
                request.raised.append(error)
        request.waiting.end()

    def _refused(self, payload: memoryview) -> None:
        (code,) = CODE.unpack_from(payload)
        request = self.requests.popleft()
        text = str(payload[CODE.size :], "utf-8", "surrogateescape")
        request.raised.append(_ERRORS.get(code, InternalError)(text))
        request.waiting.end()


class _Content:
    """Message with frames still arriving."""

    __slots__ = ("message", "method", "pieces", "size", "tag")

    def __init__(self, method: m.BasicGetOk | None, tag: str, message: Message) -> None:
        self.method = method
        self.tag = tag
        self.message = message
        self.size = -1  # octets of its body that are to come; unknown before its header
        self.pieces: list[bytes] = []

    @classmethod
    def delivered(cls, payload: memoryview, at: int) -> "_Content":
        """From the arguments of ``basic.deliver``."""
        tag = str(payload[at + 1 : at + 1 + payload[at]], "utf-8", "surrogateescape")
        at += 1 + payload[at]
        seq, redelivered = int.from_bytes(payload[at : at + 8]), bool(payload[at + 8])
        at += 9
        exchange = str(payload[at + 1 : at + 1 + payload[at]], "utf-8", "surrogateescape")
        at += 1 + payload[at]
        message = Message(exchange, bytes(payload[at + 1 : at + 1 + payload[at]]), b"", b"")
        message.seq, message.redelivered = seq, redelivered
        return cls(None, tag, message)

    @classmethod
    def got(cls, method: m.BasicGetOk) -> "_Content":
        """From ``basic.get-ok``."""
        message = Message(method.exchange, method.routing_key, b"", b"")
        message.seq, message.redelivered = method.delivery_tag, method.redelivered
        return cls(method, "", message)

    def whole(self) -> Message:
        """Return the message, with the complete body."""
        self.message.body = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        return self.message


class ChannelLinks:
    """All remote channels of the process's clients.

    Attributes:
        comes_back: whether a home without a link is served by another node soon: requests for its queues wait, and its
            consumers are opened again.
        is_ready: whether a home has its queues.
        consumers: how many they have, by the id of the queue.
        shard_choice: chooses shards for consumers, also those of other homes.
        members: those of consumer groups that have parts at all homes.
    """

    def __init__(self, links: Links, turns: Turns) -> None:
        self.links = links
        self._turns = turns
        self.comes_back: Callable[[int], bool] = lambda home: False
        self.is_ready: Callable[[int], bool] = lambda home: True
        self._awaited: dict[int, list[Waiting]] = {}  # by home, who waits for its link
        self.consumers: Counter[int] = Counter()
        self.shard_choice = ShardChoice(links, turns, self.consumers)
        self._numbers = itertools.count(1)  # of remote channels
        self._remotes: dict[int, Remote] = {}  # by number
        self._owed: WeakValueDictionary[tuple[str, int], Owed] = WeakValueDictionary()  # by client and home
        self.members: set[SpreadMember] = set()
        links.handlers[FRAMES] = self._take
        links.on_down.append(self._down)
        links.on_up.append(self._up)

    def of(self, channel: "Channel") -> "_OfChannel":
        """Return the remote channels of a channel, all still closed."""
        return _OfChannel(self, channel)

    def open(self, channel: "Channel", link: Link) -> Remote:
        """Open a remote channel."""
        number = next(self._numbers)
        client = channel.connection
        owed = self._owed.setdefault((client.identity, link.peer), Owed())
        remote = self._remotes[number] = Remote(self, channel, link, number, owed)
        user, scopes, until = told(client.user)
        opened = {
            "number": number,
            "channel": channel.number,
            "identity": client.identity,
            "name": client.name,
            "user": user,
            "scopes": scopes,
            "until": until,
            "vhost": client.vhost.name,
            "peer": [client.peer_host, client.peer_port],
            "node": client.node,
            "provided_name": client.provided_name,
        }
        remote.send(OPEN, json.dumps(opened).encode())
        return remote

    def close(self, remote: Remote) -> None:
        """A remote channel is used no longer."""
        for consumer in list(remote.consumers.values()):
            remote.forget(consumer)
        remote.make_room()
        remote.send(CLOSE, NUMBER.pack(remote.number))
        remote.gone = True
        self._remotes.pop(remote.number, None)

    def _take(self, link: Link, payload: memoryview) -> None:
        remote = self._remotes.get(NUMBER.unpack_from(payload)[0])
        if remote is not None:
            remote.take(payload)

    def wait_for(self, home: int, seconds: float = HOLD_TIMEOUT) -> Waiting:
        """Wait for a home to have its queues, so many seconds at most."""
        waiting = Waiting(lambda: None)
        self._awaited.setdefault(home, []).append(waiting)
        asyncio.get_running_loop().call_later(seconds, self._give_up, home, waiting)
        return waiting

    def _give_up(self, home: int, waiting: Waiting) -> None:
        """Stop waiting for a home that did not come back."""
        if waiting in (awaited := self._awaited.get(home, [])):
            awaited.remove(waiting)
            waiting.end()

    def ready(self, link: Link) -> None:
        """Process the end of loading of a home's queues."""
        for waiting in self._awaited.pop(link.peer, ()):
            waiting.end()

    def resume(self, consumer: RemoteConsumer) -> None:
        """Reopen a consumer of a lost home, once another node has loaded the queues of the home."""

        def resume() -> None:
            with self._turns.turn():
                consumer.resume()

        self.wait_for(consumer.declared.definition.home, RESUME_TIMEOUT).on_end(resume)

    def _up(self, link: Link) -> None:
        for member in list(self.members):
            member.home_up(link.peer)

    def _down(self, link: Link) -> None:
        for remote in [one for one in self._remotes.values() if one.link is link]:
            del self._remotes[remote.number]
            remote.lose()


def down(channel: "Channel", queue: DeclaredQueue) -> NotFound:
    """Return the error for a queue at an unreachable home."""
    node = channel.topology.node_of(queue.definition.home)
    durable = "durable " if queue.durable else ""
    return NotFound(
        f"home node '{node}' of {durable}queue '{queue.name}' in vhost '{queue.vhost}' is down or inaccessible"
    )


class _OfChannel:
    """See :class:`~jumpmq.broker.channel.remote.RemoteChannels`."""

    shares_groups = True

    def __init__(self, ends: ChannelLinks, channel: "Channel") -> None:
        self._ends = ends  # those of all channels
        self._channel = channel  # the client's
        self._remotes: dict[int, Remote] = {}  # by home

    def ask(self, queue: DeclaredQueue, method: m.Method, then: Then) -> Waiting:
        return self._ask(queue, method, lambda answer, message: then(answer))

    def _ask(self, queue: DeclaredQueue, method: m.Method, then: Answered) -> Waiting:
        home = queue.definition.home

        def ask() -> Waiting:
            remote = self.at(home)
            if remote is None:
                raise down(self._channel, queue)
            return self.ask_at(remote, method, then, queue).waiting

        if self._ends.comes_back(home) and not self._ends.is_ready(home):
            return self._ends.wait_for(home).followed_by(ask)
        return ask()

    def ask_at(self, remote: Remote, method: m.Method, then: Answered, queue: DeclaredQueue | None = None) -> Request:
        def go_on() -> None:
            if request.raised:
                raise request.raised[0]

        request = Request(queue, then, Waiting(go_on))
        remote.requests.append(request)
        channel = self._channel
        head = ASKED.pack(remote.number, channel.consumer_prefetch, channel.prefetch)
        remote.send(METHOD, head, method.encode())
        return request

    def at(self, home: int) -> Remote | None:
        remote = self._remotes.get(home)
        if remote is None or remote.gone:
            link = self._ends.links.to(home)
            if link is None:
                return None
            remote = self._remotes[home] = self._ends.open(self._channel, link)
        return remote

    @property
    def up(self) -> list[int]:
        return self._ends.links.homes

    def close_unused(self, home: int) -> None:
        remote = self._remotes.get(home)
        if remote is not None and not (remote.gone or remote.consumers or remote.requests):
            self._ends.close(remote)

    def follow(self, member: SpreadMember) -> None:
        self._ends.members.add(member)

    def follow_no_more(self, member: SpreadMember) -> None:
        self._ends.members.discard(member)

    def join(self, method: m.BasicConsume, membership: GroupArguments) -> Waiting | None:
        return SpreadMember(self._channel, self, method, membership).begin()

    def consume(self, queue: DeclaredQueue, method: m.BasicConsume) -> Waiting:
        channel = self._channel

        def consumes(answer: m.Method, message: Message | None) -> None:
            remote = self._remotes[queue.definition.home]
            consumer = RemoteConsumer(channel, remote, queue, remote.queue(queue), method, self._resume)
            remote.add(consumer)
            channel.add(consumer)
            if not method.no_wait:
                channel.send(m.BasicConsumeOk(consumer.tag))

        return self._ask(queue, replace(method, no_wait=False), consumes)

    def _resume(self, consumer: RemoteConsumer, method: m.BasicConsume) -> None:
        """Open a consumer again. What it has not settled comes again."""
        if self._channel.closed or self._channel.consumers.get(consumer.tag) is not consumer:
            return
        queue = consumer.declared
        remote = self.at(queue.definition.home)
        if remote is None:
            consumer.cancelled()
            return

        def consumes(answer: m.Method, message: Message | None) -> None:
            consumer.remote, consumer.queue = remote, remote.queue(queue)
            remote.add(consumer)

        request = self.ask_at(remote, replace(method, no_wait=False), consumes, queue)
        request.waiting.on_end(lambda: consumer.cancelled() if request.raised else None)

    def choose(self, exchange: str, then: Callable[[str], Waiting | None]) -> Waiting | None:
        return self._ends.shard_choice.choose(self._channel, exchange, then)

    def get(
        self, queue: DeclaredQueue, method: m.BasicGet, then: Callable[[m.BasicGetOk, Message], None], empty: Then
    ) -> Waiting:
        def answered(answer: m.Method, message: Message | None) -> None:
            if message is not None and isinstance(answer, m.BasicGetOk):
                message.queue = self._remotes[queue.definition.home].queue(queue)
                then(answer, message)
            else:
                empty(answer)

        return self._ask(queue, method, answered)

    def cancel(self, tag: str, then: Callable[[], None]) -> Waiting | None:
        consumer = self._channel.consumers.get(tag)
        if isinstance(consumer, SpreadMember):
            return consumer.cancel(then)
        if not isinstance(consumer, RemoteConsumer):
            return None

        def cancelled(answer: m.Method) -> None:
            consumer.leave()
            then()

        return self.ask(consumer.declared, m.BasicCancel(tag, False), cancelled)

    @property
    def opened(self) -> Collection[int]:
        return self._remotes

    def queue(self, vhost: VirtualHost, name: str, connection: str) -> DeclaredQueue | None:
        found = vhost.declared.get(name)
        if found is None or found.contents is not None:
            return None
        return vhost.declared_queue(name, connection)

    def set_prefetch(self) -> None:
        for remote in self._remotes.values():
            remote.send(PREFETCH, TWO.pack(remote.number, self._channel.prefetch))

    def make_room(self) -> None:
        for remote in self._remotes.values():
            remote.make_room()

    def consumers_of(self, queue: DeclaredQueue) -> int:
        return self._ends.consumers[queue.id]

    def close(self) -> None:
        for remote in self._remotes.values():
            if not remote.gone:
                self._ends.close(remote)
