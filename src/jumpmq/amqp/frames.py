"""Frames: type, channel, size, payload and end octet (AMQP 0-9-1, section 2.3.5), and contents split into frames."""

import struct
from typing import Any

FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE

FRAME_OVERHEAD = 8
"""Octets of a frame in addition to its payload."""

APART = 4096
"""Body size, in octets, from which a body is passed to the socket without a copy into its frames (measured: faster)."""

_START = struct.Struct(">BHI")

HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode a frame."""
    return _START.pack(kind, channel, len(payload)) + payload + b"\xce"


def encode_content(
    message: Any, channel: int, frame_max: int, *, count_first: bool = False, added: bytes = b""
) -> list[bytes | memoryview]:
    """Encode the header frame and the body frames of a message, as buffers to write in order.

    Args:
        frame_max: maximum octets of a frame; the body is cut accordingly.
        count_first: True to add ``x-delivery-count`` also to a first attempt, as RabbitMQ does for ``basic.get``.
        added: headers after those of the message: whole entries of a field table, without its length.

    Returns:
        One buffer. For a body of ``APART`` octets or more several buffers, some of them views of the body.
    """
    body, step = message.body, frame_max - FRAME_OVERHEAD
    properties = with_entries(message.properties, added) if added else message.properties
    if message.attempts > 1 or (message.attempts and count_first):
        properties = with_header(properties, b"x-delivery-count", message.attempts - 1)
    header = encode_frame(FRAME_HEADER, channel, b"\x00\x3c\x00\x00" + len(body).to_bytes(8) + properties)
    pieces = [memoryview(body)[start : start + step] for start in range(0, len(body), step)]
    out: list[bytes | memoryview] = []
    for piece in pieces:
        out += [header + FRAME_BODY.to_bytes(1) + channel.to_bytes(2) + len(piece).to_bytes(4), piece]
        header = b"\xce"
    out.append(header)
    return out if len(body) >= APART and step >= APART else [b"".join(out)]


def with_header(properties: bytes, name: bytes, value: int) -> bytes:
    """Add a 64-bit integer header to a well-formed property list."""
    return with_entries(properties, bytes((len(name),)) + name + b"l" + value.to_bytes(8))


def with_entries(properties: bytes, entries: bytes) -> bytes:
    """Add headers, as encoded entries of a field table, to a whole, well-formed property list."""
    flags = int.from_bytes(properties[:2])
    place = 2
    for bit in (0x8000, 0x4000):  # content type and encoding come before the headers
        if flags & bit:
            place += 1 + properties[place]
    before, table, rest = properties[2:place], b"", properties[place:]
    if flags & 0x2000:
        end = 4 + int.from_bytes(rest[:4])
        table, rest = rest[4:end], rest[end:]
    table += entries
    return (flags | 0x2000).to_bytes(2) + before + len(table).to_bytes(4) + table + rest
