"""Field tables as octets, with the type of every value chosen by the test instead of a client library."""

import struct
from typing import Any

_NUMBERS = {
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "T": ">Q",
    "f": ">f",
    "d": ">d",
}
_HEADERS_FLAG = b"\x20\x00"


def field(name: str, field_type: str, value: Any) -> bytes:
    """A field of a table; the value as in the golden vectors (octets in hex, arrays and tables with types)."""
    octets = name.encode()
    return bytes([len(octets)]) + octets + field_value(field_type, value)


def field_value(field_type: str, value: Any) -> bytes:
    """The type octet and the value."""
    return field_type.encode() + _octets(field_type, value)


def _octets(field_type: str, value: Any) -> bytes:
    if field_type in _NUMBERS:
        return struct.pack(_NUMBERS[field_type], value)
    match field_type:
        case "S" | "x":
            return _counted(bytes.fromhex(value))
        case "t":
            return bytes([value])
        case "D":
            scale, unscaled = value
            return struct.pack(">Bi", scale, unscaled)
        case "A":
            return _counted(b"".join(field_value(*element) for element in value))
        case "F":
            return _counted(b"".join(field(name, *typed) for name, typed in value.items()))
        case "V":
            return b""
    raise ValueError(f"no field type {field_type}")


def _counted(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def headers(*fields: bytes) -> bytes:
    """Message properties, from the flag octets on, with these header fields only."""
    return _HEADERS_FLAG + _counted(b"".join(fields))
