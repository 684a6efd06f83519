"""Query parameters of lists: order, page, filter by name. Parameters and texts are RabbitMQ's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.topology import patterns

MAX_PAGE_SIZE = 500
DEFAULT_PAGE_SIZE = 100

T = TypeVar("T")
SortKey = tuple[Any, ...]


class InvalidPage(BadRequest):
    """The page number or size is invalid."""

    error = "invalid_pagination_parameters"


class PageOutOfRange(BadRequest):
    """The page number is beyond the last page."""

    error = "page_out_of_range"


@dataclass(frozen=True)
class SortOrder:
    """``sort`` and ``sort_reverse``: by a column, then by the default columns of the resource."""

    paths: tuple[tuple[str, ...], ...]
    reverse: bool

    @classmethod
    def of(cls, request: Request, columns: tuple[str, ...]) -> SortOrder:
        """Parse the query; ``columns`` is the resource's default order."""
        wanted = request.query_params.get("sort", "")
        names = (wanted, *columns) if wanted else columns
        return cls(tuple(tuple(name.split(".")) for name in names), requested.flag(request, "sort_reverse"))

    def is_among(self, names: Collection[str]) -> bool:
        """Return True if no columns other than the given names are requested."""
        return "name" in names and all(".".join(path) in names for path in self.paths)

    def keys_at_hand(
        self, items: Sequence[T], columns: Mapping[str, Callable[[T], Any]], numbers: Iterable[int]
    ) -> list[SortKey]:
        """Return sort keys like :meth:`key`, computed without rendering the objects.

        Args:
            columns: functions for the values of columns: numbers, texts or None.
            numbers: number of each object, appended to the object's key.
        """
        found = [list(map(columns[".".join(path)], items)) for path in self.paths]
        parts = [part for values in found for part in (map(_rank, values), values)]
        return list(zip(*parts, numbers, strict=True))

    def key(self, shown: dict[str, Any]) -> SortKey:
        """Return the sort key of an object. Order of values: missing values, numbers, texts, then all other types."""
        return _key([value_at(shown, path) for path in self.paths])


NAMES = (
    ("name",),
    ("user_provided_name",),
    ("queue", "name"),
    ("channel_details", "user_provided_name"),
    ("consumer_tag",),
)
"""Paths to the searchable names of an object. A connection has a client-provided name, too; a consumer has the names of
its queue and client, and its tag.
"""


@dataclass(frozen=True)
class Page:
    """``page``, ``page_size``, ``name`` and ``use_regex``.

    Attributes:
        name: returns True for names that match the filter; None without a filter.
    """

    number: int
    size: int
    name: Callable[[str], bool] | None

    @classmethod
    def of(cls, request: Request) -> Page | None:
        """Parse the page in the query; None for the whole list.

        Raises:
            BadRequest: the page number, page size or filter is invalid.
        """
        query = request.query_params
        if "page" not in query:
            return None
        number, size = _number(query["page"]), _number(query.get("page_size", str(DEFAULT_PAGE_SIZE)))
        if not (number >= 1 and 1 <= size <= MAX_PAGE_SIZE):
            raise InvalidPage(f"Invalid pagination parameters: page number {number}, page size {size}")
        return cls(number, size, _name_filter(query.get("name", ""), requested.flag(request, "use_regex")))

    def matches(self, shown: dict[str, Any]) -> bool:
        """Return True if a name of an object, at :data:`NAMES`, matches the filter."""
        if self.name is None:
            return True
        names = (value_at(shown, path) for path in NAMES)
        return any(self.name(str(name)) for name in names if name is not None)

    def cut(self, items: list[Any], count: int) -> list[Any]:
        """Return the page's part of ``items``.

        Args:
            items: the sorted items, complete at least up to the page's end.
            count: number of all items.

        Raises:
            BadRequest: the list has fewer pages.
        """
        first = (self.number - 1) * self.size
        if first and first >= count:
            raise PageOutOfRange(f"Page out of range, page: {self.number} page size: {self.size}, len: {count}")
        return items[first : first + self.size]

    def counts(self, total: int, filtered: int, count: int) -> dict[str, int]:
        """Return the counts shown with the page."""
        return {
            "filtered_count": filtered,
            "item_count": count,
            "page": self.number,
            "page_count": max(1, -(-filtered // self.size)),
            "page_size": self.size,
            "total_count": total,
        }


def value_at(shown: Any, path: tuple[str, ...] | list[str]) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for step in path:
        if not isinstance(shown, dict):
            return None
        shown = shown.get(step)
    return shown


def _key(values: list[Any]) -> SortKey:
    """Return ranks and values in a single flat tuple: freeing ten thousand lists of tuples would take long."""
    return tuple([part for value in values for part in _comparable(value)])


def _comparable(value: Any) -> tuple[int, Any]:
    rank = _rank(value)
    return rank, value if rank < OTHER else str(value)


OTHER = 3
"""Rank of values compared as texts."""

_RANKS: dict[type, int] = {type(None): 0, bool: 1, int: 1, float: 1, str: 2}


def _rank(value: Any) -> int:
    rank = _RANKS.get(type(value))
    if rank is None:
        return 1 if isinstance(value, int | float) else 2 if isinstance(value, str) else OTHER
    return rank


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise BadRequest("Pagination parameters are invalid")
    return int(text)


def _name_filter(text: str, is_regex: bool) -> Callable[[str], bool] | None:
    if not text:
        return None
    if not is_regex:
        wanted = text.lower()
        return lambda name: wanted in name.lower()
    try:
        pattern = patterns.compiled(text)
    except patterns.InvalidPattern as error:
        raise BadRequest(f"Pagination parameters are invalid: {error}") from None
    return pattern.matches
