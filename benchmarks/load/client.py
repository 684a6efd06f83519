"""A small blocking AMQP 0-9-1 client for load: one connection with one channel and a fixed buffer.

Methods are named by their class and method numbers of the AMQP 0-9-1 specification.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = 0xCE
FRAME = struct.Struct(">BHI")
FRAME_OVERHEAD = FRAME.size + 1
BUFFER_SIZE = 1 << 20
MAX_PARTS = 1024
"""Maximum number of parts per ``sendmsg``."""
PATIENCE = 60
"""Seconds to wait for the broker."""
PASSIVE, DURABLE = 1, 2
NO_ACK = 2


class LoadError(Exception):
    """The broker refused a request or violated the protocol; the text is one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a broker, with the credentials; with TLS if the certificate of its authority is given."""

    port: int
    host: str = "127.0.0.1"
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls_ca: Path | None = None


class Connection:
    """A connection with channel 1 open.

    Attributes:
        buffer: received octets, the first `filled` of them valid.
        room: capacity of the buffer, in octets.
        frame_max: negotiated maximum frame size, in octets.
    """

    def __init__(self, address: Address, room: int = BUFFER_SIZE) -> None:
        self.buffer = bytearray(room)
        self.room = room
        self.filled = 0
        self._view = memoryview(self.buffer)
        self.socket = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
        self.socket.connect((address.host, address.port))  # create_connection asks for the name of an address, too
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # Python's own timeouts cost a system call per call
            self.socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", PATIENCE, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls: ssl.SSLSocket | None = None
        if address.tls_ca is not None:
            context = ssl.create_default_context(cafile=address.tls_ca)
            self.socket = self._tls = context.wrap_socket(self.socket, server_hostname=address.host)
        self.frame_max = self._open(address)

    def _open(self, address: Address) -> int:
        self.send(b"AMQP\x00\x00\x09\x01")
        self._expect(10, 10)
        secret = f"\0{address.user}\0{address.password}".encode()
        start_ok = _table() + short("PLAIN") + struct.pack(">I", len(secret)) + secret + short("en_US")
        self.send(method(0, 10, 11, start_ok))
        channel_max, frame_max = struct.unpack_from(">HI", self._expect(10, 30))
        frame_max = frame_max or 1 << 17
        tune_ok = method(0, 10, 31, struct.pack(">HIH", channel_max, frame_max, 0))
        self.send(tune_ok + method(0, 10, 40, short(address.vhost) + short("") + b"\0"))  # tune-ok has no answer
        self._expect(10, 41)
        self.call(20, 10, short(""))
        return frame_max

    def send(self, octets: bytes | bytearray) -> None:
        """Send the octets, waiting while the broker does not read."""
        self.socket.sendall(octets)

    def send_parts(self, parts: Sequence[bytes]) -> None:
        """Send octets given in parts."""
        if self._tls is not None:
            self.send(b"".join(parts))
            return
        for at in range(0, len(parts), MAX_PARTS):
            some = parts[at : at + MAX_PARTS]
            sent, length = self.socket.sendmsg(some), sum(map(len, some))
            if sent < length:
                self.socket.sendall(b"".join(some)[sent:])

    def call(self, class_id: int, method_id: int, arguments: bytes, channel: int = 1) -> bytes:
        """Send a synchronous method. Return the arguments of its answer, the method with the next number.

        Raises:
            LoadError: the broker closed the channel or connection, with its code and text.
        """
        self.send(method(channel, class_id, method_id, arguments))
        return self._expect(class_id, method_id + 1)

    def fill(self) -> None:
        """Receive the available octets, at least one. Raises LoadError after a close, or 60 s of silence."""
        try:
            received = self.socket.recv_into(self._view[self.filled : self.room])
        except (TimeoutError, BlockingIOError):
            raise LoadError(f"the broker sent nothing for {PATIENCE} s") from None
        if not received:
            raise LoadError("the broker closed the connection")
        self.filled += received
        while self._tls is not None and self._tls.pending() and self.filled < self.room:  # no selector reports these
            self.filled += self._tls.recv_into(self._view[self.filled : self.room])

    def discard(self, octets: int) -> None:
        """Discard the first octets of the buffer; the rest moves to the beginning."""
        rest = self.filled - octets
        self._view[:rest] = self._view[octets : self.filled]
        self.filled = rest

    def unexpected(self, at: int = 0) -> LoadError:
        """The error for an unexpected frame in the buffer: the text of a close, or the frame type."""
        while self.filled < at + FRAME.size or self.filled < at + self._frame_size(at):
            self.fill()
        kind, channel, size = FRAME.unpack_from(self.buffer, at)
        payload = bytes(self.buffer[at + FRAME.size : at + FRAME.size + size])
        numbers = struct.unpack_from(">HH", payload)
        if kind == METHOD and numbers in ((10, 50), (20, 40)):
            return LoadError(
                f"the broker closed: {payload[4] << 8 | payload[5]} {payload[7 : 7 + payload[6]].decode()}"
            )
        return LoadError(f"unexpected frame of type {kind} on channel {channel} that begins {payload[:12].hex(' ')}")

    def declare_exchange(self, name: str, kind: str) -> None:
        """Declare a durable exchange."""
        self.call(40, 10, b"\0\0" + short(name) + short(kind) + bytes([DURABLE]) + _table())

    def delete_exchange(self, name: str) -> None:
        """Delete the exchange."""
        self.call(40, 20, b"\0\0" + short(name) + b"\0")

    def declare_queue(self, name: str, kind: str | None = None) -> None:
        """Declare a durable queue, optionally of a given type."""
        fields = b"" if kind is None else short("x-queue-type") + b"S" + struct.pack(">I", len(kind)) + kind.encode()
        self.call(50, 10, b"\0\0" + short(name) + bytes([DURABLE]) + _table(fields))

    def count(self, queue: str) -> int:
        """Number of ready messages of the queue."""
        answer = self.call(50, 10, b"\0\0" + short(queue) + bytes([PASSIVE]) + _table())
        return int.from_bytes(answer[-8:-4])

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind the queue."""
        self.call(50, 20, b"\0\0" + short(queue) + short(exchange) + short(key) + b"\0" + _table())

    def unbind(self, queue: str, exchange: str, key: str) -> None:
        """Unbind the queue."""
        self.call(50, 50, b"\0\0" + short(queue) + short(exchange) + short(key) + _table())

    def purge(self, queue: str) -> None:
        """Purge the queue."""
        self.call(50, 30, b"\0\0" + short(queue) + b"\0")

    def delete_queue(self, name: str) -> None:
        """Delete the queue with its messages."""
        self.call(50, 40, b"\0\0" + short(name) + b"\0")

    def select_confirms(self) -> None:
        """Enable publisher confirms."""
        self.call(85, 10, b"\0")

    def prefetch(self, count: int) -> None:
        """Limit the unacknowledged messages of every consumer."""
        self.call(60, 10, struct.pack(">IHB", 0, count, 0))

    def consume(self, queue: str, auto_ack: bool) -> None:
        """Start a consumer; deliveries may be in the buffer already."""
        self.call(60, 20, b"\0\0" + short(queue) + short("load") + bytes([NO_ACK * auto_ack]) + _table())

    def acknowledge(self, tag: int) -> None:
        """Acknowledge all deliveries up to the tag."""
        self.send(method(1, 60, 80, struct.pack(">QB", tag, 1)))

    def acknowledge_singly(self, first: int, last: int) -> None:
        """Acknowledge a range of delivery tags, with a method per tag."""
        count = last - first + 1
        octets = struct.pack(f">{count}Q", *range(first, last + 1))
        methods = bytearray(ACK * count)
        for place in range(
            8
        ):  # all first octets of the tags, then all second octets: a loop over tags takes ten times as long
            methods[ACK_TAG + place :: len(ACK)] = octets[place::8]
        self.send(methods)

    def open_channel(self, number: int) -> None:
        """Open a channel."""
        self.call(20, 10, short(""), number)

    def close_channel(self, number: int) -> None:
        """Close a channel."""
        self.call(20, 40, struct.pack(">H", 200) + short("") + bytes(4), number)

    def close(self) -> None:
        """Close cleanly: on return, the broker has read all earlier octets."""
        self.send(method(0, 10, 50, struct.pack(">H", 200) + short("") + bytes(4)))
        self._expect(10, 51, skip=True)
        self.socket.close()

    def _expect(self, class_id: int, method_id: int, skip: bool = False) -> bytes:
        """Return the arguments of the next frame, which must be the given method; `skip` skips other methods."""
        wanted = struct.pack(">BHH", METHOD, class_id, method_id)
        while True:
            while self.filled < FRAME.size or self.filled < self._frame_size(0):
                self.fill()
            size = self._frame_size(0)
            payload = bytes(self.buffer[FRAME.size : size - 1])
            found = self.buffer[:1] + payload[:4] == wanted
            if not (found or skip):
                raise self.unexpected()
            self.discard(size)
            if found:
                return payload[4:]

    def _frame_size(self, at: int) -> int:
        size: int = FRAME.unpack_from(self.buffer, at)[2]
        return size + FRAME_OVERHEAD


def short(text: str) -> bytes:
    """A short string: one octet of length, then the octets."""
    octets = text.encode()
    return bytes([len(octets)]) + octets


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame of the kind on the channel."""
    return FRAME.pack(kind, channel, len(payload)) + payload + bytes([FRAME_END])


def method(channel: int, class_id: int, method_id: int, arguments: bytes) -> bytes:
    """A method frame."""
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def _table(fields: bytes = b"") -> bytes:
    """A field table."""
    return struct.pack(">I", len(fields)) + fields


ACK = method(1, 60, 80, bytes(9))
"""An acknowledgement of the delivery tag 0 on channel 1."""
ACK_TAG = FRAME.size + 4
"""Offset of the delivery tag in the acknowledgement."""
