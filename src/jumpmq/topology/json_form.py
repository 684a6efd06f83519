"""JSON form of changes and definitions: an object of their fields. Used in records and in logs of changes.

Octets become text with surrogate escapes; arguments keep their types. Values to be read were written by this module;
only the value classes' own checks apply.
"""

import sys
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from jumpmq.topology.arguments import Arguments

T = TypeVar("T")

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
"""Types whose values are JSON already."""


def to_json(value: Any) -> Any:
    """Convert a definition, or a field of one, to JSON."""
    match value:
        case str() | int() | None:
            return value
        case Arguments():
            return value.to_json()
        case bytes():
            return value.decode(errors="surrogateescape")
        case tuple():
            return [to_json(item) for item in value]
    form = {}
    for name in _field_names(type(value)):  # type: ignore[arg-type]  # classes can be hashed
        inner = getattr(value, name)
        form[name] = inner if type(inner) in _AS_THEY_ARE else to_json(inner)  # most are
    return form or value


@cache
def _field_names(cls: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


def from_json(cls: type[T], value: dict[str, Any]) -> T:
    """Convert from the form of :func:`to_json`; missing fields get defaults. Equal texts share one string."""
    readers, parts = _readers(cls), {}  # type: ignore[arg-type]  # classes can be hashed
    for name, inner in value.items():
        read = readers[name]
        parts[name] = inner if inner is None or read is None else read(inner)
    return cls(**parts)


Reader = Callable[[Any], Any]
"""Converts a field's JSON form, never None."""


@cache
def _readers(cls: Hashable) -> dict[str, Reader | None]:
    return {name: _reader(kind) for name, kind in get_type_hints(cls).items()}


def _reader(kind: Any) -> Reader | None:
    """Return the converter of a type; None for types that are JSON already."""
    if get_origin(kind) is UnionType:  # only ``X | None``
        return _reader(get_args(kind)[0])
    if kind is str or (get_origin(kind) is Literal and isinstance(get_args(kind)[0], str)):
        return sys.intern
    if kind is Arguments:
        return Arguments.from_json
    if kind is bytes:
        return lambda value: value.encode(errors="surrogateescape")
    if get_origin(kind) is tuple:
        return tuple
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(from_json, kind)
    return None
