from collections.abc import Sequence
from typing import Any

from jumpmq.amqp.messages import Message

def binary_column(messages: list[Message], name: str) -> tuple[bytes, bytes]: ...
def seq_column(messages: list[Message]) -> bytes: ...
def time_column(messages: list[Message]) -> bytes: ...
def expiry_column(messages: list[Message]) -> bytes: ...
def row_buffers(messages: list[Message], expires: bool, gather: int) -> tuple[list[bytes], int]: ...
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
