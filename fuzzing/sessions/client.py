"""One connection to a broker that keeps everything the broker says, as plain values that can be compared."""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import MalformedText
from jumpmq.amqp.fields import Field

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_MAX = 131072
PATIENCE = 20.0
"""Seconds to wait for an answer that must come, on a machine that may be busy."""


@dataclass(slots=True)
class Event:
    """Something that a broker sent.

    Attributes:
        channel: its number; 0 is the connection itself.
        method: what was sent; None is the end of the socket.
        properties: octets from the property flags on, of a method that carries a message.
    """

    channel: int
    method: m.Method | None
    properties: bytes = b""
    body: bytes = b""


class Client:
    """A connection that is logged in, and what came of it.

    Attributes:
        events: what has come and nobody has taken yet, in order.
        open: whether the socket is.
    """

    def __init__(self, port: int, user: str = "guest") -> None:
        self.events: list[Event] = []
        self.open = True
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._content: Event | None = None
        self._missing = 0
        self._log_in(user)

    def _log_in(self, user: str) -> None:
        capabilities = [("authentication_failure_close", "t", True), ("consumer_cancel_notify", "t", True)]
        properties = [Field("capabilities", "F", [Field(*one) for one in capabilities])]
        self.send(b"AMQP\0\0\x09\x01")
        self.call(0, m.ConnectionStart)
        self.send_method(0, m.ConnectionStartOk(properties, "PLAIN", f"\0{user}\0{user}".encode(), "en_US"))
        self.call(0, m.ConnectionTune)
        self.send_method(0, m.ConnectionTuneOk(2047, FRAME_MAX, 0))
        self.send_method(0, m.ConnectionOpen("/"))
        self.call(0, m.ConnectionOpenOk)

    def call(self, channel: int, expected: type[m.Method]) -> m.Method:
        """Wait for one method and take it."""
        found = self.wait(lambda event: event.channel == channel and isinstance(event.method, expected))
        assert found is not None, f"{expected.spec_name} did not come"
        self.events.remove(found)
        assert found.method is not None
        return found.method

    # --- sending ---

    def send(self, octets: bytes) -> None:
        """Send octets; a socket that the broker has closed takes them silently."""
        if self.open:
            self._socket.settimeout(PATIENCE)
            try:
                self._socket.sendall(octets)
            except OSError:
                self._end()

    def send_method(self, channel: int, method: m.Method) -> None:
        self.send(frame(METHOD, channel, method.encode()))

    # --- receiving ---

    def wait(self, wanted: Callable[[Event], bool], timeout: float = PATIENCE) -> Event | None:
        """The first event for which ``wanted`` is true, left in `events`; None if it does not come in time."""
        seen, deadline = 0, time.monotonic() + timeout
        while True:
            for event in self.events[seen:]:
                if wanted(event):
                    return event
            seen = len(self.events)
            left = deadline - time.monotonic()
            if not self.open or left <= 0 or not self._receive(left):
                return None

    def drain(self) -> None:
        """Take in what has already arrived."""
        while self.open and self._receive(0.0):
            pass

    def _receive(self, timeout: float) -> bool:
        self._socket.settimeout(timeout)  # 0.0 does not wait at all
        try:
            octets = self._socket.recv(1 << 18)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            octets = b""
        if not octets:
            self._end()
            return True
        self._received += octets
        while len(self._received) >= 7:
            kind, channel, size = struct.unpack_from(">BHI", self._received)
            if len(self._received) < size + 8:
                break
            payload = bytes(self._received[7 : 7 + size])
            del self._received[: size + 8]
            self._frame(kind, channel, payload)
        return True

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        match kind:
            case 1:
                event = Event(channel, _decoded(payload))
                if isinstance(event.method, m.BasicDeliver | m.BasicGetOk | m.BasicReturn):
                    self._content = event
                else:
                    self.events.append(event)
            case 2:
                assert self._content is not None
                self._missing = int.from_bytes(payload[4:12])
                self._content.properties = payload[12:]
                self._complete()
            case 3:
                assert self._content is not None
                self._content.body += payload
                self._missing -= len(payload)
                self._complete()

    def _complete(self) -> None:
        if not self._missing:
            assert self._content is not None
            self.events.append(self._content)
            self._content = None

    def _end(self) -> None:
        self.open = False
        self._socket.close()
        self.events.append(Event(0, None))

    def hang_up(self) -> None:
        """Close the socket without a word."""
        self.open = False
        self._socket.close()


def _decoded(payload: bytes) -> m.Method:
    """A method; RabbitMQ's reply texts may quote a routing key that is no UTF-8, whose wrong octets are then ``?``."""
    try:
        return m.decode(payload)
    except MalformedText:
        text = slice(7, 7 + payload[6])
        shown = payload[text].decode(errors="surrogateescape").encode(errors="replace")
        return m.decode(payload[: text.start] + shown + payload[text.stop :])


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """The octets of one frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def publication(channel: int, method: m.BasicPublish, properties: bytes, body: bytes) -> bytes:
    """The octets of one publication; ``properties`` from the flags on."""
    room = FRAME_MAX - 8
    pieces = [body[start : start + room] for start in range(0, len(body), room)]
    return b"".join(
        (
            frame(METHOD, channel, method.encode()),
            frame(HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + properties),
            *(frame(BODY, channel, piece) for piece in pieces),
        )
    )
