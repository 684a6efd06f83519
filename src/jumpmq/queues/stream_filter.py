"""Which messages of a stream a consumer wants, by a value that publishers give them (RabbitMQ, "Stream Filtering").

RabbitMQ keeps a Bloom filter for each chunk, and a consumer has to filter again. Here the filter is exact.
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

_NAMED = bytes([len(VALUE)]) + VALUE.encode()
"""A header of this name, as it begins in encoded properties."""


class StreamFilter:
    """What a consumer filters by.

    Args:
        values: the values of the header ``x-stream-filter-value`` to be delivered; the empty one stands for none.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._values = frozenset(values)
        self._patterns = [b"%sS%s%s" % (_NAMED, len(one).to_bytes(4), one) for one in map(str.encode, self._values)]

    @classmethod
    def of(cls, arguments: Iterable[Field]) -> StreamFilter | None:
        """From the arguments of a consumer; None where it wants everything.

        As in RabbitMQ 4.0, a filter that is neither a text nor a list is ignored, and so is what is no text in a list.
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
        """The rows of a batch that the consumer wants, in order. Only those that may be wanted are looked at singly."""
        import pyarrow.compute as pc

        column = batch.column("properties")
        if not self._patterns:
            return []
        if "" in self._values:
            filtered = pc.match_substring(column, _NAMED)
            found = pc.indices_nonzero(pc.invert(filtered)).to_pylist()
            possible = pc.indices_nonzero(filtered).to_pylist()
        else:
            found = []
            masks = [pc.match_substring(column, pattern) for pattern in self._patterns]
            possible = pc.indices_nonzero(reduce(pc.or_, masks)).to_pylist()
        found += [row for row in possible if _value(column[row].as_py()) in self._values]
        return sorted(found)


@lru_cache(4096)
def _value(properties: bytes) -> str:
    """The value that a message is filtered by; empty where it has none, or none that is a text."""
    headers = Properties.parse(properties).headers or ()
    return next((field.value for field in headers if field.name == VALUE and field.type == "S"), "")
