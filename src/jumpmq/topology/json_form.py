"""The JSON form of changes and definitions: an object of their fields. Records have it, and a log of changes can.

Octets become text with surrogate escapes, arguments keep their types. What is read was written here: only what the
value's own rules check is checked.
"""

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from jumpmq.topology import changes
from jumpmq.topology.arguments import Arguments

T = TypeVar("T")

_CHANGES: dict[str, type[changes.Change]] = {
    name: cls for name, cls in vars(changes).items() if isinstance(cls, type) and issubclass(cls, changes.Change)
}


def change_to_json(change: changes.Change) -> dict[str, Any]:
    """A change: its fields, and the kind of change under ``change``."""
    return {"change": type(change).__name__, **to_json(change)}


def change_from_json(value: dict[str, Any]) -> changes.Change:
    """The inverse of :func:`change_to_json`."""
    return from_json(_CHANGES[value["change"]], {key: value[key] for key in value if key != "change"})


def to_json(value: Any) -> Any:
    """A definition, or one of its fields."""
    match value:
        case str() | int() | None:
            return value
        case Arguments():
            return value.to_json()
        case bytes():
            return value.decode(errors="surrogateescape")
        case tuple():
            return [to_json(item) for item in value]
    names = _field_names(type(value))  # type: ignore[arg-type]  # classes can be hashed
    return {name: to_json(getattr(value, name)) for name in names} if names else value


@cache
def _field_names(cls: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


def from_json(cls: type[T], value: dict[str, Any]) -> T:
    """The inverse of :func:`to_json`; fields that are missing get their defaults."""
    types = _types(cls)  # type: ignore[arg-type]  # classes can be hashed
    return cls(**{name: _read(types[name], inner) for name, inner in value.items()})


@cache
def _types(cls: Hashable) -> dict[str, Any]:
    return get_type_hints(cls)


def _read(kind: Any, value: Any) -> Any:
    if get_origin(kind) is UnionType:  # only ``X | None``
        return None if value is None else _read(get_args(kind)[0], value)
    if kind is Arguments:
        return Arguments.from_json(value)
    if kind is bytes:
        return value.encode(errors="surrogateescape")
    if get_origin(kind) is tuple:
        return tuple(value)
    return from_json(kind, value) if isinstance(kind, type) and is_dataclass(kind) else value
