"""Objects as the management API shows them: columns chosen, long lists encoded without holding up the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

CHUNK = 200
"""Objects of a list that are encoded at once: a millisecond or two of work."""

T = TypeVar("T")


async def json_list(request: Request, items: Iterable[T], show: Callable[[T], dict[str, Any]]) -> Response:
    """Answer with a list of objects, in the columns that the query asks for."""
    columns = _columns(request)
    iterator, parts = iter(list(items)), []
    while chunk := list(islice(iterator, CHUNK)):
        parts.append(",".join([_dump(_select(show(item), columns)) for item in chunk]))
        await asyncio.sleep(0)
    return Response(f"[{','.join(parts)}]", media_type="application/json")


def json_object(request: Request, shown: dict[str, Any]) -> Response:
    """Answer with one object, in the columns that the query asks for."""
    return Response(_dump(_select(shown, _columns(request))), media_type="application/json")


def _columns(request: Request) -> list[list[str]]:
    """``?columns=a,b.c`` as paths into an object."""
    text = request.query_params.get("columns", "")
    return [column.split(".") for column in text.split(",") if column]


def _select(shown: dict[str, Any], columns: list[list[str]]) -> dict[str, Any]:
    """The parts of an object that paths lead to, at their places; all of it without paths."""
    if not columns:
        return shown
    selected: dict[str, Any] = {}
    for path in columns:
        value: Any = shown
        for step in path:
            value = value.get(step, ...) if isinstance(value, dict) else ...
        if value is not ...:
            place = selected
            for step in path[:-1]:
                place = place.setdefault(step, {})
            place[path[-1]] = value
    return selected


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    """What JSON has no type for: octets as text, decimals and times as strings."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
