"""Flow control of reading: the broker does not read from a client while there is a reason to wait."""

import asyncio
import time
from enum import IntEnum

from jumpmq.broker.connection.closed import CLOSED


class Wait(IntEnum):
    """Reasons not to read from a client, as combinable bits. (A test of an ``IntFlag`` takes a microsecond.)"""

    NOTHING = 0
    DISK = 1
    """Published messages wait for the disk."""
    ALARM = 2
    """The client publishes while an alarm is in effect."""
    CLIENT = 4
    """The client does not read answers."""
    WORK = 8
    """Read data is still being processed."""
    RATE = 16
    """The client has exceeded the publishing rate."""
    OTHERS = 32
    """The client sends as fast as the broker reads: other clients come first."""
    METHOD = 64
    """A method waits."""
    HOME = 128
    """Published messages are on their way to a slower home."""
    PAUSE = 256
    """All clients wait."""


class Reading:
    """The reading side of a socket.

    Attributes:
        waits: current reasons to wait, or-ed.
        last: time of the last read, or of the last resumption of reading, in seconds by the monotonic clock.
    """

    def __init__(self) -> None:
        self.waits = 0
        self.last = time.monotonic()
        self._transport: asyncio.Transport

    def start(self, transport: asyncio.Transport) -> None:
        """Begin reading from a new socket."""
        self._transport = transport

    def end(self) -> None:
        """Release the closed socket."""
        self._transport = CLOSED

    def pause(self, reason: int) -> None:
        """Add a reason to wait, and stop reading."""
        if not self.waits and not self._transport.is_closing():
            self._transport.pause_reading()
        self.waits |= reason

    def yield_to_others(self) -> None:
        """Pause reading until the other clients have been polled: libuv would read up to 32 times in a row."""
        if not self.waits:
            self.pause(Wait.OTHERS)
            asyncio.get_running_loop().call_soon(self.resume, Wait.OTHERS)

    def resume(self, reasons: int) -> None:
        """Remove reasons, and resume reading after the last one."""
        if not self.waits & reasons:
            return
        self.waits &= ~reasons
        if not self.waits:
            # The silence during the pause is no missed heartbeat.
            self.last = time.monotonic()
            if not self._transport.is_closing():
                self._transport.resume_reading()
