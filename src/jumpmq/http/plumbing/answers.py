"""Objects as the management API shows them: sorted, cut into pages, columns chosen.

Long lists are made in small steps, so that deliveries go on meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.http.plumbing.paging import Key, Order, Page, value_at

CHUNK = 40
"""Objects of a list that are shown at once: some two milliseconds of work."""

KEYS_AT_ONCE = 100
"""Objects whose keys are looked up at once."""

SORTED_AT_ONCE = 500
"""Keys that are sorted, and objects that are written, at once."""

T = TypeVar("T")
NOTHING_AT_HAND: Mapping[str, Any] = MappingProxyType({})


async def answer_list(
    request: Request,
    items: Iterable[T],
    show: Callable[[T], dict[str, Any] | None],
    order: tuple[str, ...] = ("vhost", "name"),
    at_hand: Mapping[str, Callable[[T], Any]] = NOTHING_AT_HAND,
) -> Response:
    """Answer with a list of objects: sorted, of the page, and in the columns that the query asks for.

    Args:
        show: an item as an object; None where it is gone meanwhile, as others are served while this is done.
        order: the columns that it is sorted by where the query is silent.
        at_hand: columns, the name among them, that an object has without being shown: a page that is sorted by these
            alone costs a tenth, since only its own objects are shown.

    Raises:
        BadRequest: the query asks for what there can't be.
    """
    page, wanted, columns = Page.of(request), Order.of(request, order), _columns(request)
    found = list(items)
    if page is not None and wanted.is_among(at_hand):
        places = await _places(await _keys_at_hand(found, page, wanted, at_hand), wanted.reverse)
        return _page(page, len(found), places, _selected(found, page.cut(places), show, columns))
    texts: list[str] = []
    keys: list[tuple[Key, int]] = []
    async for number, shown in _shown(found, show):
        if page is None:
            texts.append(_dump(_select(shown, columns)))
        elif not page.matches(shown):
            continue
        keys.append((wanted.key(shown), number))
    places = await _places(keys, wanted.reverse)
    if page is None:
        return StreamingResponse(_array([texts[place] for place in places]), media_type="application/json")
    return _page(page, len(found), places, _selected(found, page.cut(places), show, columns))


def _selected(
    items: list[T], places: list[int], show: Callable[[T], dict[str, Any] | None], columns: list[list[str]]
) -> list[dict[str, Any]]:
    return [_select(shown, columns) for place in places if (shown := show(items[place])) is not None]


def _page(page: Page, total: int, places: list[int], shown: list[dict[str, Any]]) -> Response:
    return _answer(_dump({**page.counts(total, len(places), len(shown)), "items": shown}))


async def _keys_at_hand(
    items: list[T], page: Page, wanted: Order, at_hand: Mapping[str, Callable[[T], Any]]
) -> list[tuple[Key, int]]:
    keys, name = [], at_hand["name"]
    for number, item in enumerate(items):
        if page.name(name(item)):
            keys.append((wanted.key_at_hand(item, at_hand), number))
        if not (number + 1) % KEYS_AT_ONCE:
            await asyncio.sleep(0)
    return keys


async def _array(texts: list[str]) -> AsyncIterator[str]:
    """The JSON array of objects, in parts that are written one by one."""
    separator = "["
    for start in range(0, len(texts), SORTED_AT_ONCE):
        yield separator + ",".join(texts[start : start + SORTED_AT_ONCE])
        separator = ","
        await asyncio.sleep(0)
    yield "]" if texts else "[]"


async def _shown(
    items: list[T], show: Callable[[T], dict[str, Any] | None]
) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    for number, item in enumerate(items):
        if (shown := show(item)) is not None:
            yield number, shown
        if not (number + 1) % CHUNK:
            await asyncio.sleep(0)


async def _places(keys: list[tuple[Key, int]], reverse: bool) -> list[int]:
    """The numbers behind the keys, by the keys; equal ones in the order given."""
    runs = []
    for start in range(0, len(keys), SORTED_AT_ONCE):
        runs.append(sorted(keys[start : start + SORTED_AT_ONCE]))
        await asyncio.sleep(0)
    merged, places = heapq.merge(*runs), list[int]()
    while part := [number for _, number in islice(merged, SORTED_AT_ONCE)]:
        places += part
        await asyncio.sleep(0)
    return places[::-1] if reverse else places


def answer_object(request: Request, shown: dict[str, Any]) -> Response:
    """Answer with one object, in the columns that the query asks for."""
    return _answer(_dump(_select(shown, _columns(request))))


def answer_long(shown: Mapping[str, Any]) -> Response:
    """Answer with one object whose values may be long lists: those are written in parts, and may be made meanwhile."""
    return StreamingResponse(_object(shown), media_type="application/json")


async def _object(shown: Mapping[str, Any]) -> AsyncIterator[str]:
    separator = "{"
    for name, value in shown.items():
        yield f"{separator}{_dump(name)}:"
        separator = ","
        if isinstance(value, Iterator):
            async for part in _array_of(value):
                yield part
        else:
            yield _dump(value)
    yield "}"


async def _array_of(items: Iterator[Any]) -> AsyncIterator[str]:
    separator = "["
    while texts := [_dump(item) for item in islice(items, CHUNK)]:
        yield separator + ",".join(texts)
        separator = ","
        await asyncio.sleep(0)
    yield "]" if separator == "," else "[]"


def answer(value: Any) -> Response:
    """Answer with a value as it is."""
    return _answer(_dump(value))


def _answer(text: str) -> Response:
    return Response(text, media_type="application/json")


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
        holder = value_at(shown, path[:-1])
        if isinstance(holder, dict) and path[-1] in holder:
            place = selected
            for step in path[:-1]:
                place = place.setdefault(step, {})
            place[path[-1]] = holder[path[-1]]
    return selected


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), default=_plain, allow_nan=False)
    except ValueError:  # AMQP has floats that JSON has not
        return json.dumps(_without_nan(value), separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    """The value with NaN and the infinities as strings."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else _without_nan(_plain(value))


def _plain(value: object) -> object:
    """What JSON has no type for: octets as text, decimals and times as strings."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
