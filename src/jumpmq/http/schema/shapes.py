"""Shapes of JSON objects in request bodies: a table of keys, with the kinds of their values.

The table is used for both: parsing a body, and the body's schema in the OpenAPI document. A mismatch raises a
:class:`BadRequest` that names the key. Numbers and truth values may be strings, as sent by ``rabbitmqadmin``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jumpmq.amqp.fields import MAX_DEPTH, Field, typed
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.topology import Arguments

MAX_NAME = 255
"""Maximum octets of a name: the maximum of AMQP's short string."""


@dataclass(frozen=True)
class ValueKind:
    """The kind of a value.

    Attributes:
        words: description of expected values, for error messages.
        schema: the JSON schema of expected values.
        read: converts a JSON value to the value used by the resource. Raises a ValueError for a mismatch, with the
            reason as an optional text.
    """

    words: str
    schema: dict[str, Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Shape:
    """The keys of an object.

    Attributes:
        keys: kinds by key; a null counts as a missing key.
        required: required keys.
        ignored: further allowed keys; their values are not used.
        tolerant: True to allow unknown keys.
    """

    keys: Mapping[str, ValueKind]
    required: tuple[str, ...] = ()
    ignored: tuple[str, ...] = field(default=())
    tolerant: bool = False

    def knows(self, key: str) -> bool:
        """Return True for an allowed key."""
        return key in self.keys or key in self.ignored

    def read(self, found: Any, subject: str = "") -> dict[str, Any]:
        """Return the values of the given keys.

        Args:
            subject: name of the object at the beginning of error messages, if the body has several objects.

        Raises:
            BadRequest: a key is unknown or missing, or a value has another kind.
        """
        prefix = f"{subject}: " if subject else ""
        if not isinstance(found, dict):
            raise BadRequest(f"{prefix}expected an object, not {shown(found)}")
        for key in found:
            if not (self.tolerant or self.knows(key)):
                raise BadRequest(f"{prefix}unknown key '{key}'; known keys are {', '.join(self.keys)}")
        for key in self.required:
            if found.get(key) is None:
                raise BadRequest(f"{prefix}key '{key}' is missing")
        present = [(key, kind) for key, kind in self.keys.items() if found.get(key) is not None]
        return {key: _read(prefix, key, kind, found[key]) for key, kind in present}

    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON schema."""
        known = {key: kind.schema for key, kind in self.keys.items()}
        found: dict[str, Any] = {
            "type": "object",
            "properties": known | {key: {} for key in self.ignored},
            "additionalProperties": self.tolerant,
        }
        return found | ({"required": list(self.required)} if self.required else {})


def _read(prefix: str, key: str, kind: ValueKind, value: Any) -> Any:
    try:
        return kind.read(value)
    except ValueError as error:
        because = f": {error}" if error.args else ""
        raise BadRequest(f"{prefix}'{key}' must be {kind.words}, not {shown(value)}{because}") from None


def shown(value: Any) -> str:
    """Return a value as quoted in an error message."""
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _boolean(value: Any) -> bool:
    found = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _name(value: Any) -> str:
    if len(_text(value).encode()) > MAX_NAME:
        raise ValueError(f"more than {MAX_NAME} octets")
    return _text(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, str) and len(value) > 20):
        raise ValueError
    try:
        number = int(value)
    except ValueError:
        raise ValueError from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("more than 64 bits")
    return number


def _number(value: Any) -> float:
    return value if isinstance(value, float) else _integer(value)


def whole(maximum: int) -> ValueKind:
    """Return a kind for whole numbers from 0 to ``maximum``."""

    def read(value: Any) -> int:
        number = _integer(value)
        if not 0 <= number <= maximum:
            raise ValueError
        return number

    return ValueKind(f"a whole number from 0 to {maximum}", {"type": "integer", "minimum": 0, "maximum": maximum}, read)


def one_of(*words: str) -> ValueKind:
    """Return a kind for the given words only."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return ValueKind(f"one of {', '.join(words)}", {"type": "string", "enum": list(words)}, read)


def numbers(most: int) -> ValueKind:
    """Return a kind for lists of at most ``most`` whole numbers from 0."""

    def read(value: Any) -> list[int]:
        if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 1 << 63 for one in value):
            raise ValueError
        if len(value) > most:
            raise ValueError("too many numbers")
        return value

    schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": most}
    return ValueKind(f"a list of at most {most} whole numbers", schema, read)


def _texts(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _arguments(value: Any) -> Arguments:
    table = _table(value)
    return Arguments(Field(name, *_typed(inner)) for name, inner in table.items())


def _typed(value: Any) -> tuple[str, Any]:
    """Return field type and value for a JSON value, by RabbitMQ's choice of types: an integer is a long."""
    match value:
        case None:
            raise BadRequest("null_not_allowed")
        case bool():
            return "t", value
        case int():
            return "l", value
        case dict():
            return "F", [Field(name, *_typed(inner)) for name, inner in value.items()]
        case list():
            return "A", list(map(_typed, value))
    return typed(value)


def _table(value: Any) -> dict[str, Any]:
    if value == []:  # RabbitMQ, in Erlang, writes an empty object in this form
        return {}
    if not isinstance(value, dict):
        raise ValueError
    _check_table(value, MAX_DEPTH)
    return value


def _check_table(value: Any, depth: int) -> None:
    """Raise an error unless a JSON value can be an AMQP field value."""
    if not depth:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    match value:
        case dict():
            for key, inner in value.items():
                _name(key)
                _check_table(inner, depth - 1)
        case list():
            for inner in value:
                _check_table(inner, depth - 1)
        case int():
            _integer(int(value))


def _object(value: Any) -> dict[str, Any]:
    found = {} if value == [] else value
    if not isinstance(found, dict):
        raise ValueError
    return found


def _objects(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError
    return value


_TEXT_SCHEMA = {"type": "string"}
BOOLEAN = ValueKind("true or false", {"type": "boolean"}, _boolean)
TEXT = ValueKind("a string", _TEXT_SCHEMA, _text)
NAME = ValueKind(f"a string of at most {MAX_NAME} octets", _TEXT_SCHEMA | {"maxLength": MAX_NAME}, _name)
NUMBER = ValueKind("a number", {"type": "number"}, _number)
INTEGER = ValueKind("a whole number", {"type": "integer"}, _integer)
HOME = whole(65535)
"""Number of a home; 0 for no home."""
TEXTS = ValueKind(
    "a list of strings, or one string with commas",
    {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA}]},
    _texts,
)
ARGUMENTS = ValueKind("an object of values that AMQP can represent", {"type": "object"}, _arguments)
EXPORTED_ARGUMENTS = ValueKind(ARGUMENTS.words, ARGUMENTS.schema, lambda value: Arguments.of(_table(value)))
"""Arguments in a definitions file, which has no field types: integers get the type used by most clients."""
OBJECT = ValueKind("an object", {"type": "object"}, _object)
ANY = ValueKind("any value", {}, lambda value: value)
OBJECTS = ValueKind("a list of objects", {"type": "array", "items": {"type": "object"}}, _objects)
