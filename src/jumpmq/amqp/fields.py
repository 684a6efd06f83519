"""AMQP 0-9-1 field tables, with the type of every value kept.

The types are those of RabbitMQ (the AMQP 0-9-1 errata page "Field types"), not those of the specification's grammar.
The types are kept because a header is hashed by its type and value, and because the broker must deliver headers as
published.

A value in Python, by its type octet:

====================  ==================================================
``S``                 str if the octets are UTF-8, otherwise bytes
``x``                 bytes
``t``                 bool
``b B s u I i l``     int (8, 8, 16, 16, 32, 32, 64 bits)
``T``                 int, seconds since the epoch
``d f``               float
``D``                 (scale, value), two ints
``A``                 list of (type, value)
``F``                 list of Field
``V``                 None
====================  ==================================================

``L`` is read as ``l``, as RabbitMQ does: a rewritten message, such as a dead-lettered one, has ``l``.

Reading is strict: a value beyond the end of its table or frame is a ``MalformedFrame`` (501), an unknown type a
``MethodSyntaxError`` (502).
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from jumpmq.amqp.errors import MalformedFrame, MalformedText, MethodSyntaxError

INTEGER_TYPES = "bBsuIilL"
"""Type octets of integers."""

MAX_DEPTH = 64
"""Maximum nesting depth of tables and arrays; deeper input is refused, because it would exhaust the stack."""


class Field(NamedTuple):
    """An entry of a field table."""

    name: str
    type: str
    value: Any


def read_table(octets: bytes, offset: int = 0) -> tuple[list[Field], int]:
    """Read the field table at ``offset``.

    Returns:
        The fields in their order, and the offset after the table.

    Raises:
        MalformedFrame: a part of the table runs past its end, or a name is not UTF-8.
        MethodSyntaxError: a field type is unknown, or tables are nested too deep.
    """
    return _read_table(octets, offset, len(octets), 0)


def read_value(octets: bytes) -> tuple[str, Any]:
    """Decode a field's type and value from its type octet on. Raises as :func:`read_table`."""
    kind, value, _ = _read_value(octets, 0, len(octets), 0)
    return kind, value


def to_python(fields: Iterable[Field]) -> dict[str, Any]:
    """Return fields as a plain dict: decimals become ``Decimal``, timestamps aware ``datetime``."""
    return {field.name: _plain(field.type, field.value) for field in fields}


def write_table(mapping: Mapping[str, Any]) -> bytes:
    """Encode a dict of plain Python values as a field table; integers become ``I`` or, if too large, ``l``."""
    return write_fields([Field(name, *typed(value)) for name, value in mapping.items()])


def write_fields(fields: Iterable[Field]) -> bytes:
    """Encode fields as a table: the inverse of :func:`read_table`, octet for octet except for type ``L``."""
    body = b"".join(write_short_string(name) + _write_value(kind, value) for name, kind, value in fields)
    return len(body).to_bytes(4) + body


def typed(value: Any) -> tuple[str, Any]:
    """Return the field type and field value of a plain Python value.

    Raises:
        TypeError: the value has no field type.
    """
    match value:
        case None:
            return "V", None
        case bool():
            return "t", value
        case int():
            return ("I" if -(1 << 31) <= value < 1 << 31 else "l"), value
        case float():
            return "d", value
        case str() | bytes():
            return "S", value
        case datetime():
            return "T", int(value.timestamp())
        case Decimal():
            scale = max(0, -int(value.as_tuple().exponent))
            return "D", (scale, int(value.scaleb(scale)))
        case Mapping():
            return "F", [Field(name, *typed(item)) for name, item in value.items()]
        case list() | tuple():
            return "A", [typed(item) for item in value]
    raise TypeError(f"no AMQP field type for {type(value).__name__}")


def read_short_string(octets: bytes, offset: int) -> tuple[str, int]:
    """Decode a short string; return the string with the offset after the end.

    Raises:
        MalformedFrame: the string runs past the end or is not UTF-8.
    """
    raw, end = read_short_octets(octets, offset)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise MalformedText("Malformed UTF-8 in shortstr") from None


def read_short_octets(octets: bytes, offset: int) -> tuple[bytes, int]:
    """Read a short string as octets, for routing keys other than text; return the octets with the
    offset after the end.
    """
    if offset >= len(octets):
        raise _truncated()
    end = offset + 1 + octets[offset]
    if end > len(octets):
        raise _truncated()
    return octets[offset + 1 : end], end


def write_short_string(text: str | bytes) -> bytes:
    """Encode a short string.

    Raises:
        ValueError: the text has more than 255 octets.
    """
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > 255:
        raise ValueError("a short string holds at most 255 octets")
    return bytes((len(raw),)) + raw


def _truncated() -> MalformedFrame:
    return MalformedFrame("field runs past the end of its frame")


def _read_table(octets: bytes, offset: int, limit: int, depth: int) -> tuple[list[Field], int]:
    _check_depth(depth)
    offset, end = _extent(octets, offset, limit)
    fields: list[Field] = []
    while offset < end:
        name, offset = read_short_string(octets, offset)
        kind, value, offset = _read_value(octets, offset, end, depth)
        fields.append(Field(name, kind, value))
    return fields, end


def _read_array(octets: bytes, offset: int, limit: int, depth: int) -> tuple[list[tuple[str, Any]], int]:
    _check_depth(depth)
    offset, end = _extent(octets, offset, limit)
    items: list[tuple[str, Any]] = []
    while offset < end:
        kind, value, offset = _read_value(octets, offset, end, depth)
        items.append((kind, value))
    return items, end


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise MethodSyntaxError(f"field table nested deeper than {MAX_DEPTH}")


def _extent(octets: bytes, offset: int, limit: int) -> tuple[int, int]:
    """Return start and end of the content of a table, array, long string or byte array."""
    start = offset + 4
    if start > limit:
        raise _truncated()
    end = start + int.from_bytes(octets[offset:start])
    if end > limit:
        raise _truncated()
    return start, end


def _read_value(octets: bytes, offset: int, limit: int, depth: int) -> tuple[str, Any, int]:
    if offset >= limit:
        raise _truncated()
    kind, offset = chr(octets[offset]), offset + 1
    if kind in _NUMBERS:
        layout = _NUMBERS[kind]
        if offset + layout.size > limit:
            raise _truncated()
        return "l" if kind == "L" else kind, layout.unpack_from(octets, offset)[0], offset + layout.size
    if kind not in _OTHERS:
        raise MethodSyntaxError(f"unknown field type {kind!r}")
    value, end = _OTHERS[kind](octets, offset, limit, depth + 1)
    return kind, value, end


def _read_string(octets: bytes, offset: int, limit: int, depth: int) -> tuple[str | bytes, int]:
    raw, end = _read_bytes(octets, offset, limit, depth)
    try:
        return raw.decode(), end
    # AMQP 0-9-1, section 4.2.5.3: a long string may contain any octets.
    except UnicodeDecodeError:
        return raw, end


def _read_bytes(octets: bytes, offset: int, limit: int, depth: int) -> tuple[bytes, int]:
    start, end = _extent(octets, offset, limit)
    return octets[start:end], end


def _read_decimal(octets: bytes, offset: int, limit: int, depth: int) -> tuple[tuple[int, int], int]:
    if offset + 5 > limit:
        raise _truncated()
    return (octets[offset], int.from_bytes(octets[offset + 1 : offset + 5])), offset + 5


def _read_void(octets: bytes, offset: int, limit: int, depth: int) -> tuple[None, int]:
    return None, offset


_NUMBERS = {
    kind: struct.Struct(">" + code)
    for kind, code in {
        "t": "?", "b": "b", "B": "B", "s": "h", "u": "H", "I": "i", "i": "I", "l": "q", "L": "q", "T": "Q",
        "f": "f", "d": "d",
    }.items()
}  # fmt: skip

_OTHERS: dict[str, Callable[[bytes, int, int, int], tuple[Any, int]]] = {
    "S": _read_string,
    "x": _read_bytes,
    "D": _read_decimal,
    "A": _read_array,
    "F": _read_table,
    "V": _read_void,
}


_DECIMAL = struct.Struct(">BI")


def _write_value(kind: str, value: Any) -> bytes:
    octet = kind.encode()
    if kind in _NUMBERS:
        return octet + _NUMBERS[kind].pack(value)
    match kind:
        case "S" | "x":
            raw: bytes = value.encode() if isinstance(value, str) else value
            return octet + len(raw).to_bytes(4) + raw
        case "D":
            return octet + _DECIMAL.pack(*value)
        case "A":
            body = b"".join(_write_value(*item) for item in value)
            return octet + len(body).to_bytes(4) + body
        case "F":
            return octet + write_fields(value)
    return octet


def _plain(kind: str, value: Any) -> Any:
    match kind:
        case "T":
            try:
                return datetime.fromtimestamp(value, UTC)
            # A client may send any 64-bit number: a timestamp outside of Python's range stays a number.
            except (OverflowError, ValueError, OSError):
                return value
        case "D":
            return Decimal(value[1]).scaleb(-value[0])
        case "A":
            return [_plain(*item) for item in value]
        case "F":
            return to_python(value)
    return value
