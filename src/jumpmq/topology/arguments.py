"""Arguments of declarations and bindings: a typed, comparable field table that can be stored as JSON."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from jumpmq.amqp.fields import INTEGER_TYPES, Field, to_python, typed, write_fields

_INTEGER_TYPES = frozenset((*INTEGER_TYPES, "D"))  # decimals included, as in RabbitMQ
_FLOAT_TYPES = frozenset("fd")

SHARED = 200
"""Maximum size of shared arguments, in octets. They stay in memory for a while after their last use."""


class Arguments:
    """An immutable field table; tables with equal octets on the wire are equal.

    Attributes:
        fields: the fields, in the given order.
    """

    __slots__ = ("_octets", "fields")

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self.fields = tuple(fields)
        self._octets = write_fields(self.fields)

    @classmethod
    def of(cls, mapping: "Mapping[str, Any] | Arguments") -> "Arguments":
        """Return a table of plain Python values.

        Raises:
            TypeError: a value has no field type.
        """
        if isinstance(mapping, Arguments):
            return mapping
        return cls(Field(name, *typed(value)) for name, value in mapping.items())

    @classmethod
    def shared(cls, fields: Iterable[Field]) -> "Arguments":
        """Return a possibly shared instance: a hundred thousand queues are declared with equal arguments."""
        if not (found := tuple(fields)):
            return NO_ARGUMENTS
        made = cls(found)
        return _first_equal(made) if len(made._octets) <= SHARED else made

    def get(self, name: str) -> Field | None:
        """Return the first field of a given name."""
        for field in self.fields:
            if field.name == name:
                return field
        return None

    def text(self, name: str) -> str | None:
        """Return the value of a string field; None if missing or not a string."""
        field = self.get(name)
        return field.value if field is not None and isinstance(field.value, str) else None

    def sorted(self) -> "Arguments":
        """Return the fields sorted by name, as bindings are compared."""
        return Arguments(sorted(self.fields, key=lambda field: field.name.encode()))

    def plain(self) -> dict[str, Any]:
        """Return the table as a dict of plain Python values."""
        return to_python(self.fields)

    def to_json(self) -> list[Any]:
        """Return the fields as JSON: ``[[name, type, value], ...]``; octets that are not text as hexadecimal
        strings.
        """
        return [[field.name, *_value_to_json(field.type, field.value)] for field in self.fields]

    @classmethod
    def from_json(cls, value: list[Any]) -> "Arguments":
        """Return the table of a JSON value of :meth:`to_json`."""
        return cls.shared(Field(name, *_value_from_json(kind, inner)) for name, kind, inner in value)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arguments) and self._octets == other._octets

    def __hash__(self) -> int:
        return hash(self._octets)

    def __repr__(self) -> str:
        return f"Arguments({list(self.fields)!r})"


NO_ARGUMENTS = Arguments()


@lru_cache(maxsize=1024)
def _first_equal(arguments: Arguments) -> Arguments:
    return arguments


def comparable(field: Field) -> tuple[str, Any]:
    """Return the value that fields are compared by: as in RabbitMQ, all integer types are equal, and
    both float types.
    """
    if field.type in _INTEGER_TYPES:
        return "int", field.value
    if field.type in _FLOAT_TYPES:
        return "float", field.value
    return field.type, field.value


def _value_to_json(kind: str, value: Any) -> tuple[str, Any]:
    match kind:
        case "S" if isinstance(value, bytes):
            return "S:hex", value.hex()
        case "x":
            return kind, value.hex()
        case "A":
            return kind, [_value_to_json(*item) for item in value]
        case "F":
            return kind, Arguments(value).to_json()
        case "D":
            return kind, list(value)
    return kind, value


def _value_from_json(kind: str, value: Any) -> tuple[str, Any]:
    match kind:
        case "S:hex":
            return "S", bytes.fromhex(value)
        case "x":
            return kind, bytes.fromhex(value)
        case "A":
            return kind, [_value_from_json(*item) for item in value]
        case "F":
            return kind, list(Arguments.from_json(value).fields)
        case "D":
            return kind, tuple(value)
    return kind, value
