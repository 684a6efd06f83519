"""CRC-32 of each kind of row, over its key as well as its content, so that neither changes unnoticed."""

import struct
import zlib
from typing import Any

_SUMMARY = struct.Struct("<6q")


def of_definition(kind: str, key: str, value: str) -> int:
    """Of a definition, ``value`` being its JSON text."""
    return zlib.crc32("\0".join((kind, key, value)).encode())


def of_batch(summary: tuple[int, int, int, int, int, int], messages: Any) -> int:
    """Of a batch: its other columns and the octets of its messages (bytes or an Arrow buffer)."""
    return zlib.crc32(messages, zlib.crc32(_SUMMARY.pack(*summary)))


def of_settlement(batch_id: int, seqs: bytes) -> int:
    """Of what is settled in a batch."""
    return zlib.crc32(seqs, zlib.crc32(b"%d" % batch_id))
