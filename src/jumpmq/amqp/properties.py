"""The properties of a message: the part of a content header after the body size (AMQP 0-9-1, section 4.2.6.1)."""

import struct
from dataclasses import dataclass, fields

from jumpmq.amqp.errors import AMQPError, MalformedFrame, MethodSyntaxError
from jumpmq.amqp.fields import Field, read_short_octets, read_table, write_fields, write_short_string

HEADERS = 0x2000
EXPIRATION = 0x0100
REPLY_TO = 0x0200
TIMESTAMP = 0x0040
USER_ID = 0x0010
"""Flags of the properties interpreted by the broker."""

NO_PROPERTIES = b"\0\0"
"""Encoding without any property."""

UNKNOWN_MODE = 0x0001
"""Flag of an unknown delivery mode, among the property flags of a run of messages."""


@dataclass(slots=True)
class Properties:
    """The fourteen properties of class ``basic``; None for an absent property.

    Strings that are not UTF-8 keep their octets as surrogate escapes.

    Attributes:
        headers: the header table, with the types of values.
        expiration: milliseconds, as a decimal string.
        timestamp: seconds since the epoch.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: list[Field] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    @classmethod
    def parse(cls, octets: bytes) -> "Properties":
        """Read the property flags and the property list.

        Raises:
            MethodSyntaxError: the octets are malformed.
        """
        if len(octets) < 2:
            raise MethodSyntaxError("content header without property flags")
        flags, offset = int.from_bytes(octets[:2]), 2
        # Bit 0 announces further flags (AMQP 0-9-1, section 4.2.6.1), and bit 1 has no property: class basic has
        # fourteen.
        if flags & 3:
            raise MethodSyntaxError("unknown property flags")
        properties = cls()
        try:
            for bit, name in _BITS:
                if flags & bit:
                    value, offset = _read(name, octets, offset)
                    setattr(properties, name, value)
        except MalformedFrame as error:
            raise MethodSyntaxError(error.text) from None
        if offset != len(octets):
            raise MethodSyntaxError("content header has octets behind its properties")
        return properties

    @staticmethod
    def place(name: str) -> int:
        """Return a property's index among the fourteen, from 0."""
        return _PLACES[name]

    def encode(self) -> bytes:
        """Encode the property flags and the property list: the inverse of :meth:`parse`."""
        flags, body = 0, []
        for bit, name in _BITS:
            value = getattr(self, name)
            if value is not None:
                flags |= bit
                body.append(_write(name, value))
        return flags.to_bytes(2) + b"".join(body)


def headers_of(octets: bytes) -> list[Field]:
    """Return the headers in encoded properties; an empty list without headers, or if the properties are malformed."""
    try:
        return Properties.parse(octets).headers or []
    except AMQPError:
        return []


def persistent_unless_said(octets: bytes) -> bytes:
    """Set delivery mode 2 in encoded properties without a delivery mode; malformed octets are returned unchanged.

    Faster than a parse: only the three properties before the delivery mode are skipped over.
    """
    flags = octets[0] if len(octets) > 1 else _DELIVERY_MODE
    if flags & _DELIVERY_MODE:
        return octets
    place = 2
    for before in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & before:
            place += 1 + (octets[place] if place < len(octets) else len(octets))
    if flags & _HEADERS:
        place += 4 + int.from_bytes(octets[place : place + 4])
    if place > len(octets):
        return octets
    return bytes((flags | _DELIVERY_MODE, octets[1])) + octets[2:place] + b"\x02" + octets[place:]


_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE = 0x80, 0x40, 0x20, 0x10
"""Flags in the first octet of properties."""

_PLACES = {field.name: place for place, field in enumerate(fields(Properties))}
_BITS = [(1 << (15 - place), field.name) for place, field in enumerate(fields(Properties))]
_NUMBERS = {"delivery_mode": struct.Struct(">B"), "priority": struct.Struct(">B"), "timestamp": struct.Struct(">Q")}


def _read(name: str, octets: bytes, offset: int) -> tuple[object, int]:
    if name == "headers":
        return read_table(octets, offset)
    if name in _NUMBERS:
        layout = _NUMBERS[name]
        if offset + layout.size > len(octets):
            raise MethodSyntaxError("property runs past the end of its frame")
        return layout.unpack_from(octets, offset)[0], offset + layout.size
    raw, end = read_short_octets(octets, offset)
    # Octets other than UTF-8 have to be the same after encoding.
    return raw.decode(errors="surrogateescape"), end


def _write(name: str, value: object) -> bytes:
    if name == "headers":
        return write_fields(value)  # type: ignore[arg-type]
    if name in _NUMBERS:
        return _NUMBERS[name].pack(value)
    assert isinstance(value, str)
    return write_short_string(value.encode(errors="surrogateescape"))
