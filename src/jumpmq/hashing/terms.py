"""Hash keys of messages: from a routing key, property or header, as in RabbitMQ 4.x.

A key is bytes, hashed with ``phash2`` by the ring, or an integer, which is its own hash. RabbitMQ hashes a value of any
other type as the Erlang term of the parsed AMQP field; the key is then the ``phash2`` of this term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jumpmq.hashing._reference import Atom, Term, phash2
from jumpmq.hashing.arrow import int32_array, key_buffers
from jumpmq.hashing.functions import NUMBERS, HashFunction
from jumpmq.hashing.kernel import MISSING, moduli, modulus_of_arrow, phash2_list

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MISSING", "header_key", "moduli", "modulus", "modulus_array", "timestamp_key"]

_TRUE, _FALSE = phash2(True), phash2(False)


def header_key(type: str, value: Any) -> bytes | int:
    """Return the key of a header field.

    Args:
        type: the AMQP 0-9-1 field type octet, as RabbitMQ reads it: one of ``SxtbBsuIilLTdfDAFV``.
        value: the value, as ``jumpmq.amqp.fields`` reads it: bytes or str for S and x; bool for t; int for the integers
            and, in seconds, for T; float for d and f; (scale, value) for D; a list of (type, value) for A; a list of
            (name, type, value) for F; None for V, which counts as missing.

    Raises:
        ValueError: unknown field type.
    """
    try:
        key = _KEYS[type]
    except KeyError:
        raise ValueError(f"there is no AMQP field type {type!r}") from None
    return key(value)


def timestamp_key(seconds: int) -> bytes:
    """Return the key of the property ``timestamp``: decimal digits. (The key of a *header* of type T is an integer.)"""
    return b"%d" % seconds


def modulus(keys: list[bytes], n: int, function: HashFunction = "phash2") -> int:
    """Return the destination, 0 to n - 1, that a modulus hash exchange chooses.

    Args:
        keys: the routing key, then the keys of the headers CC and BCC (with ``phash2`` only).
        n: number of bound destinations.

    Raises:
        ValueError: n is less than 1.
    """
    if n < 1:
        raise ValueError(f"a modulus is 1 or more, not {n}")
    return phash2_list(keys) % n if function == "phash2" else moduli(keys[:1], n, NUMBERS[function])[0]


def modulus_array(keys: pa.Array, n: int, function: HashFunction = "phash2") -> pa.Array:
    """Return ``modulus`` of each routing key of an Arrow array of binaries or strings, as int32. A null counts as
    missing.

    Raises:
        ValueError: n is less than 1.
        TypeError: the keys are neither binary nor string.
    """
    buffers = key_buffers(keys)
    return int32_array(len(keys), lambda out: modulus_of_arrow(out, n, buffers, NUMBERS[function]))


def _octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _bool_key(value: bool) -> int:
    return _TRUE if value else _FALSE


def _first_key(terms: Sequence[Term]) -> int:
    """Hash an array or table by its first entry alone."""
    return phash2(terms[0] if terms else [])


_KEYS: dict[str, Callable[[Any], bytes | int]] = {
    "S": _octets,
    "x": _octets,
    "t": _bool_key,
    **dict.fromkeys("bBsuIilL", int),
    "T": lambda seconds: int(seconds) * 1000,
    "d": phash2,
    "f": phash2,
    "D": lambda decimal: phash2(tuple(decimal)),
    "A": lambda array: _first_key(_array(array[:1])),
    "F": lambda table: _first_key(_table(table[:1])),
    "V": lambda _: MISSING,
}


# Inside an array or table, every value is a pair of its type's name and its term, to any depth.


def _array(array: list[tuple[str, Any]]) -> list[Term]:
    return [(Atom(_NAMES[type]), _term(type, value)) for type, value in array]


def _table(table: list[tuple[str, str, Any]]) -> list[Term]:
    return [(_octets(name), Atom(_NAMES[type]), _term(type, value)) for name, type, value in table]


def _term(type: str, value: Any) -> Term:
    match type:
        case "S" | "x":
            return _octets(value)
        case "D":
            return tuple(value)
        case "A":
            return _array(value)
        case "F":
            return _table(value)
        case "V":
            return Atom("undefined")
    return value  # type: ignore[no-any-return]


_NAMES = {
    "S": "longstr",
    "x": "binary",
    "t": "bool",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "long",
    "T": "timestamp",
    "d": "double",
    "f": "float",
    "D": "decimal",
    "A": "array",
    "F": "table",
    "V": "void",
}
