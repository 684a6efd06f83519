"""Messages of the log's blocks as columns, without an object per message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch
from jumpmq.store.block_format import EXPIRES
from jumpmq.store.layout import append_numbers, append_offsets
from jumpmq.store.records import COLUMNS, GAPS, ONE_EXCHANGE, ONE_PROPERTIES, ONE_TIME, Content

Layout: TypeAlias = tuple[
    Message, int, int, bytearray, bytearray, bytearray, list[tuple[bytearray, bytearray]], list[tuple[Any, int, int]]
]
"""Result of ``lay_out`` of the queues' kernel.

Fields: a message with the common attributes of all messages, and with the number and time of the first; number of
messages; octets of bodies, routing keys and properties; numbers; times; expiries; offsets and octets of bodies, routing
keys and properties; runs of stored messages, each as batch, first and last number.
"""


def laid_out(batch: Batch, contents: Iterable[Content], first: int, last: int) -> Layout | None:
    """Join the columns of blocks. None unless all messages ``first`` to ``last`` exist, have one exchange and do not
    expire.

    Args:
        contents: the blocks, in order.
    """
    seqs, times, next_seq, like = bytearray(), bytearray(), first, None
    offsets = [bytearray(4) for _ in range(3)]
    values = [bytearray() for _ in range(3)]
    for content in contents:
        head, octets = content.head, memoryview(content.octets)
        flags, count = head.flags, head.rows
        alike = flags & (COLUMNS | ONE_EXCHANGE) == COLUMNS | ONE_EXCHANGE and not flags & (GAPS | EXPIRES)
        if not alike or head.first != next_seq or content.last > last:
            return None
        columns = content.columns()
        exchange = str(octets[columns.exchange.start : columns.exchange.start + columns.exchange.offsets[-1]], "utf-8")
        if like is None:
            like = Message(exchange, b"", b"", b"", True, columns.published[0] / 1e6)
            like.seq = first
        elif like.exchange != exchange:
            return None
        append_numbers(seqs, next_seq, 1, count)
        if flags & ONE_TIME:
            append_numbers(times, columns.published[0], 0, count)
        else:
            times += memoryview(columns.published).cast("B")  # type: ignore[arg-type]
        for place, column in enumerate((columns.body, columns.routing_key, columns.properties)):
            value = octets[column.start + column.offsets[0] : column.start + column.offsets[-1]]
            if place == 2 and flags & ONE_PROPERTIES:
                append_numbers(offsets[2], len(values[2]) + len(value), len(value), count, True)
                values[2] += bytes(value) * count
            else:
                append_offsets(offsets[place], column.offsets)
                values[place] += value
        next_seq += count
    if like is None or next_seq != last + 1:
        return None
    octets_of_all = sum(map(len, values))
    binary = list(zip(offsets, values, strict=True))
    return like, next_seq - first, octets_of_all, seqs, times, bytearray(), binary, [(batch, first, last)]
