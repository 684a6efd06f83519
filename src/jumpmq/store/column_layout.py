"""Messages of the log's blocks as columns, without an object per message."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch
from jumpmq.store.block_format import EXPIRES
from jumpmq.store.layout import append_numbers, append_offsets
from jumpmq.store.records import COLUMNS, GAPS, ONE_EXCHANGE, ONE_PROPERTIES, ONE_TIME, Content

Octets: TypeAlias = "bytes | bytearray | memoryview"

Layout: TypeAlias = tuple[Message, int, int, Octets, bytearray, list[tuple[Octets, Octets]], list[tuple[Any, int, int]]]
"""Consecutive messages as columns: the result of ``lay_out`` of the queues' kernel, or of :func:`laid_out`.

Fields: a message with the common attributes of all messages, and with the number and time of the first; number of
messages; octets of bodies, routing keys and properties; times; expiries; offsets and octets of bodies, routing keys and
properties; runs of stored messages, each as batch, first and last number. A single time, or the two offsets of a single
value, stand for all messages.
"""

JOINED_BELOW = 1024
"""Messages from which a block is a layout of its own, without a copy of its octets: new memory for a copy takes longer
than the fixed work of a layout.
"""


def laid_out(
    batch: Batch, contents: Iterable[Content], first: int, last: int, *, joined_below: int = JOINED_BELOW
) -> list[Layout] | None:
    """Return messages ``first`` to ``last`` as columns, small blocks joined. None unless all messages exist, those of a
    block have one exchange, and none expires.

    Args:
        contents: the blocks, in order; the first and the last block may have other messages, too.
        joined_below: messages from which a block is a layout of its own.
    """
    layouts: list[Layout] = []
    joined: JoinedParts | None = None
    next_seq = first
    for content in contents:
        part = BlockPart.of(content, next_seq, last)
        if part is None:
            return None
        is_small = part.rows < joined_below
        if joined is not None and not (is_small and part.exchange == joined.exchange):
            layouts.append(joined.layout(batch))
            joined = None
        if not is_small:
            layouts.append(part.layout(batch, next_seq))
        else:
            joined = joined or JoinedParts(next_seq, part.exchange)
            joined.add(part)
        next_seq += part.rows
    if joined is not None:
        layouts.append(joined.layout(batch))
    return layouts if next_seq == last + 1 else None


class BlockPart(NamedTuple):
    """Consecutive messages of a block, without expiry.

    Attributes:
        exchange: the exchange of all messages.
        rows: number of messages.
        times: times in microseconds; a single time stands for all messages.
        binary: bodies, routing keys and properties: offsets of all messages and of the end, and the octets. The two
            offsets of a single value stand for all messages.
    """

    exchange: str
    rows: int
    times: Sequence[int]
    binary: list[tuple[Sequence[int], Octets]]

    @classmethod
    def of(cls, content: Content, first: int, last: int) -> BlockPart | None:
        """Return the part from message ``first`` on, up to message ``last``; None if columns cannot express it."""
        head = content.head
        start, end = first - head.first, min(content.last, last) + 1 - head.first
        if start < 0 or end <= start or head.flags & (GAPS | EXPIRES):
            return None
        return cls._of_columns(content, start, end) if head.flags & COLUMNS else cls._of_rows(content, start, end)

    @classmethod
    def _of_columns(cls, content: Content, start: int, end: int) -> BlockPart | None:
        flags, octets, columns = content.head.flags, memoryview(content.octets), content.columns()
        if not flags & ONE_EXCHANGE:
            return None
        exchange = str(octets[columns.exchange.start : columns.exchange.start + columns.exchange.offsets[-1]], "utf-8")
        times = array("q", columns.published[:1]) if flags & ONE_TIME else columns.published[start:end]
        binary: list[tuple[Sequence[int], Octets]] = []
        for column in (columns.body, columns.routing_key, columns.properties):
            is_single = flags & ONE_PROPERTIES and column is columns.properties
            offsets = column.offsets if is_single else column.offsets[start : end + 1]
            binary.append((offsets, octets[column.start + offsets[0] : column.start + offsets[-1]]))
        return cls(exchange, end - start, times, binary)

    @classmethod
    def _of_rows(cls, content: Content, start: int, end: int) -> BlockPart | None:
        messages = content.messages()[start:end]
        exchange = messages[0].exchange
        if any(message.exchange != exchange for message in messages):
            return None
        times = array("q", [round(message.published_at * 1e6) for message in messages])
        columns = (
            [message.body for message in messages],
            [message.routing_key for message in messages],
            [message.properties for message in messages],
        )
        binary: list[tuple[Sequence[int], Octets]] = [
            (array("i", accumulate(map(len, one), initial=0)), b"".join(one)) for one in columns
        ]
        return cls(exchange, len(messages), times, binary)

    def layout(self, batch: Batch, first: int) -> Layout:
        """Return the columns without a copy of the octets.

        Args:
            first: number of the first message.
        """
        binary: list[tuple[Octets, Octets]] = [
            (_octets(_from_zero(offsets)), values) for offsets, values in self.binary
        ]
        return _layout(batch, self.exchange, first, self.rows, _octets(self.times), binary)


def _from_zero(offsets: Sequence[int]) -> Sequence[int]:
    """Return offsets shifted so that the first is 0."""
    if not offsets[0]:
        return offsets
    shifted = bytearray(4)
    append_offsets(shifted, offsets)
    return memoryview(shifted).cast("i")


def _octets(integers: Sequence[int]) -> memoryview:
    return memoryview(integers).cast("B")  # type: ignore[arg-type]


def _layout(
    batch: Batch, exchange: str, first: int, count: int, times: Octets, binary: list[tuple[Octets, Octets]]
) -> Layout:
    like = Message(exchange, b"", b"", b"", True, int.from_bytes(times[:8], "little") / 1e6)
    like.seq = first
    of_all = sum(len(values) if len(offsets) > 8 else len(values) * count for offsets, values in binary)
    return like, count, of_all, times, bytearray(), binary, [(batch, first, first + count - 1)]


class JoinedParts:
    """Neighbouring small parts of blocks, joined by copying.

    Args:
        first: number of the first message.
        exchange: the exchange of all messages.
    """

    def __init__(self, first: int, exchange: str) -> None:
        self.exchange = exchange
        self._first = first
        self._count = 0
        self._times = bytearray()
        self._offsets = [bytearray(4) for _ in range(3)]
        self._values = [bytearray() for _ in range(3)]

    def add(self, part: BlockPart) -> None:
        """Add a part behind the others."""
        self._count += part.rows
        if len(part.times) == 1:
            append_numbers(self._times, part.times[0], 0, part.rows)
        else:
            self._times += _octets(part.times)
        for place, (offsets, values) in enumerate(part.binary):
            if len(offsets) == 2 < part.rows + 1:
                append_numbers(
                    self._offsets[place], len(self._values[place]) + len(values), len(values), part.rows, True
                )
                self._values[place] += bytes(values) * part.rows
            else:
                append_offsets(self._offsets[place], offsets)
                self._values[place] += values

    def layout(self, batch: Batch) -> Layout:
        """Return the columns of all parts."""
        binary: list[tuple[Octets, Octets]] = list(zip(self._offsets, self._values, strict=True))
        return _layout(batch, self.exchange, self._first, self._count, self._times, binary)
