"""Metrics as JSON, and back, for exchange between processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

Read = Callable[[Any], Any]


def dump(value: Any) -> bytes:
    """Return metrics, or a container of metrics, as JSON. Named tuples and dataclasses become lists of their fields."""
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return a value without a JSON type in the management API's format."""
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return int(value.timestamp())
    return str(value)


@cache
def reader(kind: Any) -> Read:
    """Return a function from JSON to a value of a type."""
    found = _reader(kind)
    return found if found is not None else lambda value: value


def _reader(kind: Any) -> Read | None:
    """As :func:`reader`; None if JSON values need no conversion."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (chosen,) = [one for one in inner if one is not NoneType]
        read = _reader(chosen)
        return None if read is None else lambda value: None if value is None else read(value)
    if origin is tuple:
        return _tuple_reader(inner)
    if origin is list:
        return _list_reader(inner[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_reader(inner[1])
    if isinstance(kind, type) and (hasattr(kind, "_fields") or is_dataclass(kind)):
        return _record_reader(kind)
    return None


def _list_reader(kind: Any) -> Read | None:
    read = _reader(kind)
    return None if read is None else lambda value: [read(one) for one in value]


def _mapping_reader(kind: Any) -> Read | None:
    read = _reader(kind)
    return None if read is None else lambda value: {key: read(one) for key, one in value.items()}


def _tuple_reader(inner: tuple[Any, ...]) -> Read:
    if inner[-1] is Ellipsis:
        read = _reader(inner[0])
        return tuple if read is None else lambda value: tuple([read(one) for one in value])
    reads = [reader(one) for one in inner]
    return lambda value: tuple([read(one) for read, one in zip(reads, value, strict=True)])


def _record_reader(kind: type[Any]) -> Read:
    hints = get_type_hints(kind)
    names = kind._fields if hasattr(kind, "_fields") else [field.name for field in fields(kind)]
    reads = [(place, read) for place, name in enumerate(names) if (read := _reader(hints[name])) is not None]

    def read_all(value: list[Any]) -> Any:
        for place, read in reads:
            value[place] = read(value[place])
        return kind(*value[: len(names)])  # a later release may append fields

    return read_all
