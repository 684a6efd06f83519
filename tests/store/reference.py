"""Messages laid out as Arrow columns: the specification of the compiled kernel, in plain Python."""

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

from jumpmq.amqp.messages import Message
from jumpmq.store.block_format import BLOCK, EXPIRES, MESSAGES, ROW, SHORT_ROW


def binary_column(messages: list[Any], name: str) -> tuple[bytes, bytes]:
    """Return a field of all messages as an Arrow binary column (Arrow columnar format, variable-size binary).

    Args:
        name: ``exchange`` (as UTF-8), ``routing_key``, ``properties`` or ``body``.

    Returns:
        The offsets, n + 1 native 32-bit integers, and the octets side by side.

    Raises:
        OverflowError: the octets are 2 GiB or more.
    """
    values = [getattr(message, name) for message in messages]
    if name == "exchange":
        values = [value.encode() for value in values]
    offsets = array("i", itertools.accumulate(map(len, values), initial=0))
    return offsets.tobytes(), b"".join(values)


def append_numbers(column: bytearray, first: int, step: int, count: int, short: bool = False) -> None:
    """Append so many integers to a column of 64 bits, or of 32 (``short``)."""
    column += array("i" if short else "q", [first + place * step for place in range(count)]).tobytes()


def append_offsets(column: bytearray, offsets: Any) -> None:
    """Append the offsets of values to the offsets of a non-empty binary column."""
    before = int.from_bytes(column[-4:], "little")
    column += array("i", [before + offset - offsets[0] for offset in offsets[1:]]).tobytes()


def join_batch(messages: list[Any], batch: object, most: int, most_octets: int) -> tuple[int, int, int]:
    """Form a batch from the first messages: at most ``most``, as few as reach ``most_octets`` of contents.

    Contents are bodies, properties and routing keys.

    Returns:
        The number of messages, the octets of the bodies, and the octets of the contents.
    """
    taken = bodies = octets = 0
    for message in messages:
        if taken >= most or octets >= most_octets:
            break
        message.batch = batch
        bodies += len(message.body)
        octets += len(message.body) + len(message.properties) + len(message.routing_key)
        taken += 1
    return taken, bodies, octets


def seq_column(messages: list[Any]) -> bytes:
    """The messages' numbers, as native 64-bit integers."""
    return array("q", [message.seq for message in messages]).tobytes()


def time_column(messages: list[Any]) -> bytes:
    """When the messages were published, as native 64-bit integers of microseconds since the epoch."""
    return array("q", [int(message.published_at * 1e6 + 0.5) for message in messages]).tobytes()


def expiry_column(messages: list[Any]) -> bytes:
    """When the messages expire, as native 64-bit integers of microseconds since the epoch; 0 is never."""
    return array("q", [int(message.expires_at * 1e6 + 0.5) for message in messages]).tobytes()


# --- blocks of the log ---


def row_block(messages: list[Any], queue: int, flags: int, gather: int) -> tuple[bytearray, list[Any], int] | None:
    """Return a block of messages of a queue, as rows of the log.

    Args:
        flags: beside ``EXPIRES``, which is set if any message expires; then all rows have an expiry.
        gather: minimum octets of a body that gets a separate buffer, without a copy.

    Returns:
        The block's head without the checksum, followed by the rows in one piece; the buffers of further rows, padded to
        8 octets at the end; and the size of the block in octets. None if the messages' numbers have gaps, or if
        properties are too large for a row.
    """
    first = messages[0].seq
    if any(message.seq != seq for seq, message in enumerate(messages, first)):
        return None
    if any(len(message.properties) > 0xFFFF for message in messages):
        return None
    expires = any(message.expires_at for message in messages)
    parts = [bytearray(BLOCK.size)]
    for message in messages:
        exchange, body = message.exchange.encode(), message.body
        lengths = (len(exchange), len(message.routing_key), len(message.properties), len(body))
        published = int(message.published_at * 1e6 + 0.5)
        if expires:
            parts[-1] += ROW.pack(published, int(message.expires_at * 1e6 + 0.5), *lengths)
        else:
            parts[-1] += SHORT_ROW.pack(published, *lengths)
        parts[-1] += exchange + message.routing_key + message.properties
        if len(body) < gather:
            parts[-1] += body
        else:
            parts += (body, bytearray())
    length = sum(map(len, parts))
    parts[-1] += bytes(-length % 8)
    head, *buffers = parts if parts[-1] else parts[:-1]
    octets = sum(len(message.body) for message in messages)
    flags |= EXPIRES if expires else 0
    head[: BLOCK.size] = BLOCK.pack(0, MESSAGES, flags, len(messages), length - BLOCK.size, octets, queue, first)
    return head, buffers, length + -length % 8


def alike(messages: list[Any]) -> tuple[bool, bool, bool, bool, int]:
    """Compare messages.

    Returns:
        True for equal times of publishing, for equal exchanges, for equal properties, and if any message expires; and
        the octets of all bodies.
    """
    first = messages[0]
    return (
        all(message.published_at == first.published_at for message in messages),
        all(message.exchange == first.exchange for message in messages),
        all(message.properties == first.properties for message in messages),
        any(message.expires_at for message in messages),
        sum(len(message.body) for message in messages),
    )


def octets(messages: list[Any]) -> tuple[int, int]:
    """Octets of all bodies, and of bodies, routing keys and properties together."""
    bodies = sum(len(one.body) for one in messages)
    return bodies, bodies + sum(len(one.properties) + len(one.routing_key) for one in messages)


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
) -> list[Any]:
    """Return new persistent messages, made of columns.

    Args:
        octets: memory of the keys and bodies.
        seq, published, expires: numbers, and times in microseconds; ``expires`` is None without expiry.
        exchanges, properties: a list of one value per message, or of one value for all.
        keys_at, keys, bodies_at, bodies: position of the first value, and n + 1 offsets.
    """
    found = []
    for i in range(count):
        message = Message(
            exchanges[0] if len(exchanges) == 1 else exchanges[i],
            octets[keys_at + keys[i] : keys_at + keys[i + 1]],
            properties[0] if len(properties) == 1 else properties[i],
            octets[bodies_at + bodies[i] : bodies_at + bodies[i + 1]],
            True,
            published[i] / 1e6,
        )
        message.seq = seq[i]
        if expires is not None:
            message.expires_at = expires[i] / 1e6
        found.append(message)
    return found
