"""Frames: type, channel, size, payload and end octet (AMQP 0-9-1, section 2.3.5), and a content cut into them."""

from typing import Any

FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE

FRAME_OVERHEAD = 8
"""Octets of a frame beside its payload."""

HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"".join((kind.to_bytes(1), channel.to_bytes(2), len(payload).to_bytes(4), payload, b"\xce"))


def encode_content(message: Any, channel: int, frame_max: int) -> bytes:
    """The header frame and the body frames of a message.

    Args:
        frame_max: the body is cut into frames of at most this size.
    """
    body = message.body
    out = bytearray(
        encode_frame(FRAME_HEADER, channel, b"\x00\x3c\x00\x00" + len(body).to_bytes(8) + message.properties)
    )
    step = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), step):
        out += encode_frame(FRAME_BODY, channel, body[start : start + step])
    return bytes(out)
