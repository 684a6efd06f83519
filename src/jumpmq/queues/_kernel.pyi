from typing import Any, TypeVar

from jumpmq.amqp.messages import Message
from jumpmq.store.column_layout import Layout

C = TypeVar("C")
D = TypeVar("D")
T = TypeVar("T")

class SegmentNumbers:
    """The numbers of a segment, within its object: objects would be scattered among messages, and stay there."""

    count: int
    size: int
    held: int
    first_seq: int
    last_seq: int
    delivered_seq: int
    exact: bool
    persistent: bool

def untracked(container: C) -> C:
    """Exclude a list or deque of messages or numbers from garbage collection, and return it. A young container is
    traversed by each collection: 200 ms with ten million messages."""

def body_octets(messages: list[Message]) -> int:
    """Return the octets of all bodies."""

def of_body(messages: list[Message], body: bytes) -> list[Message]:
    """Return the messages with this very object as body."""

def persistent(messages: list[Message]) -> list[Message]:
    """Return the persistent messages; the list itself if all are."""

def carries(messages: list[Message], name: bytes) -> bool:
    """Return True if the properties of a message may have a header with this name."""

def enter_queue(messages: list[Message], queue: Any, first_seq: int) -> list[Message]:
    """Assign messages to a queue, numbered from ``first_seq``; messages of another queue are copied."""

def set_consumer(messages: list[Message], consumer: Any) -> None:
    """Record the consumer that holds the messages unacknowledged."""

def claim(pieces: dict[int, dict[int, Message]], tags: list[int], bits: int) -> list[Message]:
    """Remove and return the deliveries with these tags from pieces of ``1 << bits`` tags, up to the first unknown tag;
    empty pieces are removed."""

def packed_seqs(messages: list[Message]) -> bytes:
    """Return the numbers of the messages, eight octets each, highest first."""

def claim_packed(pieces: dict[int, dict[int, Message]], packed: bytes, begin: int, bits: int) -> list[Message]:
    """Like :func:`claim`, with tags packed by :func:`packed_seqs` from ``packed[begin]`` on; skips unknown tags."""

def split_upto(waiting: dict[int, Message], last: int) -> dict[int, Message]:
    """Remove and return the deliveries with tags up to ``last`` from a dictionary in ascending order of tags."""

def by_holder(messages: list[Message]) -> list[tuple[Any, Any, list[Message]]]:
    """Return runs of messages with equal consumer and queue, as (consumer, queue, messages)."""

def settle_stored(messages: list[Message]) -> None:
    """Report stored messages to their batches as settled for good."""

def by_priority(messages: list[Message], highest: int, above: int = 0) -> dict[int, list[Message]]:
    """Return the messages by priority minus ``above``, limited to 0 to ``highest``; a missing priority is 0."""

def by_destination(items: list[T], places: list[int], order: list[D]) -> dict[D, list[T]]:
    """Return the items by destination, given as an index into ``order`` for each item."""

def set_slots(messages: list[Message], keys: list[bytes] | None, slots: int, seed: int) -> None:
    """Set the slot of each message: XXH64 of the key, modulo ``slots``; ``keys`` of None are the routing keys."""

def by_slot(messages: list[Message]) -> dict[int, list[Message]]:
    """Return the messages by slot."""

def ends_of_runs(messages: list[Message]) -> list[int]:
    """Return the indexes behind runs of messages with equal batch and equal ``redelivered``."""

def last_redelivered(messages: list[Message]) -> int:
    """Return the number of the last redelivered message; 0 without one."""

def highest_seq(messages: list[Message]) -> int:
    """Return the highest number of the messages; 0 without messages."""

def lay_out(messages: list[Message], paged: bytes, least: int, most: int) -> Layout | None:
    """Remove consecutive messages, equal but for times, routing keys, properties and bodies, from the front of a list;
    return columns, or None for fewer than ``least`` messages. ``paged`` is the placeholder of a body on disk, ``most``
    the approximate limit of binary octets."""

def from_layout(
    like: Message,
    count: int,
    times: bytearray,
    expiries: bytearray,
    binary: list[tuple[bytearray, bytearray]],
    batches: list[tuple[Any, int, int]],
) -> list[Message]:
    """Inverse of :func:`lay_out`."""

def pack(messages: list[Message], now: float) -> list[bytes]:
    """Encode messages for another process, as consecutive buffers with the remaining times to live; ``now`` is by the
    clock of ``expires_at``."""

def unpack(
    octets: bytes | memoryview, at: int, count: int, published_at: float, now: float
) -> tuple[list[Message], int]:
    """Inverse of :func:`pack`: decode ``count`` messages from ``at`` on; return the messages and the end. Raises
    ValueError for missing octets."""
