"""The receive buffer, shared by all connections: each read is processed before the next read.

So a read allocates no memory, and the buffer stays in the processor's cache.
"""

import mmap

from jumpmq.amqp.protocol import FRAME_MAX

READ_SIZE = 256 << 10
"""Maximum octets per read: a few milliseconds of work with small messages."""

LARGE_READ_SIZE = 1 << 20
"""Maximum octets per read in the middle of a large body, which is only copied (measured: 1.5 times as fast as small
reads).
"""

SMALL_READ_SIZE = 4096
"""Maximum octets per read beside a direct read into a body's memory: for data around the body."""


class ReceiveBuffer:
    """Memory for a read, after the incomplete frame of the previous read."""

    def __init__(self) -> None:
        self._view = memoryview(
            mmap.mmap(-1, FRAME_MAX + LARGE_READ_SIZE)
        )  # only memory that was read into is resident
        self._beginning = self._view[:READ_SIZE]
        self.small = self._view[:SMALL_READ_SIZE]

    def after(self, kept: bytes, large: bool) -> memoryview:
        """Return the memory for a read, preceded by ``kept``; ``large`` in the middle of a large body."""
        if not (kept or large):
            return self._beginning
        self._view[: len(kept)] = kept
        return self._view[len(kept) : len(kept) + (LARGE_READ_SIZE if large else READ_SIZE)]

    def received(self, octets: int) -> memoryview:
        """Return the first ``octets``: kept and read data together."""
        return self._view[:octets]
