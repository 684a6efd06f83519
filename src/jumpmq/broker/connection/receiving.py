"""The buffer that sockets are read into: one for all connections, as what a read brings is dealt with before the next.

So nothing is allocated for a read, and its memory stays in the processor's cache.
"""

import mmap

from jumpmq.amqp.protocol import FRAME_MAX

READ_SIZE = 256 << 10
"""Octets that one read takes at most: a few milliseconds' work, if they are small messages."""

LARGE_READ_SIZE = 1 << 20
"""The same in the middle of a large body, which is only copied (measured: 1.5 times as fast as the small ones)."""

SMALL_READ_SIZE = 4096
"""The same where a body is read straight to its memory: what comes with its end, or before that begins."""


class ReceiveBuffer:
    """Room for one read, behind the beginning of a frame that an earlier one has left."""

    def __init__(self) -> None:
        self._view = memoryview(mmap.mmap(-1, FRAME_MAX + LARGE_READ_SIZE))  # resident as far as it was read into
        self._beginning = self._view[:READ_SIZE]
        self.small = self._view[:SMALL_READ_SIZE]

    def after(self, kept: bytes, large: bool) -> memoryview:
        """Where to read to, with ``kept`` before it; ``large`` in the middle of a large body."""
        if not (kept or large):
            return self._beginning
        self._view[: len(kept)] = kept
        return self._view[len(kept) : len(kept) + (LARGE_READ_SIZE if large else READ_SIZE)]

    def received(self, octets: int) -> memoryview:
        """What is there now: what was kept and what was read, ``octets`` together."""
        return self._view[:octets]
