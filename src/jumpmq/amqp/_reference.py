"""Reference implementation of the wire format's hot path, in plain Python; ``_kernel.pyx`` computes the same results.

Tests compare the kernel with this module, its specification; without a built kernel, this module is the fallback.

Most frames of a loaded broker are publishes, deliveries and acks. :func:`scan` reads a run of complete publishes
(consecutive method, header and body frames) as one event, and :func:`encode_deliveries` writes a run of deliveries in
one call, so that all other work of the broker is done once a run, not once a message.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any

from jumpmq.amqp.errors import AMQPError, MalformedFrame
from jumpmq.amqp.events import Ack, Publish, RawFrame
from jumpmq.amqp.fields import Field
from jumpmq.amqp.frames import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    encode_content,
    encode_frame,
    with_header,
)
from jumpmq.amqp.properties import EXPIRATION, NO_PROPERTIES, USER_ID, Properties, persistent_unless_said
from jumpmq.amqp.texts import header_texts
from jumpmq.hashing import header_key

BASIC_PUBLISH = b"\x00\x3c\x00\x28"
BASIC_ACK = b"\x00\x3c\x00\x50"
BASIC_DELIVER = b"\x00\x3c\x00\x3c"

MAX_RUN = 4096
"""Maximum number of messages or tags per event, so that the broker can do other work during a large read."""


class Message:
    """A message in a queue, or on the way to the queue: one object per message and queue.

    Attributes:
        exchange: name of the publish's exchange, "" for the default exchange.
        routing_key: 0 to 255 octets.
        properties: property flags and property list, as published.
        body: the content.
        persistent: True for delivery mode 2.
        published_at: seconds since the epoch, by the broker's clock.
        seq: number of the message in its queue, from 1; 0 outside a queue.
        redelivered: True if the message may have been delivered before.
        attempts: number of deliveries, this one included, if the queue counts them (``x-delivery-count``); otherwise 0.
        paged: octets of the body, while the body is only on disk; otherwise 0.
        slot: slot in the queue (``x-slots``), while in a queue with slots.
        expires_at: seconds since the epoch; 0 is never.
        queue, consumer, batch: the message's queue, the consumer that holds the message unacknowledged, and the stored
            batch with the message; or None.
    """

    __slots__ = (
        "attempts",
        "batch",
        "body",
        "consumer",
        "exchange",
        "expires_at",
        "paged",
        "persistent",
        "properties",
        "published_at",
        "queue",
        "redelivered",
        "routing_key",
        "seq",
        "slot",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool = False,
        published_at: float = 0.0,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.persistent = persistent
        self.published_at = published_at
        self.expires_at = 0.0
        self.seq = 0
        self.redelivered = False
        self.attempts = 0
        self.paged = 0
        self.slot = 0
        self.queue: Any = None
        self.consumer: Any = None
        self.batch: Any = None

    def copy(self) -> Message:
        """Return a copy of the message for a second queue; exchange, key, properties and body are shared."""
        return Message(self.exchange, self.routing_key, self.properties, self.body, self.persistent, self.published_at)


def scan(octets: bytes | bytearray | memoryview, frame_max: int, now: float) -> tuple[list[Any], int]:
    """Read all whole frames at the start of ``octets``.

    Args:
        octets: received octets that are not yet consumed.
        frame_max: the negotiated limit of a frame's size in octets.
        now: seconds since the epoch, the ``published_at`` of messages.

    Returns:
        Events (:mod:`jumpmq.amqp.events`), and the number of their octets. A malformed frame ends the list with its
        error; the octets after it are not read.
    """
    events: list[Any] = []
    at, size = 0, len(octets)
    while size - at >= 7:
        kind = octets[at]
        channel = int.from_bytes(octets[at + 1 : at + 3])
        length = int.from_bytes(octets[at + 3 : at + 7])
        if kind not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT):
            events.append(_unknown_type(octets, at))
            break
        # Before the frame is whole: a client must not make the broker wait for a frame above the limit.
        if length + 8 > frame_max:
            events.append(MalformedFrame(f"type {kind}, frame_too_large: {length + 8} octets, frame_max {frame_max}"))
            break
        end = at + 7 + length
        if end >= size:
            break
        if octets[end] != FRAME_END:
            events.append(MalformedFrame(f"type {kind}, invalid frame end marker {octets[end]}"))
            break
        payload = bytes(octets[at + 7 : end])
        if kind == FRAME_METHOD and payload[:4] == BASIC_PUBLISH:
            found = _whole_publish(octets, channel, payload, end + 1, frame_max)
            if found is not None:
                _add_publish(events, channel, *found[:-1], now)
                at = found[-1]
                continue
        if kind == FRAME_METHOD and payload[:4] == BASIC_ACK and length == 13:
            _add_ack(events, channel, int.from_bytes(payload[4:12]), bool(payload[12] & 1))
        else:
            events.append(RawFrame(kind, channel, memoryview(payload) if kind == FRAME_BODY else payload))
        at = end + 1
    return events, at


def _unknown_type(octets: bytes | bytearray | memoryview, at: int) -> AMQPError:
    return MalformedFrame(f"type {octets[at]}, unknown frame type")


def _whole_publish(
    octets: bytes | bytearray | memoryview, channel: int, payload: bytes, at: int, frame_max: int
) -> tuple[str, int, bytes, bytes, bytes, bool, int] | None:
    """Parse a publish with its header frame and its only body frame at ``at``; None if the general parser has to
    parse it.

    Returns:
        Exchange, bits, routing key, properties, body, persistent, end offset.
    """
    key_at = 7 + payload[6] if len(payload) > 6 else len(payload)
    if key_at >= len(payload) or key_at + 1 + payload[key_at] + 1 != len(payload):
        return None
    try:
        exchange = payload[7:key_at].decode()
    except UnicodeDecodeError:
        return None
    key, bits = payload[key_at + 1 : -1], payload[-1]
    header = _frame(octets, at, FRAME_HEADER, channel, frame_max)
    if header is None or len(header) < 14 or header[:4] != b"\x00\x3c\x00\x00":
        return None
    at += len(header) + 8
    body_size, properties = int.from_bytes(header[4:12]), header[12:]
    delivery_mode = check_properties(properties)
    if delivery_mode not in (0, 1, 2):
        return None
    body = b""
    if body_size:
        frame = _frame(octets, at, FRAME_BODY, channel, frame_max)
        if frame is None or len(frame) != body_size:
            return None
        body = frame
        at += len(frame) + 8
    return exchange, bits, key, properties, body, delivery_mode == 2, at


def _frame(octets: bytes | bytearray | memoryview, at: int, kind: int, channel: int, frame_max: int) -> bytes | None:
    """Return the payload of the frame at ``at`` if the frame is complete and has this type and channel."""
    length = int.from_bytes(octets[at + 3 : at + 7])
    end = at + 7 + length
    if end >= len(octets) or length + 8 > frame_max or octets[end] != FRAME_END or octets[at] != kind:
        return None
    if int.from_bytes(octets[at + 1 : at + 3]) != channel:
        return None
    return bytes(octets[at + 7 : end])


def _add_publish(
    events: list[Any],
    channel: int,
    exchange: str,
    bits: int,
    key: bytes,
    properties: bytes,
    body: bytes,
    persistent: bool,
    now: float,
) -> None:
    mandatory, immediate = bool(bits & 1), bool(bits & 2)
    run = events[-1] if events else None
    if not (
        isinstance(run, Publish)
        and (run.channel, run.exchange, run.mandatory, run.immediate) == (channel, exchange, mandatory, immediate)
        and len(run.messages) < MAX_RUN
    ):
        run = Publish(channel, exchange, mandatory, immediate, 0, 0, [])
        events.append(run)
    run.flags |= int.from_bytes(properties[:2])
    run.size += len(body)
    run.messages.append(Message(exchange, key, properties, body, persistent, now))  # type: ignore[arg-type]


def _add_ack(events: list[Any], channel: int, tag: int, multiple: bool) -> None:
    run = events[-1] if events else None
    if (
        not multiple
        and isinstance(run, Ack)
        and run.channel == channel
        and not run.multiple
        and len(run.tags) < MAX_RUN
    ):
        run.tags.append(tag)
    else:
        events.append(Ack(channel, [tag], multiple))


def check_properties(octets: bytes) -> int:
    """Validate a property list.

    Returns:
        The delivery mode (0 if absent, 3 if unknown), or -1 for malformed octets.
    """
    try:
        mode = Properties.parse(octets).delivery_mode
    except AMQPError:
        return -1
    return 0 if mode is None else mode if mode in (1, 2) else 3


def examine(messages: list[Any]) -> tuple[int, list[Any]]:
    """Validate the properties of messages, and set ``persistent`` of the messages by their delivery mode.

    Returns:
        The flags of all properties, or-ed (-1 for malformed properties), and the messages that the publish has to
        process: those with an expiration, a user id, or an unknown delivery mode.
    """
    all_flags = 0
    acted_on: list[Any] = []
    for message in messages:
        mode = check_properties(message.properties)
        if mode < 0:
            return -1, acted_on
        flags = int.from_bytes(message.properties[:2])
        all_flags |= flags
        message.persistent = mode == 2
        if mode > 2 or flags & (EXPIRATION | USER_ID):
            acted_on.append(message)
    return all_flags, acted_on


def messages_of_rows(
    exchange: str,
    keys: Cells | None,
    key: bytes | None,
    properties: Cells | None,
    plain: bytes,
    bodies: Cells,
    first: int,
    count: int,
    most_octets: int,
    persistent: bool,
    now: float,
) -> list[Message]:
    """Return the messages of the rows of an Arrow record batch, from row ``first`` on.

    Args:
        keys, properties, bodies: columns of binary values; keys and properties are None without a column.
        key: routing key of rows without a routing key; None if each row has one.
        plain: properties of rows without properties, or with empty ones.
        count, most_octets: maximum number of rows, and of octets of their bodies together; at least one row is taken.
        persistent: True to add delivery mode 2 to properties without a delivery mode.
        now: time of the publish, in seconds since the epoch.

    Raises:
        ValueError: a body is null, or a routing key is null and ``key`` is None, or a column has fewer rows.
    """
    found: list[Message] = []
    size = 0
    for row in range(first, first + count):
        body = _cell(bodies, row)
        if body is None:
            raise ValueError("a body is null")
        size += len(body)
        if found and size > most_octets:
            break
        own_key = key if keys is None or (held := _cell(keys, row)) is None else held
        if own_key is None:
            raise ValueError("a routing key is null")
        own = (None if properties is None else _cell(properties, row)) or plain
        if persistent and own is not plain:
            own = persistent_unless_said(own)
        found.append(Message(exchange, own_key, own, body, False, now))
    return found


Cells = tuple[Any, Any, Any]
"""An Arrow column of binary values, as its buffers: validity bitmap (None without nulls), offsets, octets."""


def _cell(cells: Cells, row: int) -> bytes | None:
    validity, offsets, octets = cells
    if validity is not None and not memoryview(validity)[row // 8] >> row % 8 & 1:
        return None
    ends = memoryview(offsets)[4 * row : 4 * row + 8].tobytes()
    if len(ends) < 8:
        raise ValueError("an Arrow column with too few rows")
    first, end = (int.from_bytes(ends[place : place + 4], "little", signed=True) for place in (0, 4))
    if not 0 <= first <= end <= len(octets):
        raise ValueError("an offset of the Arrow column points outside its octets")
    return bytes(memoryview(octets)[first:end])


def routing_keys(messages: list[Any]) -> list[bytes]:
    """Return the routing keys of the messages, in order."""
    return [message.routing_key for message in messages]


def hash_keys(messages: list[Any], place: int, name: bytes, missing: bytes | int) -> tuple[list[bytes | int], int]:
    """Return the hash keys of the messages: the value of a property or of a header.

    Args:
        place: index of the property among the fourteen, 2 for a header.
        name: the header's name.
        missing: the key of messages without the property or header; a header of type V counts as absent.

    Returns:
        The keys (:func:`jumpmq.hashing.header_key`), and the number of messages with the key ``missing``.
    """
    found = [_hash_key(message.properties, place, name) for message in messages]
    return [missing if key is None else key for key in found], found.count(None)


def _hash_key(octets: bytes, place: int, name: bytes) -> bytes | int | None:
    try:
        properties = Properties.parse(octets)
    except AMQPError:
        return None
    if _NAMES[place] != "headers":
        value = getattr(properties, _NAMES[place])
        return None if value is None else str(value).encode(errors="surrogateescape")
    for field in properties.headers or ():
        if field.name.encode() == name and field.type != "V":
            return header_key(field.type, field.value)
    return None


def any_copies(messages: list[Any]) -> bool:
    """Return True if a message may have a header CC or BCC, so that its properties are parsed before routing."""
    return any(b"\x02CC" in one.properties or b"\x03BCC" in one.properties for one in messages)


LAST_SECOND = 253402300799
"""The end of the year 9999: the last timestamp that Python's ``datetime`` represents."""

_NAMES = [field.name for field in fields(Properties)]
_NUMBERS = ("delivery_mode", "priority", "timestamp")
Buffers = tuple[bytes | None, ...]


def decode_properties(
    offsets: Any, octets: Any, first: int, count: int, wanted: int
) -> tuple[bytes | None, list[Buffers | None]]:
    """Decode an Arrow column of property lists, as published, into the buffers of Arrow columns.

    Args:
        offsets, octets: the buffers of a binary column.
        first, count: the rows.
        wanted: flags, as in a property list, of the properties to decode.

    Returns:
        The bitmap of well-formed rows, and for each of the fourteen properties the buffers of its column, None if no
        row has the property. Columns are texts (UTF-8, with replacement characters for other octets), or 64-bit
        integers for ``delivery_mode``, ``priority`` and ``timestamp`` (seconds; null after :data:`LAST_SECOND`). The
        buffers of the headers are offsets of rows to entries, offsets and octets of names, and the column of values in
        the form of :func:`~jumpmq.amqp.texts.header_texts`. A bitmap with all bits set is None.

    Raises:
        ValueError: an offset points outside its buffer.
    """
    parsed = [_parsed(value) for value in _binaries(offsets, octets, first, count)]
    columns: list[Buffers | None] = []
    for place, name in enumerate(_NAMES):
        if not wanted >> (15 - place) & 1:
            columns.append(None)
        elif name == "headers":
            columns.append(_header_buffers(parsed))
        else:
            values = [getattr(one, name) if one is not None else None for one in parsed]
            columns.append(_number_buffers(values) if name in _NUMBERS else _property_buffers(values))
    return _bitmap([one is not None for one in parsed]), columns


def _binaries(offsets: Any, octets: Any, first: int, count: int) -> list[bytes]:
    if first < 0 or count < 0 or (count and len(offsets) < 4 * (first + count + 1)):
        raise ValueError("an Arrow column with too few offsets")
    ends = array("i", bytes(offsets)[: 4 * (first + count + 1)] if count else b"\0\0\0\0")[first:]
    if not all(0 <= start <= stop <= len(octets) for start, stop in pairwise(ends)):
        raise ValueError("an offset of the Arrow column points outside its octets")
    return [bytes(octets)[start:stop] for start, stop in pairwise(ends)]


def _parsed(octets: bytes) -> Properties | None:
    try:
        return Properties.parse(octets)
    except AMQPError:
        return None


def _bitmap(present: Sequence[bool]) -> bytes | None:
    if all(present):
        return None
    octets = bytearray((len(present) + 7) // 8)
    for row, bit in enumerate(present):
        octets[row >> 3] |= bit << (row & 7)
    return bytes(octets)


def _number_buffers(values: list[int | None]) -> Buffers | None:
    known = [value if value is None or value <= LAST_SECOND else None for value in values]
    if all(value is None for value in known):
        return None
    return _bitmap([value is not None for value in known]), array("q", [value or 0 for value in known]).tobytes()


def _property_buffers(values: list[str | None]) -> Buffers | None:
    if all(value is None for value in values):
        return None
    raw = (None if value is None else value.encode(errors="surrogateescape") for value in values)
    return _text_buffers([None if one is None else one.decode(errors="replace") for one in raw])


def _text_buffers(values: Sequence[str | None]) -> Buffers:
    raw = [(value or "").encode() for value in values]
    return _bitmap([value is not None for value in values]), _offsets(map(len, raw)), b"".join(raw)


def _offsets(sizes: Any) -> bytes:
    return array("i", accumulate(sizes, initial=0)).tobytes()


def _header_buffers(parsed: list[Properties | None]) -> Buffers:
    """Return the buffers of a map column with the rows' header tables."""
    tables = [header_texts(one.headers) if one is not None and one.headers else {} for one in parsed]
    names = _text_buffers([name for table in tables for name in table])
    return (_offsets(map(len, tables)), *names[1:], *_text_buffers([text for one in tables for text in one.values()]))


class Body:
    """A message body, assembled from the payloads of its frames in a buffer of the announced size.

    Args:
        size: octets.

    Attributes:
        missing: octets that have not arrived.
    """

    def __init__(self, size: int) -> None:
        self._octets = bytearray(size)
        self.missing = size

    def add(self, piece: bytes | memoryview) -> None:
        """Append the next octets.

        Raises:
            ValueError: more octets than are missing.
        """
        if len(piece) > self.missing:
            raise ValueError("more octets than the body has")
        self.room()[: len(piece)] = piece
        self.missing -= len(piece)

    def room(self) -> memoryview:
        """Return the unfilled rest of the buffer, for a read directly into the body."""
        return memoryview(self._octets)[len(self._octets) - self.missing :]

    def placed(self, length: int) -> None:
        """Count ``length`` octets that were read into :meth:`room`.

        Raises:
            ValueError: more octets than are missing.
        """
        if not 0 <= length <= self.missing:
            raise ValueError("more octets than the body has")
        self.missing -= length

    def whole(self) -> bytes:
        """Return the complete body.

        Raises:
            ValueError: octets are missing.
        """
        if self.missing:
            raise ValueError("octets are missing")
        return bytes(self._octets)


def encode_properties(
    rows: int, headers: tuple[Any, Any, int, Cells, Cells] | None, columns: list[tuple[Any, ...] | None]
) -> tuple[bytes | None, bytes, bytes]:
    """Encode properties from Arrow columns. Return the buffers of a binary column, null for rows without properties.

    Args:
        headers: a column of maps from text to text: validity bitmap (None without nulls), offsets, number of entries,
            their names and their values. An empty map has no headers; a null value is a header of type V.
        columns: for each of the fourteen properties the buffers of text (:data:`Cells`) or of 64-bit integers (validity
            bitmap and values); None for a property that no row has.

    Raises:
        ValueError: a value does not fit into its property, or a column has fewer rows.
    """
    names = [field.name for field in fields(Properties)]
    found: list[bytes | None] = []
    for row in range(rows):
        values = [None if one is None else _value(one, row) for one in columns]
        made = Properties(**dict(zip(names, values, strict=True)))
        if headers is not None:
            made.headers = _entries(headers, row)
        try:
            found.append(None if made == Properties() else made.encode())
        except (OverflowError, struct.error):
            raise ValueError("a number that the property has no room for") from None
    octets = [one or b"" for one in found]
    return _bitmap([one is not None for one in found]), _offsets(map(len, octets)), b"".join(octets)


def _value(column: tuple[Any, ...], row: int) -> Any:
    if len(column) == 3:
        octets = _cell(column, row)
        return None if octets is None else octets.decode("utf-8", "surrogateescape")
    validity, numbers = column
    if len(numbers) < 8 * (row + 1):
        raise ValueError("an Arrow column with too few rows")
    if validity is not None and not memoryview(validity)[row // 8] >> row % 8 & 1:
        return None
    return int.from_bytes(memoryview(numbers)[8 * row : 8 * row + 8], "little", signed=True)


def _entries(headers: tuple[Any, Any, int, Cells, Cells], row: int) -> list[Field] | None:
    validity, offsets, _, names, values = headers
    if validity is not None and not memoryview(validity)[row // 8] >> row % 8 & 1:
        return None
    first, end = array("i", bytes(memoryview(offsets)[4 * row : 4 * row + 8]))
    found = []
    for entry in range(first, end):
        name, value = _cell(names, entry), _cell(values, entry)
        if name is None:
            raise ValueError("a header without a name")
        text = name.decode("utf-8", "surrogateescape")
        found.append(Field(text, "V", None) if value is None else Field(text, "S", value))
    return found or None


def encode_deliveries(
    messages: list[Any],
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    frame_max: int,
    added: bytes | dict[int, bytes] = b"",
) -> list[bytes | memoryview]:
    """Encode ``basic.deliver`` with header and body frames for each message; delivery tags count up from ``first_tag``.

    Args:
        messages: the messages, in order.
        consumer_tag: at most 255 octets.
        frame_max: maximum octets of a frame; bodies are cut accordingly.
        added: headers after those of the messages, for all messages or by slot: whole entries of a field table, without
            its length.

    Returns:
        Buffers to write one after the other. A body of ``APART`` octets or more is not copied.
    """
    out: list[bytes | memoryview] = []
    gathered = b""
    for tag, message in enumerate(messages, first_tag):
        exchange = message.exchange.encode()
        gathered += encode_frame(
            FRAME_METHOD,
            channel,
            b"".join(
                (
                    BASIC_DELIVER,
                    bytes((len(consumer_tag),)),
                    consumer_tag,
                    tag.to_bytes(8),
                    bytes((message.redelivered, len(exchange))),
                    exchange,
                    bytes((len(message.routing_key),)),
                    message.routing_key,
                )
            ),
        )
        fields = added[message.slot] if isinstance(added, dict) else added
        head, *rest = encode_content(message, channel, frame_max, added=fields)
        gathered += head
        if rest:
            *bodies, end = rest
            out += [gathered, *bodies]
            gathered = bytes(end)
    return [*out, gathered] if gathered else out


def decode_deliveries(octets: bytes | bytearray | memoryview, at: int) -> tuple[bytes, list[Message], int]:
    """Decode consecutive complete deliveries to a single consumer from ``octets[at]`` on, with at most one body frame
    per delivery.

    Returns:
        The consumer tag; the messages, whose ``seq`` is the delivery tag; and their end offset. Without a delivery at
        ``at``, no messages, and ``at``.
    """
    octets, consumer = bytes(octets), b""
    messages: list[Message] = []
    while (found := _whole_delivery(octets, at)) is not None:
        tag, message, end = found
        if messages and tag != consumer:
            break
        consumer, at = tag, end
        messages.append(message)
    return consumer, messages, at


def relay_deliveries(
    octets: bytearray | memoryview,
    at: int,
    first_tag: int,
    frame_max: int,
    queue: Any,
    consumer: Any,
    held: bool,
) -> tuple[list[Message], int, int, int]:
    """Rewrite, in place, the delivery tags of the deliveries that :func:`decode_deliveries` finds, up to a frame of
    more than ``frame_max`` octets.

    Args:
        first_tag: new tag of the first delivery; the next tags count up from it.
        queue, consumer: values of these attributes of the returned messages.
        held: True to return messages.

    Returns:
        If ``held``, a message without content for each delivery, whose ``seq`` is the former delivery tag; the number
        of deliveries; the number of redelivered ones; and the end offset.
    """
    before, tags = bytes(octets), set[bytes]()
    messages: list[Message] = []
    while (found := _whole_delivery(before, at)) is not None:
        tag, message, end = found
        tags.add(tag)
        if len(tags) > 1 or max(len(message.properties) + 12, len(message.body)) > frame_max - 8:
            break
        place = at + 12 + len(tag)
        octets[place : place + 8] = (first_tag + len(messages)).to_bytes(8)
        holding = Message("", b"", NO_PROPERTIES, b"")
        holding.seq, holding.redelivered, holding.queue, holding.consumer = (
            message.seq, message.redelivered, queue, consumer,
        )  # fmt: skip
        messages.append(holding)
        at = end
    redelivered = sum(message.redelivered for message in messages)
    return messages if held else [], len(messages), redelivered, at


def _whole_delivery(octets: bytes, at: int) -> tuple[bytes, Message, int] | None:
    """Decode the delivery at ``octets[at]``: consumer tag, message and end; None if it is incomplete."""
    if (method := _whole_frame(octets, at, FRAME_METHOD)) is None or method[:4] != BASIC_DELIVER or len(method) < 16:
        return None
    tag_end = 5 + method[4]
    if tag_end + 10 > len(method):
        return None
    key_at = tag_end + 10 + method[tag_end + 9]
    if key_at >= len(method) or key_at + 1 + method[key_at] != len(method):
        return None
    at += len(method) + 8
    header = _whole_frame(octets, at, FRAME_HEADER)
    if header is None or len(header) < 14:
        return None
    at, body = at + len(header) + 8, b""
    if size := int.from_bytes(header[4:12]):
        piece = _whole_frame(octets, at, FRAME_BODY)
        if piece is None or len(piece) != size:
            return None
        at, body = at + size + 8, piece
    exchange = method[tag_end + 10 : key_at].decode(errors="surrogateescape")
    message = Message(exchange, method[key_at + 1 :], header[12:], body)
    message.seq = int.from_bytes(method[tag_end : tag_end + 8], signed=True)  # the kernel's type is signed, too
    message.redelivered = bool(method[tag_end + 8])
    return method[5:tag_end], message, at


def _whole_frame(octets: bytes, at: int, kind: int) -> bytes | None:
    """Return the payload of a frame of the given type at ``octets[at]``; None if incomplete."""
    length = int.from_bytes(octets[at + 3 : at + 7])
    end = at + 7 + length
    if len(octets) <= end or octets[at] != kind or octets[end] != FRAME_END:
        return None
    return octets[at + 7 : end]


def encode_rows(
    buffers: list[Any],
    start: int,
    stop: int,
    offset: int,
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    frame_max: int,
) -> bytes:
    """Encode messages from Arrow columns as :func:`encode_deliveries` does, with the header ``x-stream-offset``.

    Args:
        buffers: 32-bit offsets and octets of four binary columns: exchange, routing key, properties, body.
        start, stop: the range of rows.
        offset: the header's value in the first message; the next messages count up from it.
    """
    columns = [
        (array("i", bytes(offsets)), memoryview(octets))
        for offsets, octets in zip(buffers[::2], buffers[1::2], strict=True)
    ]
    messages = []
    for row in range(start, stop):
        exchange, key, properties, body = (bytes(octets[ends[row] : ends[row + 1]]) for ends, octets in columns)
        numbered = with_header(properties, b"x-stream-offset", offset + row - start)
        messages.append(Message(exchange.decode(), key, numbered, body))
    return b"".join(encode_deliveries(messages, channel, consumer_tag, first_tag, frame_max))
