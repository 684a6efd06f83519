"""Reference implementation of the compiled kernel for runs of messages, in plain Python."""

import struct
from array import array
from itertools import accumulate, groupby, takewhile
from typing import Any, TypeVar

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import xxh64

C = TypeVar("C")


def untracked(container: C) -> C:
    """Return a list or deque without cycles (messages, numbers), excluded from garbage collection.

    Each collection would scan a young container, for 200 ms with ten million messages. (The plain Python
    version changes nothing: Python has no such call.)
    """
    return container


def body_octets(messages: list[Any]) -> int:
    """Octets of all bodies."""
    return sum(len(message.body) for message in messages)


def of_body(messages: list[Any], body: bytes) -> list[Any]:
    """Return the messages with this very body object."""
    return [message for message in messages if message.body is body]


def persistent(messages: list[Any]) -> list[Any]:
    """Return the persistent messages; the given list itself if all messages are persistent."""
    found = [message for message in messages if message.persistent]
    return messages if len(found) == len(messages) else found


def carries(messages: list[Any], name: bytes) -> bool:
    """Return True if the properties of a message may have a header with the given name."""
    return any(name in message.properties for message in messages)


def enter_queue(messages: list[Any], queue: Any, first_seq: int) -> list[Any]:
    """Assign messages to a queue, numbered from ``first_seq``; messages already in a queue are copied."""
    entered = []
    for seq, message in enumerate(messages, first_seq):
        own = message
        if message.queue is not None:
            own = message.copy()
            own.expires_at = message.expires_at
        own.queue = queue
        own.seq = seq
        entered.append(own)
    return entered


def set_consumer(messages: list[Any], consumer: Any) -> None:
    """Set the consumer that holds the messages unacknowledged."""
    for message in messages:
        message.consumer = consumer


def claim(pieces: dict[int, dict[int, Any]], tags: list[int], bits: int) -> list[Any]:
    """Remove and return the messages with the given tags, up to the first unknown tag; remove empty pieces.

    Args:
        pieces: dictionaries by tag, keyed by the tags' high bits: all except the ``bits`` low bits.
    """
    claimed: list[Any] = []
    for tag in tags:
        piece = pieces.get(tag >> bits, {})
        message = piece.pop(tag, None)
        if message is None:
            break
        claimed.append(message)
        if not piece:
            del pieces[tag >> bits]
    return claimed


def packed_seqs(messages: list[Any]) -> bytes:
    """Return the numbers of the messages, in eight octets each, the highest first."""
    return b"".join(message.seq.to_bytes(8) for message in messages)


def claim_packed(pieces: dict[int, dict[int, Any]], packed: bytes, begin: int, bits: int) -> list[Any]:
    """As :func:`claim`, for tags packed by :func:`packed_seqs`, from ``packed[begin]`` on; skip unknown tags."""
    claimed = []
    for at in range(begin, len(packed) - 7, 8):
        claimed += claim(pieces, [int.from_bytes(packed[at : at + 8])], bits)
    return claimed


def split_upto(waiting: dict[int, Any], last: int) -> dict[int, Any]:
    """Remove and return the entries with a delivery tag up to ``last``; the dictionary is in the order of tags."""
    return {tag: waiting.pop(tag) for tag in list(takewhile(last.__ge__, waiting))}


def by_holder(messages: list[Any]) -> list[tuple[Any, Any, list[Any]]]:
    """Return runs of messages with equal consumer and queue, as (consumer, queue, messages)."""
    runs: list[tuple[Any, Any, list[Any]]] = []
    for message in messages:
        if not runs or runs[-1][0] is not message.consumer or runs[-1][1] is not message.queue:
            runs.append((message.consumer, message.queue, []))
        runs[-1][2].append(message)
    return runs


def settle_stored(messages: list[Any]) -> None:
    """Report the stored messages as settled to their batches."""
    batch, first, last = None, 0, -2
    for message in messages:
        if message.batch is batch and message.seq == last + 1:
            last = message.seq
            continue
        if batch is not None:
            batch.settle_range(first, last)
        batch, first, last = message.batch, message.seq, message.seq
    if batch is not None:
        batch.settle_range(first, last)


def by_priority(messages: list[Any], highest: int, above: int = 0) -> dict[int, list[Any]]:
    """Return the messages by priority (default 0) minus ``above``, limited to 0 to ``highest``."""
    groups: dict[int, list[Any]] = {}
    for message in messages:
        priority = min(max((Properties.parse(message.properties).priority or 0) - above, 0), highest)
        groups.setdefault(priority, []).append(message)
    return groups


def by_destination(items: list[Any], places: list[int], order: list[Any]) -> dict[Any, list[Any]]:
    """Return the items by destination; ``places`` has each item's index in ``order``."""
    if len(items) == 1:
        return {order[places[0]]: items}
    groups: dict[Any, list[Any]] = {}
    for item, place in zip(items, places, strict=True):
        groups.setdefault(order[place], []).append(item)
    return groups


def set_slots(messages: list[Any], keys: list[bytes] | None, slots: int, seed: int) -> None:
    """Set the slot of each message: XXH64 of the key, modulo the number of slots.

    Args:
        keys: the key of each message; None for the routing keys.
    """
    for message, key in zip(messages, keys or (message.routing_key for message in messages), strict=True):
        message.slot = xxh64(key, seed) % slots


def by_slot(messages: list[Any]) -> dict[int, list[Any]]:
    """Return the messages by slot."""
    groups: dict[int, list[Any]] = {}
    for message in messages:
        groups.setdefault(message.slot, []).append(message)
    return groups


def ends_of_runs(messages: list[Any]) -> list[int]:
    """Return the end indexes of runs of messages with equal batch and equal ``redelivered``."""
    runs = groupby(messages, key=lambda message: (id(message.batch), message.redelivered))
    return list(accumulate(len(list(run)) for _, run in runs))


def last_redelivered(messages: list[Any]) -> int:
    """Return the number of the last redelivered message, 0 without one."""
    return next((message.seq for message in reversed(messages) if message.redelivered), 0)


def highest_seq(messages: list[Any]) -> int:
    """Return the highest number of the messages, 0 without messages."""
    return max((message.seq for message in messages), default=0)


def lay_out(messages: list[Any], paged: bytes, least: int, most: int) -> Any:
    """Remove messages that differ only in times, keys, properties and bodies from the front; return columns.

    The messages have consecutive numbers.

    Args:
        paged: placeholder object of a body outside of memory.
        least: minimum number of messages; None is returned for fewer.
        most: octets of binary columns, give or take 255 messages.

    Returns:
        a message with the common fields, and the number and time of the first message; number of messages; octets of
        bodies, routing keys and properties; times in microseconds; expiries, empty without expiry;
        offsets and octets of bodies, routing keys and properties; runs of stored messages: batch, first, last number.
    """
    alike = 0
    while alike < len(messages) and _is_like(messages[alike], messages[0], alike, paged):
        alike += 1
    if alike < least or not messages:
        return None
    count = octets = 0
    while count < alike:
        block = messages[count : min(count + 256, alike)]
        size = sum(len(one.body) + len(one.routing_key) + len(one.properties) for one in block)
        if octets + size > most:
            break
        count, octets = count + len(block), octets + size
    if not count:
        return None
    expires = any(one.expires_at for one in messages[:alike])
    found = messages[:count]
    del messages[:count]
    times = array("q", [round(one.published_at * 1e6) for one in found])
    expiries = array("d", [one.expires_at for one in found] if expires else [])
    binary = [_binary([getattr(one, name) for one in found]) for name in ("body", "routing_key", "properties")]
    runs = [(batch, list(run)) for batch, run in groupby(found, key=lambda one: one.batch) if batch is not None]
    batches = [(batch, run[0].seq, run[-1].seq) for batch, run in runs]
    like, first = found[0].copy(), found[0]
    like.body = like.routing_key = like.properties = b""
    like.redelivered, like.attempts, like.slot = first.redelivered, first.attempts, first.slot
    like.queue, like.seq = first.queue, first.seq
    return like, count, octets, *(bytearray(one.tobytes()) for one in (times, expiries)), binary, batches


def _is_like(message: Any, first: Any, place: int, paged: bytes) -> bool:
    names = ("exchange", "persistent", "redelivered", "attempts", "slot")
    same = all(getattr(message, name) == getattr(first, name) for name in names)
    return same and message.seq == first.seq + place and message.body is not paged


def _binary(values: list[bytes]) -> tuple[bytearray, bytearray]:
    return bytearray(array("i", accumulate(map(len, values), initial=0)).tobytes()), bytearray(b"".join(values))


def from_layout(like: Any, count: int, times: bytearray, expiries: bytearray, binary: Any, batches: Any) -> list[Any]:
    """The inverse of :func:`lay_out`."""
    found = []
    for place in range(count):
        values = []
        for offsets, octets in binary:
            first, end = memoryview(offsets).cast("i")[place : place + 2]
            values.append(bytes(octets[first:end]))
        body, key, properties = values
        published_at = memoryview(times).cast("q")[place] / 1e6
        message = Message(like.exchange, key, properties, body, like.persistent, published_at)
        message.seq, message.queue = like.seq + place, like.queue
        message.redelivered, message.attempts, message.slot = like.redelivered, like.attempts, like.slot
        if expiries:
            message.expires_at = memoryview(expiries).cast("d")[place]
        found.append(message)
    for batch, first, last in batches:
        for message in found[first - like.seq : last + 1 - like.seq]:
            message.batch = batch
    return found


PACKED = struct.Struct("=dIIBBB5x")
"""Seconds to live, -1 for ever; octets of body, properties, routing key and exchange; 1 if persistent."""

APART = 16384
"""Minimum octets of a body that gets a separate buffer, without a copy."""


def pack(messages: list[Any], now: float) -> list[bytes]:
    """Encode messages for another process of this machine, as consecutive buffers.

    Args:
        now: time by the clock of ``expires_at``; the remaining time to live is encoded.
    """
    buffers, run = [], b""
    for message in messages:
        exchange = message.exchange.encode(errors="surrogateescape")
        lives = max(0.0, message.expires_at - now) if message.expires_at else -1.0
        lengths = map(len, (message.body, message.properties, message.routing_key, exchange))
        run += PACKED.pack(lives, *lengths, message.persistent) + exchange + message.routing_key + message.properties
        if len(message.body) < APART:
            run += message.body
        else:
            buffers += [run, message.body]
            run = b""
    return [*buffers, run] if run else buffers


def unpack(octets: Any, at: int, count: int, published_at: float, now: float) -> tuple[list[Any], int]:
    """Decode ``count`` messages from offset ``at`` on, the inverse of :func:`pack`; return messages and end.

    Raises:
        ValueError: the octets end early.
    """
    messages = []
    for _ in range(count):
        if len(octets) - at < PACKED.size:
            raise ValueError("a packed message is cut short")
        lives, body, properties, key, exchange, persistent = PACKED.unpack_from(octets, at)
        at += PACKED.size
        pieces = []
        for size in (exchange, key, properties, body):
            pieces.append(bytes(octets[at : at + size]))
            at += size
        if at > len(octets):
            raise ValueError("a packed message is cut short")
        name = pieces[0].decode(errors="surrogateescape")
        message = Message(name, pieces[1], pieces[2], pieces[3], bool(persistent), published_at)
        if lives >= 0:
            message.expires_at = now + lives
        messages.append(message)
    return messages, at
