"""Filtering of stream messages by a publisher-defined value (RabbitMQ, "Stream Filtering").

RabbitMQ has a Bloom filter per chunk, so that consumers have to filter again. Here the filter is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

if TYPE_CHECKING:
    import pyarrow as pa

FILTER = "x-stream-filter"
UNFILTERED = "x-stream-match-unfiltered"
VALUE = "x-stream-filter-value"

FEW = 8
"""Number of values searched individually in all rows; with more, every row's value is looked up."""

CACHED_OCTETS = 1024
"""Maximum size of properties with cached value, in octets."""

_NAMED = bytes([len(VALUE)]) + VALUE.encode()
"""First octets of the filter header in encoded properties."""


class StreamFilter:
    """A consumer's filter.

    Args:
        values: accepted values of the header ``x-stream-filter-value``; the empty value accepts messages without the
            header. Values that are not UTF-8 are octets, as in :class:`~jumpmq.amqp.fields.Field`.
    """

    def __init__(self, values: Iterable[str | bytes]) -> None:
        self._values = frozenset(values)
        self._octets = frozenset(one if isinstance(one, bytes) else one.encode() for one in self._values)
        self._patterns = [b"%sS%s%s" % (_NAMED, len(one).to_bytes(4), one) for one in self._octets]

    @classmethod
    def of(cls, arguments: Iterable[Field]) -> StreamFilter | None:
        """Return the filter in a consumer's arguments; None without one.

        As in RabbitMQ 4.0, a filter that is neither a text nor a list is ignored, and so are list items that are not
        texts.
        """
        given = {field.name: field for field in reversed(list(arguments))}
        wanted = given.get(FILTER)
        if wanted is None or wanted.type not in "SA":
            return None
        texts = [(wanted.type, wanted.value)] if wanted.type == "S" else wanted.value
        values = {value for kind, value in texts if kind == "S"}
        unfiltered = given.get(UNFILTERED)
        if unfiltered is not None and unfiltered.type == "t" and unfiltered.value:
            values.add("")
        return cls(values)

    def rows(self, batch: pa.RecordBatch) -> list[int]:
        """Return the matching rows of a batch, in order. Only candidate rows are parsed."""
        import pyarrow.compute as pc

        column = batch.column("properties")
        if not self._patterns:
            return []
        found: list[int] = []
        if "" in self._values:
            filtered = pc.match_substring(column, _NAMED)
            found = pc.indices_nonzero(pc.invert(filtered)).to_pylist()
        elif len(self._patterns) <= FEW:
            filtered = reduce(pc.or_, [pc.match_substring(column, pattern) for pattern in self._patterns])
        else:
            filtered = pc.match_substring(column, _NAMED)
        possible = pc.indices_nonzero(filtered)
        octets = column.take(possible).to_pylist()
        # The octets of a pattern may occur elsewhere in the properties, so the candidates are parsed.
        found += [row for row, one in zip(possible.to_pylist(), octets, strict=True) if self._wants(one)]
        return sorted(found)

    def _wants(self, properties: bytes) -> bool:
        """Return True if properties that may have a value match."""
        if "" not in self._values and self._has_another(properties):
            return False
        read = _cached_value if len(properties) <= CACHED_OCTETS else _value
        return read(properties) in self._values

    def _has_another(self, properties: bytes) -> bool:
        """Return True if the value cannot match, as found without parsing all headers: a single candidate for the
        header, with a different value or without text."""
        at = properties.find(_NAMED) + len(_NAMED)
        if properties.find(_NAMED, at) >= 0:
            return False
        length = int.from_bytes(properties[at + 1 : at + 5])
        return properties[at : at + 1] != b"S" or properties[at + 5 : at + 5 + length] not in self._octets


def _value(properties: bytes) -> str | bytes:
    """Return a message's filter value; empty without one, or if not text."""
    headers = Properties.parse(properties).headers or ()
    return next((field.value for field in headers if field.name == VALUE and field.type == "S"), "")


_cached_value = lru_cache(4096)(_value)
