"""A connection that keeps all octets of a broker, as comparable values."""

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
"""Timeout in seconds for an expected answer, on a busy machine."""


@dataclass(slots=True)
class Event:
    """A method or message from a broker.

    Attributes:
        channel: channel number; 0 is the connection itself.
        method: the method; None is the end of the socket.
        properties: octets from the property flags on, of a method with content.
    """

    channel: int
    method: m.Method | None
    properties: bytes = b""
    body: bytes = b""


class Client:
    """A logged-in connection with its received events.

    Attributes:
        events: received and unprocessed events, in order.
        open: true while the socket is open.
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
        """Wait for a method and take it."""
        found = self.wait(lambda event: event.channel == channel and isinstance(event.method, expected))
        assert found is not None, f"{expected.spec_name} did not come"
        self.events.remove(found)
        assert found.method is not None
        return found.method

    # --- sending ---

    def send(self, octets: bytes) -> None:
        """Send octets; a socket closed by the broker discards them."""
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
        """Return the first event that satisfies ``wanted``, left in `events`; None after the timeout."""
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
        """Read the available octets."""
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
        """Close the socket without a close method."""
        self.open = False
        self._socket.close()


def _decoded(payload: bytes) -> m.Method:
    """Decode a method. A reply text of RabbitMQ may quote a routing key in invalid UTF-8; invalid octets become
    ``?``.
    """
    try:
        return m.decode(payload)
    except MalformedText:
        text = slice(7, 7 + payload[6])
        shown = payload[text].decode(errors="surrogateescape").encode(errors="replace")
        return m.decode(payload[: text.start] + shown + payload[text.stop :])


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode a frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def publication(channel: int, method: m.BasicPublish, properties: bytes, body: bytes) -> bytes:
    """Encode a publish; ``properties`` begin with the flags."""
    room = FRAME_MAX - 8
    pieces = [body[start : start + room] for start in range(0, len(body), room)]
    return b"".join(
        (
            frame(METHOD, channel, method.encode()),
            frame(HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + properties),
            *(frame(BODY, channel, piece) for piece in pieces),
        )
    )
