"""Structures of the log's blocks, shared by the kernel and the readers."""

import struct

BLOCK = struct.Struct("<IBBHIIQQ")
"""The head of a block: CRC-32, kind, flags, count, length, octets of bodies, queue, first seq."""

ROW = struct.Struct("<qqBBHI")
"""Head of a row: times of publishing and expiry in microseconds, octets of exchange, routing key, properties and body.
The four texts follow.
"""

SHORT_ROW = struct.Struct("<qBBHI")
"""Head of a row in a block without expiring messages: as ``ROW``, without the time of expiry."""

MESSAGES = 1
"""The kind of a block of messages."""

EXPIRES = 8
"""Flag of a row with expiring messages."""
