"""The buffer that sockets are read into: one for all connections, as what a read brings is dealt with before the next.

So nothing is allocated for a read, and its memory stays in the processor's cache.
"""

from jumpmq.amqp.protocol import FRAME_MAX

READ_SIZE = 256 << 10
"""Octets that one read takes at most."""


class ReceiveBuffer:
    """Room for one read, behind the beginning of a frame that an earlier one has left."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(FRAME_MAX + READ_SIZE))

    def after(self, kept: bytes) -> memoryview:
        """Where to read to, with ``kept`` before it."""
        self._view[: len(kept)] = kept
        return self._view[len(kept) : len(kept) + READ_SIZE]

    def received(self, octets: int) -> memoryview:
        """What is there now: what was kept and what was read, ``octets`` together."""
        return self._view[:octets]
