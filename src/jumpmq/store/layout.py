"""Messages laid out as Arrow columns, in C."""

from jumpmq.amqp.messages import Message
from jumpmq.store._kernel import (
    alike,
    append_numbers,
    append_offsets,
    binary_column,
    expiry_column,
    from_columns,
    join_batch,
    octets,
    row_block,
    seq_column,
    time_column,
)

__all__ = [
    "alike",
    "append_numbers",
    "append_offsets",
    "binary_column",
    "body_octets",
    "expiry_column",
    "from_columns",
    "join_batch",
    "numbers",
    "octets",
    "row_block",
    "seq_column",
    "time_column",
]


def body_octets(messages: list[Message]) -> int:
    """Return the octets of all bodies."""
    return alike(messages)[4] if messages else 0


def numbers(first: int, step: int, count: int, *, short: bool = False) -> bytearray:
    """Return an arithmetic sequence as a column of 64-bit integers, or of 32-bit integers."""
    column = bytearray()
    append_numbers(column, first, step, count, short)
    return column
