"""The client's side of an AMQP 0-9-1 connection, without I/O: bytes in, the server's events out.

Counterpart of the server's side (:mod:`jumpmq.amqp.protocol`), with the same kernel. Its only state is the incomplete
part of the received octets: the server checks the order of methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, UnexpectedFrame
from jumpmq.amqp.events import Ack
from jumpmq.amqp.fields import to_python
from jumpmq.amqp.frames import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, encode_frame
from jumpmq.amqp.messages import scan
from jumpmq.amqp.properties import HEADERS, NO_PROPERTIES, Properties

DELIVER = b"\x00\x3c\x00\x3c"
GET_OK = b"\x00\x3c\x00\x47"
RETURN = b"\x00\x3c\x00\x32"
STREAM_OFFSET = b"\x0fx-stream-offsetl"
"""Name and type octet of the header ``x-stream-offset``, as encoded in a header table."""

STREAM_OFFSET_ALONE = (len(STREAM_OFFSET) + 8).to_bytes(4) + STREAM_OFFSET
"""First octets of a header table whose only entry is ``x-stream-offset``."""

ADDED = (b"x-stream-offset", b"x-delivery-count")
"""Headers added to deliveries by a broker."""

CONTENT_TYPE, CONTENT_ENCODING = 0x8000, 0x4000
"""Flags of the properties in front of the headers."""

LARGEST_FRAME = 1 << 30
"""Limit of a frame's octets before the negotiation."""


@dataclass(slots=True)
class ClientDelivery:
    """A message from ``basic.deliver`` or ``basic.get-ok``.

    Attributes:
        consumer: the consumer tag; empty for ``basic.get-ok``.
        routing_key: octets, because AMQP names no encoding.
        properties: the property flags and list, as on the wire.
    """

    tag: int
    redelivered: bool
    exchange: str
    routing_key: bytes
    properties: bytes
    body: bytes
    consumer: str


@dataclass(slots=True)
class Returned:
    """A mandatory message without a queue, from ``basic.return``."""

    code: int
    text: str
    exchange: str
    routing_key: bytes
    properties: bytes = b""
    body: bytes = b""


ClientEvent = m.Method | Ack | ClientDelivery | Returned


class ClientProtocol:
    """Client side of a connection with one channel, without I/O.

    Attributes:
        frame_max: maximum octets of a frame.
    """

    def __init__(self) -> None:
        self.frame_max = LARGEST_FRAME
        self._received = bytearray()
        self._content: ClientDelivery | Returned | None = None
        self._missing = 0
        self._pieces: list[bytes] = []

    def receive(self, octets: bytes | memoryview) -> Iterator[ClientEvent]:
        """Parse received octets and yield the server's events in order.

        Raises:
            AMQPError: the server does not speak AMQP 0-9-1, or breaks the negotiated limits.
        """
        self._received += octets
        while True:
            events, used = scan(self._received, self.frame_max, 0.0)
            found = [one for event in events if (one := self._read(event)) is not None]
            # Body frames are views of the buffer, which cannot shrink while views exist.
            del events[:]
            del self._received[:used]
            yield from found
            if not used:
                return

    def _read(self, event: Any) -> ClientEvent | None:
        if isinstance(event, AMQPError):
            raise event
        if isinstance(event, Ack):
            return event
        if event.type == FRAME_METHOD:
            return self._method(event.payload)
        if event.type == FRAME_HEADER:
            return self._header(event.payload)
        if event.type == FRAME_BODY:
            return self._body(bytes(event.payload))
        if event.type == FRAME_HEARTBEAT:
            return None
        raise UnexpectedFrame(f"the server sent a frame of type {event.type}")

    def _method(self, payload: bytes) -> m.Method | None:
        if payload[:4] == DELIVER:
            self._content = _delivery(payload, 5 + payload[4])
        elif payload[:4] == GET_OK:
            self._content = _delivery(payload, 4)
        elif payload[:4] == RETURN:
            method = m.decode(payload)
            assert isinstance(method, m.BasicReturn)
            key = method.routing_key
            self._content = Returned(method.reply_code, method.reply_text, method.exchange, key)
        else:
            return m.decode(payload)
        return None

    def _header(self, payload: bytes) -> ClientDelivery | Returned | None:
        content = self._content
        if content is None:
            raise UnexpectedFrame("the server sent a content header without a method")
        self._missing = int.from_bytes(payload[4:12])
        content.properties = payload[12:]
        return None if self._missing else self._whole(b"")

    def _body(self, piece: bytes) -> ClientDelivery | Returned | None:
        if self._content is None or len(piece) > self._missing:
            raise UnexpectedFrame("the server sent a body that it did not announce")
        self._missing -= len(piece)
        if self._missing:
            self._pieces.append(piece)
            return None
        if not self._pieces:
            return self._whole(piece)
        body = b"".join((*self._pieces, piece))
        self._pieces.clear()
        return self._whole(body)

    def _whole(self, body: bytes) -> ClientDelivery | Returned | None:
        content, self._content = self._content, None
        if content is not None:
            content.body = body
        return content


def _delivery(payload: bytes, at: int) -> ClientDelivery:
    """Decode ``basic.deliver`` or ``basic.get-ok``, with the delivery tag at ``at``.

    Without the table of methods, because deliveries are by far the most frequent methods.
    """
    exchange_at = at + 10
    key_at = exchange_at + payload[exchange_at - 1]
    return ClientDelivery(
        int.from_bytes(payload[at : at + 8]),
        bool(payload[at + 8] & 1),
        payload[exchange_at:key_at].decode("utf-8", "surrogateescape"),
        payload[key_at + 1 : key_at + 1 + payload[key_at]],
        NO_PROPERTIES,
        b"",
        payload[5:at].decode("utf-8", "surrogateescape"),
    )


def stream_offset(delivery: ClientDelivery) -> int | None:
    """Return the offset of a message from a stream; None for messages from classic and quorum queues.

    The header is searched in the octets. The headers are parsed only if a publisher's header has the same octets.
    """
    octets = delivery.properties
    at = octets.find(STREAM_OFFSET)
    if at < 0:
        return None
    if octets.find(STREAM_OFFSET, at + 1) >= 0:
        headers = to_python(Properties.parse(octets).headers or [])
        return int(headers["x-stream-offset"]) if "x-stream-offset" in headers else None
    at += len(STREAM_OFFSET)
    return int.from_bytes(octets[at : at + 8], signed=True)


def as_published(octets: bytes) -> bytes:
    """Return properties without the headers that a broker adds to deliveries of streams and quorum queues.

    Most messages of streams have no other header; their properties are not parsed.
    """
    if not any(name in octets for name in ADDED):
        return octets
    flags, table = int.from_bytes(octets[:2]), _table(octets)
    if flags & HEADERS and octets.startswith(STREAM_OFFSET_ALONE, table):
        end = table + len(STREAM_OFFSET_ALONE) + 8
        return (flags - HEADERS).to_bytes(2) + octets[2:table] + octets[end:]
    properties = Properties.parse(octets)
    kept = [field for field in properties.headers or [] if field.name.encode() not in ADDED]
    if len(kept) == len(properties.headers or []):
        return octets
    properties.headers = kept or None
    return properties.encode()


def _table(octets: bytes) -> int:
    """Return the position of the header table in a property list."""
    at = 2
    for bit in (CONTENT_TYPE, CONTENT_ENCODING):
        if int.from_bytes(octets[:2]) & bit:
            at += 1 + octets[at]
    return at


def publish_frames(
    exchange: str, routing_key: bytes, properties: bytes, body: bytes, channel: int, frame_max: int, *, mandatory: bool
) -> bytes:
    """Encode a ``basic.publish`` with its content as frames.

    Args:
        properties: the property flags and list, as on the wire.
    """
    method = m.BasicPublish(0, exchange, routing_key, mandatory, False).encode()
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8) + properties
    step = frame_max - 8
    frames = [encode_frame(FRAME_METHOD, channel, method), encode_frame(FRAME_HEADER, channel, header)]
    frames += [encode_frame(FRAME_BODY, channel, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(frames)
