"""Metadata of encapsulated messages in an Arrow stream, parsed before the buffers.

A message's metadata is a Flatbuffers table (Arrow, "Serialization and Interprocess Communication"; ``Message.fbs`` and
``Schema.fbs`` in Arrow's sources). pyarrow exposes neither the byte order of a schema nor the compression of a record
batch, so this module reads these fields. Layout of Flatbuffers, all little-endian: the first 4 octets are the position
of the root table. A table begins with the distance back to its vtable. A vtable has its own size, the table's size, and
the offset of each field in the table, 0 for a missing field (16 bits each).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

LITTLE_ENDIAN = 0

_HEADER = 2
"""Number of the message field that refers to the header, a schema or record batch."""

_ENDIANNESS = 0
_LENGTH, _COMPRESSION = 0, 3


class MalformedMetadata(ValueError):
    """The metadata refers to a position outside of the metadata."""


class BatchHeader(NamedTuple):
    """Declaration of a record batch: number of rows, and compression of the buffers."""

    rows: int
    compressed: bool


def endianness(metadata: memoryview) -> int:
    """Return the byte order declared by a schema message, for example :data:`LITTLE_ENDIAN`.

    Raises:
        MalformedMetadata: the metadata is malformed.
    """
    schema = _header(metadata)
    place = _field(metadata, schema, _ENDIANNESS)
    return _number(metadata, "<h", schema + place) if place else LITTLE_ENDIAN


def batch_header(metadata: memoryview) -> BatchHeader:
    """Return the header of a record batch message.

    Raises:
        MalformedMetadata: the metadata is malformed.
    """
    batch = _header(metadata)
    place = _field(metadata, batch, _LENGTH)
    rows = _number(metadata, "<q", batch + place) if place else 0
    return BatchHeader(rows, _field(metadata, batch, _COMPRESSION) != 0)


def _header(metadata: memoryview) -> int:
    """Return the position of the header's table in a message."""
    message = _number(metadata, "<I", 0)
    place = _field(metadata, message, _HEADER)
    if not place:
        raise MalformedMetadata("a message has no header")
    return message + place + _number(metadata, "<I", message + place)


def _field(metadata: memoryview, table: int, number: int) -> int:
    """Return the offset of a field from the table's position; 0 if missing."""
    vtable = table - _number(metadata, "<i", table)
    entry = 4 + 2 * number
    return _number(metadata, "<H", vtable + entry) if entry < _number(metadata, "<H", vtable) else 0


def _number(metadata: memoryview, form: str, place: int) -> int:
    if not 0 <= place <= len(metadata) - struct.calcsize(form):
        raise MalformedMetadata("a message's metadata refers to a place outside of it")
    found: int = struct.unpack_from(form, metadata, place)[0]
    return found
