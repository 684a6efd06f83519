"""Client's end of a channel's part at one other home: requests in order, deliveries, and their settlement.

The other home serves this end like a channel of its own clients, and numbers the deliveries
(:mod:`jumpmq.nodes.channels.served_channels`).
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, InternalError, NotFound
from jumpmq.amqp.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from jumpmq.amqp.messages import Message, decode_deliveries
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.nodes.channels.remote_consumers import RemoteConsumer, RemoteQueue, Taker
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.records import (
    CODE,
    CREDIT,
    FRAME_REFUSAL,
    NUMBER,
    SETTLE,
    SETTLED,
    START,
    TWO,
)
from jumpmq.nodes.transport.windows import Owed
from jumpmq.queues import Outcome
from jumpmq.queues.arguments import Limits
from jumpmq.queues.runs import packed_seqs
from jumpmq.topology.declared import DeclaredQueue

if TYPE_CHECKING:
    from jumpmq.broker.channel.remote import LinkedChannel

OUTCOMES = [Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.REQUEUED, Outcome.FAILED]

_DELIVER = b"\x00\x3c\x00\x3c"
"""First octets of the payload of ``basic.deliver``."""

_ERRORS = {error.code: error for error in AMQPError.__subclasses__()}
"""Exception classes by reply code."""


Answered = Callable[[Any, Message | None], None]
"""Callback for the method answering a request, and the method's message, if any."""


@dataclass(slots=True)
class Request:
    """A request without an answer yet.

    Attributes:
        queue: the queue of the request; None for several queues.
        then: called with the answer.
        waiting: ends with the answer or the refusal.
        raised: the refusal, if any.
    """

    queue: DeclaredQueue | None
    then: Answered
    waiting: Waiting
    raised: list[AMQPError] = field(default_factory=list)


class RemoteEnds(Protocol):
    """The process's remote channels; see :class:`~jumpmq.nodes.channels.remote_channels.ChannelLinks`."""

    @property
    def consumers(self) -> Counter[int]:
        """Number of the clients' consumers by id of the remote queue."""

    @property
    def comes_back(self) -> Callable[[int], bool]:
        """Tells whether another node will soon serve a lost home."""

    def resume(self, consumer: RemoteConsumer) -> None:
        """Open a consumer of a lost home again, once another node has loaded the home's queues."""


class RemoteChannel:
    """Remote channel of a channel, at a single home."""

    def __init__(self, ends: RemoteEnds, channel: "LinkedChannel", link: Link, number: int, owed: Owed) -> None:
        self.channel = channel
        self.link = link
        self.number = number
        self.requests: deque[Request] = deque()
        self.consumers: dict[str, Taker] = {}
        self.gone = False
        self._ends = ends  # all remote channels of the process
        self._queues: dict[int, RemoteQueue] = {}  # by id
        self._owed = owed  # octets received and not acknowledged to the home

    def send(self, kind: int, *payload: bytes) -> None:
        """Send a record."""
        if not self.gone:
            self.link.send(kind, *payload)

    def queue(self, declared: DeclaredQueue) -> RemoteQueue:
        """Return a queue of the remote channel's home."""
        found = self._queues.get(declared.id)
        if found is None:
            in_force = self.channel.connection.vhost.in_force.of(declared).definition
            limits = Limits.of(declared.definition.arguments.plain(), in_force, declared.type)
            found = self._queues[declared.id] = RemoteQueue(self, declared.vhost, declared.name, declared.id, limits)
        return found

    def source(self) -> RemoteQueue:
        """Return a placeholder for all queues of the other home with deliveries to a member of a consumer group."""
        return RemoteQueue(self, self.channel.connection.vhost.name, "", 0, Limits.of({}, {}))

    def settle(self, messages: list[Message], outcome: Outcome) -> None:
        """Report the outcome of deliveries."""
        head = SETTLED.pack(self.number, OUTCOMES.index(outcome))
        self.send(SETTLE, head, packed_seqs(messages))

    def add(self, consumer: Taker) -> None:
        """Register a consumer served at the other home."""
        self.consumers[consumer.tag] = consumer
        self._ends.consumers[consumer.queue.id] += 1

    def forget(self, consumer: Taker) -> None:
        """Unregister a consumer."""
        if self.consumers.get(consumer.tag) is consumer:
            del self.consumers[consumer.tag]
            self._ends.consumers[consumer.queue.id] -= 1

    def lose(self) -> None:
        """Handle the loss of the other home."""
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
        """Note the octets of received frames."""
        if not self.gone and self._owed.add(self, octets) and not self.channel.connection.congested:
            self._owed.tell()

    def make_room(self) -> None:
        """Acknowledge octets passed on to the client."""
        if octets := self._owed.take(self):
            self.send(CREDIT, TWO.pack(self.number, octets))

    # --- what comes ---

    def take(self, payload: memoryview) -> None:
        """Process frames."""
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
                content = _ArrivingContent.delivered(payload, begin + 4)
            elif kind == FRAME_METHOD:
                method = m.decode(bytes(payload[begin : begin + size]))
                content = _ArrivingContent.got(method) if isinstance(method, m.BasicGetOk) else None
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
        """Pass consecutive deliveries on to one consumer, as far as completely received; return the position after
        them.
        """
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


class _ArrivingContent:
    """Message with frames still arriving."""

    __slots__ = ("message", "method", "pieces", "size", "tag")

    def __init__(self, method: m.BasicGetOk | None, tag: str, message: Message) -> None:
        self.method = method
        self.tag = tag
        self.message = message
        self.size = -1  # octets of the body still to come; -1 before the header
        self.pieces: list[bytes] = []

    @classmethod
    def delivered(cls, payload: memoryview, at: int) -> "_ArrivingContent":
        """Start a message from the arguments of ``basic.deliver``."""
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
    def got(cls, method: m.BasicGetOk) -> "_ArrivingContent":
        """Start a message from ``basic.get-ok``."""
        message = Message(method.exchange, method.routing_key, b"", b"")
        message.seq, message.redelivered = method.delivery_tag, method.redelivered
        return cls(method, "", message)

    def whole(self) -> Message:
        """Return the message, with the complete body."""
        self.message.body = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        return self.message


def down(channel: "LinkedChannel", queue: DeclaredQueue) -> NotFound:
    """Return the error for a queue at an unreachable home."""
    node = channel.topology.node_of(queue.definition.home)
    durable = "durable " if queue.durable else ""
    return NotFound(
        f"home node '{node}' of {durable}queue '{queue.name}' in vhost '{queue.vhost}' is down or inaccessible"
    )
