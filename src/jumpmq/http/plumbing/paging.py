"""What a query asks of a list: its order, one page of it, part of the names. Parameters and texts are RabbitMQ's."""

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
Key = tuple[Any, ...]


class InvalidPage(BadRequest):
    """There can be no such page."""

    error = "invalid_pagination_parameters"


class PageOutOfRange(BadRequest):
    """There are not so many pages."""

    error = "page_out_of_range"


@dataclass(frozen=True)
class Order:
    """``sort`` and ``sort_reverse``: by a column, then by those that the resource is sorted by anyway."""

    paths: tuple[tuple[str, ...], ...]
    reverse: bool

    @classmethod
    def of(cls, request: Request, columns: tuple[str, ...]) -> Order:
        """What the query asks for; ``columns`` is the resource's own order."""
        wanted = request.query_params.get("sort", "")
        names = (wanted, *columns) if wanted else columns
        return cls(tuple(tuple(name.split(".")) for name in names), requested.flag(request, "sort_reverse"))

    def is_among(self, names: Collection[str]) -> bool:
        """Whether only these columns are asked for."""
        return "name" in names and all(".".join(path) in names for path in self.paths)

    def keys_at_hand(
        self, items: Sequence[T], columns: Mapping[str, Callable[[T], Any]], numbers: Iterable[int]
    ) -> list[Key]:
        """As :meth:`key`, of objects that are not shown, by columns that are numbers, texts or None; each key ends with
        the object's number."""
        found = [list(map(columns[".".join(path)], items)) for path in self.paths]
        parts = [part for values in found for part in (map(_rank, values), values)]
        return list(zip(*parts, numbers, strict=True))

    def key(self, shown: dict[str, Any]) -> Key:
        """What an object is sorted by: numbers before texts before all else, what is missing first."""
        return _key([value_at(shown, path) for path in self.paths])


NAMES = (
    ("name",),
    ("user_provided_name",),
    ("queue", "name"),
    ("channel_details", "user_provided_name"),
    ("consumer_tag",),
)
"""Where the names of an object are that are searched: also the one that its client gave a connection and, of a
consumer, its queue's, its client's and its tag."""


@dataclass(frozen=True)
class Page:
    """``page``, ``page_size``, ``name`` and ``use_regex``.

    Attributes:
        name: whether a name is wanted; None where all are.
    """

    number: int
    size: int
    name: Callable[[str], bool] | None

    @classmethod
    def of(cls, request: Request) -> Page | None:
        """The page that the query asks for; None where it asks for the whole list.

        Raises:
            BadRequest: there can be no such page.
        """
        query = request.query_params
        if "page" not in query:
            return None
        number, size = _number(query["page"]), _number(query.get("page_size", str(DEFAULT_PAGE_SIZE)))
        if not (number >= 1 and 1 <= size <= MAX_PAGE_SIZE):
            raise InvalidPage(f"Invalid pagination parameters: page number {number}, page size {size}")
        return cls(number, size, _name_filter(query.get("name", ""), requested.flag(request, "use_regex")))

    def matches(self, shown: dict[str, Any]) -> bool:
        """Whether one of the names of an object is wanted, which are those at :data:`NAMES`."""
        if self.name is None:
            return True
        names = (value_at(shown, path) for path in NAMES)
        return any(self.name(str(name)) for name in names if name is not None)

    def cut(self, items: list[Any], count: int) -> list[Any]:
        """The page's part of the wanted items, given these up to the page's end at least; there are so many.

        Raises:
            BadRequest: the list has fewer pages.
        """
        first = (self.number - 1) * self.size
        if first and first >= count:
            raise PageOutOfRange(f"Page out of range, page: {self.number} page size: {self.size}, len: {count}")
        return items[first : first + self.size]

    def counts(self, total: int, filtered: int, count: int) -> dict[str, int]:
        """What is said of the page beside its items."""
        return {
            "filtered_count": filtered,
            "item_count": count,
            "page": self.number,
            "page_count": max(1, -(-filtered // self.size)),
            "page_size": self.size,
            "total_count": total,
        }


def value_at(shown: Any, path: tuple[str, ...] | list[str]) -> Any:
    """The value that a path of keys leads to; None where it leads nowhere."""
    for step in path:
        if not isinstance(shown, dict):
            return None
        shown = shown.get(step)
    return shown


def _key(values: list[Any]) -> Key:
    """Each value behind its rank: one tuple, since ten thousand lists of tuples take long to go."""
    return tuple([part for value in values for part in _comparable(value)])


def _comparable(value: Any) -> tuple[int, Any]:
    rank = _rank(value)
    return rank, value if rank < OTHER else str(value)


OTHER = 3
"""Rank of values that are compared as texts."""

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
