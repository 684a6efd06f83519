from collections.abc import Sequence
from typing import Any

from jumpmq.amqp.messages import Message

class BatchNumbers:
    """The numbers of a batch, within its object: objects would be scattered among messages, and stay there."""

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

def binary_column(messages: list[Message], name: str) -> tuple[bytes, bytes]: ...
def join_batch(messages: list[Message], batch: object, most: int, most_octets: int) -> tuple[int, int, int]: ...
def seq_column(messages: list[Message]) -> bytes: ...
def time_column(messages: list[Message]) -> bytes: ...
def expiry_column(messages: list[Message]) -> bytes: ...
def append_numbers(column: bytearray, first: int, step: int, count: int, short: bool = False) -> None: ...
def append_offsets(column: bytearray, offsets: Any) -> None: ...
def row_block(
    messages: list[Message], queue: int, flags: int, gather: int
) -> tuple[bytearray, list[Any], int] | None: ...
def alike(messages: list[Message]) -> tuple[bool, bool, bool, bool, int]: ...
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
) -> list[Message]: ...
