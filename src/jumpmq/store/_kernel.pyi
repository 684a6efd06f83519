from collections.abc import Sequence
from typing import Any

from jumpmq.amqp.messages import Message

class BatchNumbers:
    """The numbers of a batch, stored in the batch's own memory. Separate integer objects would lie scattered among
    messages, and keep memory from being released.
    """

    id: int
    queue_id: int
    first_seq: int
    last_seq: int
    count: int
    bytes: int
    remaining: int
    stored: int
    taken: int
    closed: bool

def binary_column(messages: list[Message], name: str) -> tuple[bytes, bytes]:
    """Return the offsets and octets of a field of all messages, as a variable-size binary column of Arrow."""

def join_batch(messages: list[Message], batch: object, most: int, most_octets: int) -> tuple[int, int, int]:
    """Assign the first messages to a batch: at most ``most``, and as few as hold ``most_octets`` of bodies, properties
    and routing keys. Return their number, the octets of the bodies, and of all three.
    """

def seq_column(messages: list[Message]) -> bytes:
    """Return the numbers of the messages, as native 64-bit integers."""

def time_column(messages: list[Message]) -> bytes:
    """Return the times of publishing, as native 64-bit integers in microseconds since the epoch."""

def expiry_column(messages: list[Message]) -> bytes:
    """Return the times of expiry, as native 64-bit integers in microseconds since the epoch; 0 for none."""

def append_numbers(column: bytearray, first: int, step: int, count: int, short: bool = False) -> None:
    """Append an arithmetic sequence to a column of 64-bit integers, or of 32-bit integers (``short``)."""

def append_offsets(column: bytearray, offsets: Any) -> None:
    """Append the offsets of further values to the offsets of a binary column."""

def row_block(messages: list[Message], queue: int, flags: int, gather: int) -> tuple[bytearray, list[Any], int] | None:
    """Encode messages as a block of rows of the log.

    Args:
        flags: flags of the block, in addition to ``EXPIRES``.
        gather: octets from which on a body is a separate buffer, not copied.

    Returns:
        Head and first rows, without the checksum; further buffers; octets of the block. None for gaps in the numbers,
        and for properties too large for a row.
    """

def alike(messages: list[Message]) -> tuple[bool, bool, bool, bool, int]:
    """Return True for equal times of publishing, exchanges and properties each, True if any message expires, and the
    octets of all bodies.
    """

def octets(messages: list[Message]) -> tuple[int, int]:
    """Return the octets of all bodies, and of bodies, routing keys and properties together."""

def from_columns(
    octets: bytes,
    seq: Sequence[int],
    published: Sequence[int],
    expires: Sequence[int] | None,
    exchanges: list[str],
    properties: list[bytes],
    keys_at: int,
    keys: Any,
    bodies_at: int,
    bodies: Any,
    count: int,
) -> list[Message]:
    """Build messages from the columns of a block."""
