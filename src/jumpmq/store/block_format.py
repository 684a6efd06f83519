"""The head and the rows of the log's blocks, which kernel and readers agree on."""

import struct

BLOCK = struct.Struct("<IBBHIIQQ")
"""The head of a block: CRC-32, kind, flags, count, length, octets of bodies, queue, first seq."""

ROW = struct.Struct("<qqBBHI")
"""A row: published and expires in microseconds, lengths of exchange, routing key, properties and body; then these."""

SHORT_ROW = struct.Struct("<qBBHI")
"""A row of messages without expiry."""

MESSAGES = 1
"""The kind of a block of messages."""

EXPIRES = 8
"""Flag of a row with expiring messages."""
