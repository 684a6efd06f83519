"""Erlang's notation of terms (``~p``): RabbitMQ's error texts show offending values in Erlang notation, and clients
compare the texts.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from jumpmq.amqp.fields import Field

TYPE_NAMES = {
    "S": "longstr", "t": "bool", "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort",
    "I": "signedint", "i": "unsignedint", "l": "long", "L": "long", "T": "timestamp", "f": "float", "d": "double",
    "D": "decimal", "x": "binary", "A": "array", "F": "table", "V": "void",
}  # fmt: skip
"""RabbitMQ's atoms for the type octets of AMQP fields."""

_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e", 34: '\\"', 92: "\\\\"}


def atom(text: str) -> str:
    """Format an atom, in quotes where necessary."""
    return text if re.fullmatch(r"[a-z][A-Za-z0-9_@]*", text) else f"'{text}'"


def binary(octets: bytes) -> str:
    """Format a binary: ``<<"text">>`` if every octet is printable Latin-1, otherwise ``<<1,2,3>>``."""
    if not octets:
        return "<<>>"
    if all(octet in _ESCAPES or 32 <= octet <= 126 or octet >= 160 for octet in octets):
        shown = b"".join(_ESCAPES[octet].encode() if octet in _ESCAPES else bytes((octet,)) for octet in octets)
        return f'<<"{shown.decode(errors="replace")}">>'
    return f"<<{','.join(map(str, octets))}>>"


def string(text: str) -> str:
    """Format a string, in quotes."""
    return '"' + "".join(_ESCAPES.get(ord(letter), letter) for letter in text) + '"'


def term(kind: str, value: Any) -> str:
    """Format the value of an AMQP field of type ``kind``, in RabbitMQ's internal representation."""
    match kind:
        case "S" | "x":
            return binary(value.encode(errors="surrogateescape") if isinstance(value, str) else value)
        case "t":
            return "true" if value else "false"
        case "V":
            return "undefined"
        case "D":
            return f"{{{value[0]},{value[1]}}}"
        case "A":
            return _list(f"{{{TYPE_NAMES[item]},{term(item, inner)}}}" for item, inner in value)
        case "F":
            return _list(_entry(field) for field in value)
    return repr(value)


def plain(kind: str, value: Any) -> str:
    """Format a field's value for a text that puts quotes around it: strings bare, everything else as :func:`term`."""
    if kind in ("S", "x"):
        return value if isinstance(value, str) else value.decode(errors="replace")
    return term(kind, value)


def json_term(value: Any) -> str:
    """Format a JSON value in RabbitMQ's internal representation: objects as maps, strings as binaries."""
    if isinstance(value, str):
        return binary(value.encode(errors="surrogatepass"))
    if isinstance(value, dict):
        return f"#{{{','.join(f'{json_term(key)} => {json_term(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        if value and all(isinstance(item, int) and (item in _ESCAPES or 32 <= item <= 126) for item in value):
            return string("".join(map(chr, value)))  # Erlang cannot tell such a list from a string
        return _list(map(json_term, value))
    if isinstance(value, float):
        return _float(value)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return repr(value)  # Erlang has only finite floats
    mantissa, exponent, power = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power.removeprefix('+')}"


def _list(items: "Sequence[str] | Any") -> str:
    return f"[{','.join(items)}]"


def _entry(field: Field) -> str:
    return f"{{{binary(field.name.encode())},{TYPE_NAMES[field.type]},{term(field.type, field.value)}}}"
