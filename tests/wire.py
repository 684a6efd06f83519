"""A small blocking AMQP 0-9-1 client that shows every frame, and can violate the protocol.

Tests use it where a real client would hide the relevant part: the order of frames, the text of an error, octets that no
client would send. Methods are those of `pamqp.commands`; the rest is written here.
"""

import contextlib
import itertools
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from pamqp.frame import marshal
from pamqp.header import ContentHeader

__all__ = [
    "BODY", "HEADER", "HEARTBEAT", "METHOD", "PROTOCOL_HEADER", "Basic", "Channel", "ChannelClosed", "Closed",
    "Confirm", "Connection", "ConnectionClosed", "Content", "Exchange", "Hangup", "Queue", "Tx", "WireChannel",
    "WireConnection", "closing", "content_header", "dial", "frame", "login",
]  # fmt: skip

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
PATIENCE = 60.0
"""Timeout in seconds for an expected frame."""


class Closed(Exception):
    """A close by the broker, with a reply code and text."""

    def __init__(self, code: int | None, text: str, class_id: int | None, method_id: int | None) -> None:
        assert code is not None  # pamqp allows its absence
        super().__init__(f"{code} {text}")
        self.code, self.text, self.method = code, text, (class_id, method_id)


class ChannelClosed(Closed):
    """The broker sent `channel.close`."""


class ConnectionClosed(Closed):
    """The broker sent `connection.close`."""


class Hangup(Exception):
    """The broker closed the socket without `connection.close`."""


@dataclass(frozen=True, slots=True)
class Content:
    """A method with content: `basic.deliver`, `basic.get-ok` or `basic.return`."""

    method: Any
    properties: Basic.Properties
    body: bytes

    @property
    def headers(self) -> dict[str, Any]:
        """The headers of a message with headers."""
        assert self.properties.headers is not None
        return self.properties.headers


def frame(kind: int, channel: int, payload: bytes, *, size: int | None = None, end: bytes = b"\xce") -> bytes:
    """The octets of a frame; ``size`` and ``end`` allow false values."""
    return struct.pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


def content_header(body_size: int, properties: bytes = b"\0\0", *, class_id: int = 60) -> bytes:
    """The payload of a content header frame; ``properties`` from the flag octets on."""
    return struct.pack(">HHQ", class_id, 0, body_size) + properties


def dial(
    port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, preamble: bytes = b""
) -> "WireConnection":
    """A connected socket without sent octets; with TLS, to the broker `localhost`."""
    plain = socket.create_connection((host, port), timeout=PATIENCE)
    plain.sendall(preamble)
    return WireConnection(plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost"))


def login(
    port: int,
    *,
    user: str = "guest",
    password: str = "guest",
    vhost: str = "/",
    mechanism: str = "PLAIN",
    capabilities: tuple[str, ...] = ("authentication_failure_close", "consumer_cancel_notify", "basic.nack"),
    channel_max: int = 2047,
    frame_max: int = 131072,
    heartbeat: int = 0,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    client_properties: dict[str, Any] | None = None,
    preamble: bytes = b"",
) -> "WireConnection":
    """Return an open connection.

    Raises:
        ConnectionClosed: the broker refused with a reason.
        Hangup: the broker refused silently.
    """
    connection = dial(port, host, tls, preamble)
    try:
        connection.send(PROTOCOL_HEADER)
        connection.start = connection.expect(Connection.Start)
        properties: dict[str, Any] = {"capabilities": dict.fromkeys(capabilities, True), **(client_properties or {})}
        response = f"\0{user}\0{password}"
        if mechanism == "AMQPLAIN":
            response = amqplain(user, password)
        connection.send_method(0, Connection.StartOk(properties, mechanism, response, "en_US"))
        connection.tune = connection.expect(Connection.Tune)
        connection.frame_max = frame_max
        connection.send_method(0, Connection.TuneOk(channel_max, frame_max, heartbeat))
        connection.send_method(0, Connection.Open(vhost))
        connection.expect(Connection.OpenOk)
    except BaseException:
        connection.hang_up()
        raise
    return connection


def amqplain(user: str, password: str) -> str:
    """The AMQPLAIN response: a field table without its length."""
    fields = (("LOGIN", user), ("PASSWORD", password))
    return b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"S" + struct.pack(">I", len(value)) + value.encode()
        for name, value in fields
    ).decode("latin-1")


class WireConnection:
    """A socket with its frames in order, and its open channels."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._received = bytearray()
        self._events: dict[int, deque[Method | Content]] = {}
        self._numbers = itertools.count(1)
        self.frame_max = 131072
        self.start: Connection.Start
        self.tune: Connection.Tune

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()

    # -- octets and frames ------------------------------------------------------------------------------------

    def send(self, octets: bytes) -> None:
        self._socket.sendall(octets)

    def send_method(self, channel: int, method: Method) -> None:
        self.send(marshal(method, channel))

    def read_octets(self, timeout: float = PATIENCE) -> bytes:
        """The next octets of the broker; empty after its close of the socket."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(1 << 18)
        except ConnectionResetError:
            return b""

    def read_frame(self, timeout: float = PATIENCE) -> tuple[int, int, bytes]:
        """The next frame as (type, channel, payload).

        Raises:
            TimeoutError: no frame arrived in time.
            Hangup: the broker closed the socket.
        """
        deadline = time.monotonic() + timeout
        while not (ready := self._split()):
            octets = self.read_octets(max(deadline - time.monotonic(), 0.001))
            if not octets:
                raise Hangup("the broker closed the socket")
            self._received += octets
        return ready

    def _split(self) -> tuple[int, int, bytes] | None:
        if len(self._received) < 7:
            return None
        kind, channel, size = struct.unpack_from(">BHI", self._received)
        if len(self._received) < size + 8:
            return None
        payload = bytes(self._received[7 : 7 + size])
        assert self._received[7 + size] == 0xCE, "frame end"
        del self._received[: size + 8]
        return kind, channel, payload

    # -- methods and messages ---------------------------------------------------------------------------------

    def next_event(self, channel: int, timeout: float = PATIENCE) -> Any:
        """The next method or message on a channel; a close by the broker is answered and raised."""
        deadline = time.monotonic() + timeout
        while not self._events.get(channel):
            self._receive_event(max(deadline - time.monotonic(), 0.001))
        event = self._events[channel].popleft()
        if isinstance(event, Channel.Close):
            self.send_method(channel, Channel.CloseOk())
            raise ChannelClosed(event.reply_code, event.reply_text, event.class_id, event.method_id)
        return event

    def _receive_event(self, timeout: float) -> None:
        kind, channel, payload = self.read_frame(timeout)
        if kind == HEARTBEAT:
            return
        assert kind == METHOD, f"frame of type {kind} where a method was due"
        method = parse_method(payload)
        if isinstance(method, Connection.Close):
            with contextlib.suppress(OSError):
                self.send_method(0, Connection.CloseOk())
            raise ConnectionClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
        carries_message = isinstance(method, Basic.Deliver | Basic.GetOk | Basic.Return)
        event = self._receive_content(method, channel) if carries_message else method
        self._events.setdefault(channel, deque()).append(event)

    def _receive_content(self, method: Method, channel: int) -> Content:
        kind, number, payload = self.read_frame()
        assert (kind, number) == (HEADER, channel)
        header = ContentHeader()
        header.unmarshal(payload)
        body = bytearray()
        while len(body) < header.body_size:
            kind, number, payload = self.read_frame()
            assert (kind, number) == (BODY, channel)
            assert len(payload) + 8 <= self.frame_max, "frame larger than negotiated"
            body += payload
        return Content(method, header.properties, bytes(body))

    def expect(self, *expected: type[Method], channel: int = 0, timeout: float = PATIENCE) -> Any:
        """The next event on a channel, which must be one of these methods."""
        event = self.next_event(channel, timeout)
        method = event.method if isinstance(event, Content) else event
        assert isinstance(method, expected), f"{method.name} came"
        return event

    def refusal(self, timeout: float = PATIENCE) -> tuple[int, str]:
        """Code and text of the expected `connection.close`."""
        try:
            while True:
                self._receive_event(timeout)
        except ConnectionClosed as closed:
            return closed.code, closed.text

    # -- life -------------------------------------------------------------------------------------------------

    def channel(self, number: int | None = None) -> "WireChannel":
        channel = WireChannel(self, next(self._numbers) if number is None else number)
        channel.call(Channel.Open())
        return channel

    def finds(self, declaration: Queue.Declare | Exchange.Declare) -> bool:
        """Return true if a passive declaration succeeds; for a queue, the declaration renews its lease."""
        try:
            self.channel().call(declaration)
        except ChannelClosed as closed:
            assert closed.code == 404
            return False
        return True

    def close(self) -> None:
        """Close cleanly: all earlier frames are processed on return."""
        self.send_method(0, Connection.Close(200, "bye", 0, 0))
        while not isinstance(self.next_event(0), Connection.CloseOk):
            pass
        self.hang_up()

    def hang_up(self) -> None:
        self._socket.close()

    @property
    def address(self) -> tuple[str, int]:
        """The client's host and port."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    @property
    def closed_by_broker(self) -> bool:
        """Return true if the broker closes the socket within the timeout."""
        with contextlib.suppress(TimeoutError):
            while self.read_octets():
                pass
            return True
        return False


class WireChannel:
    """A channel of a connection."""

    def __init__(self, connection: WireConnection, number: int) -> None:
        self.connection = connection
        self.number = number
        self._kept: deque[Any] = deque()
        self._published = 0
        self._confirmed: set[int] = set()

    def send(self, method: Method) -> None:
        self.connection.send_method(self.number, method)

    def send_frame(self, kind: int, payload: bytes) -> None:
        self.connection.send(frame(kind, self.number, payload))

    def call(self, method: Method) -> Any:
        """Send a method and return its answer; earlier messages and confirms are kept for `next`."""
        self.send(method)
        while True:
            event = self.connection.next_event(self.number)
            answer = event.method if isinstance(event, Content) else event
            if answer.name in method.valid_responses:
                return event
            self._kept.append(event)

    def next(self, timeout: float = PATIENCE) -> Any:
        """The next message, return, confirm or notice on this channel."""
        return self._kept.popleft() if self._kept else self.connection.next_event(self.number, timeout)

    def take(self, count: int) -> list[Any]:
        return [self.next() for _ in range(count)]

    def is_silent(self, seconds: float = 0.15) -> bool:
        """Return true if nothing arrives on this channel for the given seconds."""
        try:
            self._kept.append(self.next(seconds))
        except TimeoutError:
            return True
        return False

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        properties: Basic.Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish a message; ``properties`` as octets are sent unchanged."""
        self._published += 1
        self.connection.send(self.publication(exchange, routing_key, body, properties, mandatory=mandatory))

    def publication(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        properties: Basic.Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> bytes:
        """The octets of a publish."""
        octets = properties if isinstance(properties, bytes) else (properties or Basic.Properties()).marshal()
        method = Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        room = self.connection.frame_max - 8
        pieces = (body[start : start + room] for start in range(0, len(body), room))
        return b"".join(
            [
                marshal(method, self.number),
                frame(HEADER, self.number, content_header(len(body), octets)),
                *(frame(BODY, self.number, piece) for piece in pieces),
            ]
        )

    def queue(self, name: str = "", **options: Any) -> str:
        """Declare a queue, by default exclusive, and return its name."""
        declared: str = self.call(Queue.Declare(queue=name, **{"exclusive": True, **options})).queue
        return declared

    def exchange(self, name: str, exchange_type: str, **options: Any) -> str:
        """Declare an exchange, by default auto-deleted, and return its name."""
        self.call(Exchange.Declare(exchange=name, exchange_type=exchange_type, **{"auto_delete": True, **options}))
        return name

    def bind(self, queue: str, exchange: str, routing_key: str = "", arguments: dict[str, Any] | None = None) -> None:
        self.call(Queue.Bind(queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments))

    def consume(self, queue: str, tag: str = "", **options: Any) -> str:
        own: str = self.call(Basic.Consume(queue=queue, consumer_tag=tag, **options)).consumer_tag
        return own

    def get(self, queue: str, *, no_ack: bool = True) -> Content | None:
        answer = self.call(Basic.Get(queue=queue, no_ack=no_ack))
        return answer if isinstance(answer, Content) else None

    def bodies(self, queue: str) -> list[bytes]:
        """Empty a queue. Return the bodies in order."""
        return [message.body for message in iter(lambda: self.get(queue), None)]

    def stream_bodies(self, stream: str) -> list[bytes]:
        """Bodies of all messages of a stream, in order."""
        count = self.ready(stream)
        self.call(Basic.Qos(prefetch_count=1000))
        tag = self.consume(stream, arguments={"x-stream-offset": "first"})
        found: list[bytes] = []
        while len(found) < count:
            delivered = self.next()
            found.append(delivered.body)
            self.send(Basic.Ack(delivered.method.delivery_tag))
        self.call(Basic.Cancel(tag))
        return found

    def ready(self, queue: str) -> int:
        """Number of ready messages of a queue."""
        count: int = self.call(Queue.Declare(queue=queue, passive=True)).message_count
        return count

    def confirm_select(self) -> None:
        self.call(Confirm.Select())
        self._published = 0

    def select_transactions(self) -> None:
        self.call(Tx.Select())

    def purge(self, queue: str) -> int:
        count: int = self.call(Queue.Purge(queue=queue)).message_count
        return count

    def wait_for_confirms(self) -> None:
        """Read confirms until every publish on this channel has been acknowledged."""
        while len(self._confirmed) < self._published:
            ack = self.next()
            assert isinstance(ack, Basic.Ack), f"{ack} came"
            self._confirmed.update(range(1, ack.delivery_tag + 1) if ack.multiple else (ack.delivery_tag,))

    def close(self) -> None:
        self.call(Channel.Close(200, "bye", 0, 0))


def parse_method(payload: bytes) -> Any:
    (index,) = struct.unpack_from(">I", payload)
    method = commands.INDEX_MAPPING[index]()
    method.unmarshal(payload[4:])
    return method


@contextlib.contextmanager
def closing(connection: WireConnection) -> Iterator[WireConnection]:
    """Close a connection cleanly at the end, with its exclusive queues."""
    try:
        yield connection
    finally:
        with contextlib.suppress(Closed, Hangup, OSError, TimeoutError):
            connection.close()
