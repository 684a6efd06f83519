"""A blocking connection with a single channel."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from jumpmq.amqp import methods as m
from jumpmq.amqp.client import ClientDelivery, ClientEvent, ClientProtocol, Returned
from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.events import Ack
from jumpmq.amqp.fields import Field, typed
from jumpmq.amqp.frames import FRAME_METHOD, encode_frame
from jumpmq.client.address import AMQPAddress

M = TypeVar("M", bound=m.Method)

CHANNEL = 1
AT_ONCE = 1 << 20
"""Octets read or written per system call."""

CAPABILITIES = ("publisher_confirms", "consumer_cancel_notify", "authentication_failure_close", "basic.nack")
MOST_DECLARATIONS = 64
"""Maximum number of unanswered declarations."""

PRODUCT = {"product": "JumpMQ client", "capabilities": dict.fromkeys(CAPABILITIES, True)}


class ConnectionLost(Exception):
    """No answer, or a broken connection; the text names the address."""


class RequestRefused(Exception):
    """The broker refused a request, and closed the channel or the connection.

    Attributes:
        code: the reply code.
        is_open: True if only the channel was closed; False if the connection was closed.
    """

    def __init__(self, code: int, text: str, *, is_open: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.is_open = is_open


class Cancelled(RequestRefused):
    """The broker has cancelled a consumer: the queue was deleted, or has moved to another node."""


class AMQPConnection:
    """An open connection with a single channel.

    Args:
        tls: the TLS context for an ``amqps`` address.
        timeout: maximum seconds for any answer.

    Attributes:
        deliveries: received messages; the caller removes them.
        returned: returned mandatory messages.
        unconfirmed: number of published messages without a confirm.
        published: number of published messages.
        refused: numbers of refused messages (``basic.nack``), counted from 1 since ``confirm.select``.

    Raises:
        ConnectionLost: the broker does not answer.
        RequestRefused: the user or the virtual host is refused.
    """

    def __init__(self, address: AMQPAddress, tls: ssl.SSLContext | None = None, timeout: float = 30.0) -> None:
        self.address = address
        self.deliveries: deque[ClientDelivery] = deque()
        self.returned: list[Returned] = []
        self.unconfirmed = 0
        self.refused: list[int] = []
        self._timeout = timeout
        self._protocol = ClientProtocol()
        self._replies: deque[m.Method] = deque()  # received answers that no call has taken yet
        self._consumers: dict[str, str] = {}  # consumed queues, by consumer tag
        self.published = 0
        self._outstanding: set[int] = set()  # numbers of unconfirmed publishes
        self._lowest = 1  # lower bound of the numbers in _outstanding
        self._socket = self._connected(tls)
        try:
            self._log_in()
            self.call(m.ChannelOpen(), m.ChannelOpenOk)
        except BaseException:
            self._socket.close()
            raise

    @property
    def frame_max(self) -> int:
        """Maximum octets of a frame, as negotiated."""
        return self._protocol.frame_max

    def call(self, method: m.Method, answer: type[M]) -> M:
        """Send a method and wait for the answer; deliveries that arrive first are kept.

        Raises:
            RequestRefused: the broker closed the channel or the connection instead.
            ConnectionLost: the connection broke, or no answer came in time.
        """
        self._write([self._frame(method)])
        return self._reply(answer)

    def declared(self, queue: str) -> m.QueueDeclareOk:
        """Declare a queue passively; return the broker's answer.

        Raises:
            RequestRefused: the queue does not exist (404).
        """
        return self.call(m.QueueDeclare(queue=queue, passive=True), m.QueueDeclareOk)

    def declare_all(self, declarations: list[m.QueueDeclare]) -> list[m.QueueDeclareOk | RequestRefused]:
        """Declare queues, with many requests in flight; return the answers in order.

        A refusal closes the channel, which discards the following declarations. The channel is then opened again, and
        these declarations are sent again, fewer at once, because more of them may be refused.

        Raises:
            RequestRefused: the broker closed the connection.
        """
        found: list[m.QueueDeclareOk | RequestRefused] = []
        at_once = MOST_DECLARATIONS
        while rest := declarations[len(found) : len(found) + at_once]:
            at_once = min(2 * at_once, MOST_DECLARATIONS)
            try:
                self._write(map(self._frame, rest))
                for _ in rest:
                    found.append(self._reply(m.QueueDeclareOk))  # noqa: PERF401 (answers before a refusal count)
            except RequestRefused as refused:
                if not refused.is_open:
                    raise
                # Answers received before the refusal.
                found += [self._reply(m.QueueDeclareOk) for _ in range(len(self._replies))]
                found.append(refused)
                at_once = 1
                self.call(m.ChannelOpen(), m.ChannelOpenOk)
        return found

    def consume(self, queue: str, prefetch: int, arguments: dict[str, object] | None = None) -> str:
        """Begin to consume; return the consumer's tag.

        Args:
            prefetch: maximum number of unacknowledged messages; 0 for no limit.
        """
        self.call(m.BasicQos(prefetch_count=prefetch), m.BasicQosOk)
        table = _table(arguments or {})
        tag = self.call(m.BasicConsume(queue=queue, arguments=table), m.BasicConsumeOk).consumer_tag
        self._consumers[tag] = queue
        return tag

    def cancel(self, consumer: str) -> None:
        """Stop consuming. Earlier deliveries stay in `deliveries`."""
        self.call(m.BasicCancel(consumer_tag=consumer), m.BasicCancelOk)

    def get(self, queue: str) -> ClientDelivery | None:
        """Get one message, to be acknowledged; None if the queue is empty."""
        self._write([self._frame(m.BasicGet(queue=queue))])
        until = time.monotonic() + self._timeout
        while not self.deliveries:
            if self._replies:
                self._reply(m.BasicGetEmpty)
                return None
            self._read(until)
        return self.deliveries.popleft()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for deliveries; return True if :attr:`deliveries` is not empty.

        Raises:
            RequestRefused: the broker cancelled the consumer, or closed the channel.
        """
        until = time.monotonic() + seconds
        while not self.deliveries and time.monotonic() < until:
            self._pump((), until, patient=True)
        return bool(self.deliveries)

    def ack(self, tag: int, *, multiple: bool = True) -> None:
        """Acknowledge all deliveries up to ``tag``, or only ``tag``."""
        self._write([self._frame(m.BasicAck(tag, multiple=multiple))])

    def requeue(self, tag: int) -> None:
        """Requeue all deliveries up to ``tag``."""
        self._write([self._frame(m.BasicNack(tag, multiple=True, requeue=True))])

    def publish(self, contents: Iterable[bytes]) -> None:
        """Publish messages, given as frames from :func:`jumpmq.amqp.client.publish_frames`.

        After ``confirm.select`` the messages count as unconfirmed until the broker confirms or refuses them.
        """
        frames = list(contents)
        self._outstanding.update(range(self.published + 1, self.published + len(frames) + 1))
        self.published += len(frames)
        self.unconfirmed = len(self._outstanding)
        self._write(frames)

    def wait_for_confirms(self, most: int = 0) -> None:
        """Wait until at most ``most`` messages are unconfirmed."""
        until = time.monotonic() + self._timeout
        while self.unconfirmed > most:
            before = self.unconfirmed
            self._read(until)
            if self.unconfirmed < before:
                until = time.monotonic() + self._timeout

    def close(self) -> None:
        """Close the connection, in any state."""
        try:
            self.call(m.ConnectionClose(200, "done"), m.ConnectionCloseOk)
        except (ConnectionLost, RequestRefused):
            pass
        finally:
            self._socket.close()

    def __enter__(self) -> AMQPConnection:
        return self

    def __exit__(self, type_: type[BaseException] | None, *exception: object) -> None:
        if type_ is None or issubclass(type_, Exception):
            self.close()
        else:  # an interrupt (Ctrl-C) may have cut a frame
            self._socket.close()

    def _connected(self, tls: ssl.SSLContext | None) -> socket.socket:
        where = self.address
        try:
            found = socket.create_connection((where.host, where.port), self._timeout)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if where.tls:
                found = (tls or ssl.create_default_context()).wrap_socket(found, server_hostname=where.host)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {where}: {error.strerror or error}") from None
        found.setblocking(False)
        return found

    def _log_in(self) -> None:
        user, password = self.address.user, self.address.password
        self._write([b"AMQP\x00\x00\x09\x01"])
        self._reply(m.ConnectionStart)
        response = f"\0{user}\0{password}".encode()
        properties = _table(PRODUCT)
        tune = self.call(m.ConnectionStartOk(properties, "PLAIN", response, "en_US"), m.ConnectionTune)
        self._protocol.frame_max = tune.frame_max or 131072
        # No heartbeats: TCP's keepalive detects a lost peer.
        agreed = m.ConnectionTuneOk(tune.channel_max, self._protocol.frame_max, 0)
        self._write([self._frame(agreed)])
        self.call(m.ConnectionOpen(self.address.vhost), m.ConnectionOpenOk)

    def _frame(self, method: m.Method) -> bytes:
        channel = 0 if method.class_id == m.ConnectionOpen.class_id else CHANNEL
        return encode_frame(FRAME_METHOD, channel, method.encode())

    def _reply(self, answer: type[M]) -> M:
        until = time.monotonic() + self._timeout
        while not self._replies:
            self._read(until)
        found = self._replies.popleft()
        if not isinstance(found, answer):
            raise ConnectionLost(f"{self.address} sent {found.spec_name} instead of {answer.spec_name}")
        return found

    def _read(self, until: float) -> None:
        """Wait for octets, and process them."""
        if time.monotonic() > until:
            raise ConnectionLost(f"{self.address} has not answered for {self._timeout:g} s")
        self._pump((), until, patient=True)

    def _write(self, frames: Iterable[bytes]) -> None:
        self._pump(frames, time.monotonic() + self._timeout, patient=False)

    def _pump(self, frames: Iterable[bytes], until: float, *, patient: bool) -> None:
        """Send octets, and process arriving octets in between: otherwise both sides could block each other.

        Args:
            patient: True to wait for arriving octets.
        """
        waiting = memoryview(b"".join(frames))
        while True:
            try:
                while waiting:
                    waiting = waiting[self._socket.send(waiting[:AT_ONCE]) :]
                if self._receive() or not patient:
                    return
                writable: list[socket.socket] = []
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                writable = [self._socket]
                self._receive()
            except OSError as error:
                raise ConnectionLost(f"lost {self.address}: {error.strerror or error}") from None
            left = until - time.monotonic()
            if not any(select.select([self._socket], writable, [], max(0.0, left))) and left <= 0:
                if patient:
                    return
                raise ConnectionLost(f"{self.address} has not read the sent data for {self._timeout:g} s")

    def _receive(self) -> bool:
        """Process arrived octets; return True if there were any."""
        some = False
        while True:
            try:
                octets = self._socket.recv(AT_ONCE)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return some
            except OSError as error:
                raise ConnectionLost(f"lost {self.address}: {error.strerror or error}") from None
            if not octets:
                raise ConnectionLost(f"{self.address} closed the connection")
            some = True
            try:
                for event in self._protocol.receive(octets):
                    self._take(event)
            except AMQPError as error:
                raise ConnectionLost(f"{self.address} does not speak AMQP 0-9-1: {error.reply_text}") from None

    def _take(self, event: ClientEvent) -> None:
        match event:
            case ClientDelivery():
                self.deliveries.append(event)
            case Ack(tags=tags, multiple=multiple):
                self._settled(tags, multiple=multiple)
            case m.BasicNack(delivery_tag=tag, multiple=multiple):
                before = set(self._outstanding)
                self._settled([tag], multiple=multiple)
                self.refused += sorted(before - self._outstanding)
            case Returned():
                self.returned.append(event)
            case m.ChannelClose(reply_code=code, reply_text=text):
                raise self._closed(m.ChannelCloseOk(), code, text, is_open=True)
            case m.ConnectionClose(reply_code=code, reply_text=text):
                raise self._closed(m.ConnectionCloseOk(), code, text)
            case m.BasicCancel(consumer_tag=tag):
                queue = self._consumers.pop(tag, tag)
                raise Cancelled(404, f"the broker cancelled the consumer of '{queue}': the queue is gone, or has moved")
            case m.ConnectionBlocked() | m.ConnectionUnblocked() | m.ChannelFlow():
                pass
            case _:
                self._replies.append(event)

    def _closed(self, answer: m.Method, code: int, text: str, *, is_open: bool = False) -> RequestRefused:
        with suppress(ConnectionLost):  # the broker may not wait for the answer
            self._write([self._frame(answer)])
        return RequestRefused(code, text, is_open=is_open)

    def _settled(self, tags: list[int], *, multiple: bool) -> None:
        """Record confirmed or refused messages."""
        if multiple:
            self._outstanding.difference_update(range(self._lowest, tags[-1] + 1))
            self._lowest = tags[-1] + 1
        else:
            self._outstanding.difference_update(tags)
        self.unconfirmed = len(self._outstanding)


def _table(mapping: Mapping[str, object]) -> list[Field]:
    return [Field(name, *typed(value)) for name, value in mapping.items()]
