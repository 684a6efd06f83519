"""Answers with objects: sorted, as a page, with selected columns.

Long lists are made in small steps, so that deliveries continue in between.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.broker.upkeep.slices import Slices
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.plumbing.paging import Page, SortKey, SortOrder, value_at

SORTED_AT_ONCE = 500
"""Number of keys sorted, and of objects written, per slice."""

CHOSEN_AT_MOST = 2_000
"""Maximum end of a page, in items, that is selected without sorting all items."""

SHOWN_AT_ONCE = 500
"""Number of objects with metrics requested together."""

MAX_COLUMNS = 200
"""Maximum number of columns in a request."""

WRITTEN_AT_ONCE = 256 << 10
"""Characters of JSON per write."""

T = TypeVar("T")
ShowPart = Callable[[Sequence[T]], Awaitable[Sequence[dict[str, Any] | None]]]
NOTHING_AT_HAND: Mapping[str, Any] = MappingProxyType({})


class EncodedJSON(bytes):
    """A value encoded as JSON in UTF-8."""


async def answer_list(
    request: Request,
    items: Iterable[T],
    show: Callable[[T], dict[str, Any] | None],
    order: tuple[str, ...] = ("vhost", "name"),
    at_hand: Mapping[str, Callable[[T], Any]] = NOTHING_AT_HAND,
) -> Response:
    """Answer with a list of objects, with the order, page and columns in the query.

    Args:
        show: returns an item as an object; None if the item was deleted in the meantime, because other requests are
            served in between.
        order: default columns for sorting.
        at_hand: values of columns, ``name`` included, that are known without a call of ``show``. A page sorted only by
            these columns costs a tenth, because only the page's items are shown.

    Raises:
        BadRequest: the query has an impossible page or order.
    """

    async def show_all(part: Sequence[T]) -> list[dict[str, Any] | None]:
        return [show(item) async for item in requested.broker(request).slices.through(part)]

    return await answer_list_in_parts(request, items, show_all, order, at_hand)


async def answer_list_in_parts(
    request: Request,
    items: Iterable[T],
    show: ShowPart[T],
    order: tuple[str, ...] = ("vhost", "name"),
    at_hand: Mapping[str, Callable[[T], Any]] = NOTHING_AT_HAND,
) -> Response:
    """Like :func:`answer_list`, for objects with metrics that are requested for several items at once.

    Args:
        show: returns items as objects, in order; None for a deleted item.
    """
    page, wanted, columns = Page.of(request), SortOrder.of(request, order), _columns(request)
    found, slices = list(items), requested.broker(request).slices
    if page is not None and wanted.is_among(at_hand):
        places, filtered = await _places_at_hand(found, page, wanted, at_hand, slices)
        return await _page(found, page, places, filtered, show, columns, slices)
    texts: list[str] = []
    keys: list[SortKey] = []
    for start in range(0, len(found), SHOWN_AT_ONCE):
        part = enumerate(await show(found[start : start + SHOWN_AT_ONCE]), start)
        async for number, shown in slices.through(part):
            if shown is None:
                texts.append("")
                continue
            if page is None:
                texts.append(_dump(_select(shown, columns)))
            elif not page.matches(shown):
                continue
            keys.append((*wanted.key(shown), number))
    places = await _places(keys, wanted.reverse, slices)
    if page is None:
        return StreamingResponse(_array(texts, places, slices), media_type="application/json")
    return await _page(found, page, page.cut(places, len(places)), len(places), show, columns, slices)


async def _page(
    items: list[T],
    page: Page,
    places: list[int],
    filtered: int,
    show: ShowPart[T],
    columns: list[list[str]],
    slices: Slices,
) -> Response:
    """Answer with a page: the items at ``places``, out of ``filtered`` items on all pages."""
    objects = await show([items[place] for place in places])
    texts = [_dump(_select(shown, columns)) async for shown in slices.through(objects) if shown is not None]
    counts = _dump(page.counts(len(items), filtered, len(texts)))
    return _answer(f'{counts[:-1]},"items":[{",".join(texts)}]}}')


async def _places_at_hand(
    items: list[T], page: Page, wanted: SortOrder, at_hand: Mapping[str, Callable[[T], Any]], slices: Slices
) -> tuple[list[int], int]:
    """Return the positions of the page's items, and the number of items on all pages."""
    chosen: list[SortKey] = []
    filtered, last = 0, page.number * page.size
    async for start in slices.through(range(0, len(items), SORTED_AT_ONCE)):
        part = items[start : start + SORTED_AT_ONCE]
        keys = wanted.keys_at_hand(part, at_hand, range(start, start + len(part)))
        if page.name is not None:
            keys = [key for key, name in zip(keys, map(at_hand["name"], part), strict=True) if page.name(name)]
        filtered += len(keys)
        chosen += keys
        if last <= CHOSEN_AT_MOST:  # items of later pages need no order
            chosen.sort(reverse=wanted.reverse)
            del chosen[last:]
    if last > CHOSEN_AT_MOST:
        return page.cut(await _places(chosen, wanted.reverse, slices), filtered), filtered
    return page.cut([key[-1] for key in chosen], filtered), filtered


async def _array(texts: list[str], places: list[int], slices: Slices) -> AsyncIterator[str]:
    """Yield the JSON array of the texts at ``places``, in parts that are freed after writing."""
    separator = "["
    for start in range(0, len(places), SORTED_AT_ONCE):
        part = places[start : start + SORTED_AT_ONCE]
        yield separator + ",".join([texts[place] for place in part])
        for place in part:
            texts[place] = ""
        separator = ","
        await slices.next()
    yield "]" if places else "[]"


async def _places(keys: list[SortKey], reverse: bool, slices: Slices) -> list[int]:
    """Return the item numbers at the end of the keys, sorted by key. Equal keys stay in order. ``keys`` is emptied."""
    runs = []
    while keys:
        runs.append(sorted(keys[-SORTED_AT_ONCE:], reverse=True))
        del keys[-SORTED_AT_ONCE:]
        await slices.next()
    places = [key[-1] async for key in slices.through(heapq.merge(*map(_used_up, runs)))]
    return places[::-1] if reverse else places


def _used_up(run: list[SortKey]) -> Iterator[SortKey]:
    """Yield the keys from last to first, and free them one by one: freeing many at once takes long."""
    while run:
        yield run.pop()


def answer_object(request: Request, shown: dict[str, Any]) -> Response:
    """Answer with one object, restricted to the columns in the query."""
    return _answer(_dump(_select(shown, _columns(request))))


def answer_long(request: Request, shown: Mapping[str, Any]) -> Response:
    """Like :func:`answer_object`. Values may be iterators, which are written as lists step by step."""
    chosen = _select(dict(shown), _columns(request))
    return StreamingResponse(_object(chosen, requested.broker(request).slices), media_type="application/json")


def answer_array(request: Request, items: Iterable[Any]) -> Response:
    """Answer with objects, made and written in parts."""
    return StreamingResponse(_array_of(iter(items), requested.broker(request).slices), media_type="application/json")


async def _object(shown: Mapping[str, Any], slices: Slices) -> AsyncIterator[str]:
    separator = "{"
    for name, value in shown.items():
        yield f"{separator}{_dump(name)}:"
        separator = ","
        if isinstance(value, Iterator):
            async for part in _array_of(value, slices):
                yield part
        else:
            yield _dump(value)
    yield "}"


async def _array_of(items: Iterator[Any], slices: Slices) -> AsyncIterator[str]:
    texts, separator, length = list[str](), "[", 0
    async for item in slices.through(items):
        texts.append(item.decode() if isinstance(item, EncodedJSON) else _dump(item))
        length += len(texts[-1])
        if len(texts) == SORTED_AT_ONCE or length > WRITTEN_AT_ONCE:
            yield separator + ",".join(texts)
            texts, separator, length = [], ",", 0
    yield (separator if texts or separator == "[" else "") + ",".join(texts) + "]"


def answer(value: Any) -> Response:
    """Answer with a value, unchanged."""
    return _answer(_dump(value))


def written(value: Any) -> EncodedJSON:
    """Return a value as JSON."""
    return EncodedJSON(_dump(value).encode())


def _answer(text: str) -> Response:
    return Response(text, media_type="application/json")


def _columns(request: Request) -> list[list[str]]:
    """Return the columns in the query, ``?columns=a,b.c``, as paths into an object.

    Raises:
        BadRequest: the query has more than :data:`MAX_COLUMNS`, each of which costs time per object.
    """
    columns = dict.fromkeys(request.query_params.get("columns", "").split(","))
    if len(columns) > MAX_COLUMNS:
        raise BadRequest(f"there are more than {MAX_COLUMNS} columns")
    return [column.split(".") for column in columns if column]


def _select(shown: dict[str, Any], columns: list[list[str]]) -> dict[str, Any]:
    """Return the parts of an object at the given paths; the whole object without paths."""
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
    except ValueError:  # AMQP has NaN and infinities, JSON does not
        return json.dumps(_without_nan(value), separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    """Return the value with NaN and infinities as strings."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else _without_nan(_plain(value))


def _plain(value: object) -> object:
    """Convert a value without a JSON type: octets to text, decimals to strings, times to seconds since the epoch."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return int(value.timestamp())
    return str(value)
