from typing import Any

class Message:
    exchange: str
    routing_key: bytes
    properties: bytes
    body: bytes
    persistent: bool
    published_at: float
    expires_at: float
    seq: int
    redelivered: bool
    attempts: int
    paged: int
    slot: int
    queue: Any
    consumer: Any
    batch: Any
    def __init__(
        self,
        exchange: str,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool = False,
        published_at: float = 0.0,
    ) -> None: ...
    def copy(self) -> Message: ...

class Body:
    missing: int
    def __init__(self, size: int) -> None: ...
    def add(self, piece: bytes | memoryview) -> None: ...
    def room(self) -> memoryview: ...
    def placed(self, length: int) -> None: ...
    def whole(self) -> bytes: ...

def scan(octets: bytes | bytearray | memoryview, frame_max: int, now: float) -> tuple[list[Any], int]: ...
def check_properties(octets: bytes) -> int: ...
def examine(messages: list[Message]) -> tuple[int, list[Message]]: ...
def routing_keys(messages: list[Message]) -> list[bytes]: ...
def hash_keys(
    messages: list[Message], place: int, name: bytes, missing: bytes | int
) -> tuple[list[bytes | int], int]: ...
def any_copies(messages: list[Message]) -> bool: ...
def messages_of_rows(
    exchange: str,
    keys: tuple[Any, Any, Any] | None,
    key: bytes | None,
    properties: tuple[Any, Any, Any] | None,
    plain: bytes,
    bodies: tuple[Any, Any, Any],
    first: int,
    count: int,
    most_octets: int,
    persistent: bool,
    now: float,
) -> list[Message]: ...
def decode_properties(
    offsets: Any, octets: Any, first: int, count: int, wanted: int
) -> tuple[bytes | None, list[tuple[bytes | None, ...] | None]]: ...
def encode_properties(
    rows: int,
    headers: tuple[Any, Any, int, tuple[Any, Any, Any], tuple[Any, Any, Any]] | None,
    columns: list[tuple[Any, ...] | None],
) -> tuple[bytes | None, bytes, bytes]: ...
def encode_deliveries(
    messages: list[Message],
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    frame_max: int,
    added: bytes | dict[int, bytes] = b"",
) -> list[bytes | memoryview]: ...
def decode_deliveries(octets: bytes | bytearray | memoryview, at: int) -> tuple[bytes, list[Message], int]: ...
def relay_deliveries(
    octets: bytearray | memoryview,
    at: int,
    first_tag: int,
    frame_max: int,
    queue: Any,
    consumer: Any,
    held: bool,
) -> tuple[list[Message], int, int, int]: ...
def encode_rows(
    buffers: list[Any],
    start: int,
    stop: int,
    offset: int,
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    frame_max: int,
) -> bytes: ...
