"""Whether a client is read: not while there is a reason to wait, of which there may be several at once."""

import asyncio
import time
from enum import IntEnum

from jumpmq.broker.connection.closed import CLOSED


class Wait(IntEnum):
    """Why a client is not read: bits, several of which may be set. (Enumerated flags take a microsecond a test.)"""

    NOTHING = 0
    DISK = 1
    """What was published waits for the disk."""
    ALARM = 2
    """The client publishes while an alarm is in effect."""
    CLIENT = 4
    """The client does not read what it is answered."""
    WORK = 8
    """What was read is still being worked on."""
    RATE = 16
    """The client has published faster than it may."""
    OTHERS = 32
    """The client sends as fast as it is read: others come first."""
    METHOD = 64
    """A method that was read waits for what it needs."""
    HOME = 128
    """What was published is on its way to another home, which does not take it as fast."""
    PAUSE = 256
    """All clients wait."""


class Reading:
    """The reading side of a socket.

    Attributes:
        waits: the reasons that are there, or-ed.
        last: when something was received, or might have been, in seconds by the monotonic clock.
    """

    def __init__(self) -> None:
        self.waits = 0
        self.last = time.monotonic()
        self._transport: asyncio.Transport

    def start(self, transport: asyncio.Transport) -> None:
        """The socket is there, and read."""
        self._transport = transport

    def end(self) -> None:
        """Release the socket, which is closed."""
        self._transport = CLOSED

    def pause(self, reason: int) -> None:
        """Read no more until the reason is gone."""
        if not self.waits and not self._transport.is_closing():
            self._transport.pause_reading()
        self.waits |= reason

    def let_others(self) -> None:
        """Read on when all other clients were looked at: else libuv reads up to 32 times before it does."""
        if not self.waits:
            self.pause(Wait.OTHERS)
            asyncio.get_running_loop().call_soon(self.resume, Wait.OTHERS)

    def resume(self, reasons: int) -> None:
        """Reasons are gone; read on, if they were the last."""
        if not self.waits & reasons:
            return
        self.waits &= ~reasons
        if not self.waits:
            self.last = time.monotonic()
            if not self._transport.is_closing():
                self._transport.resume_reading()
