"""Whether a client is read: not while there is a reason to wait, of which there may be several at once."""

import asyncio
import time
from enum import Flag, auto


class Wait(Flag):
    """Why a client is not read."""

    NOTHING = 0
    DISK = auto()
    """What was published waits for the disk."""
    ALARM = auto()
    """The client publishes while an alarm is in effect."""
    CLIENT = auto()
    """The client does not read what it is answered."""
    WORK = auto()
    """What was read is still being worked on."""
    RATE = auto()
    """The client has published faster than it may."""


class Reading:
    """The reading side of a socket.

    Attributes:
        waits: the reasons that are there.
        last: when something was received, or might have been, in seconds by the monotonic clock.
    """

    def __init__(self) -> None:
        self.waits = Wait.NOTHING
        self.last = time.monotonic()
        self._transport: asyncio.Transport

    def start(self, transport: asyncio.Transport) -> None:
        """The socket is there, and read."""
        self._transport = transport

    def pause(self, reason: Wait) -> None:
        """Read no more until the reason is gone."""
        if not self.waits and not self._transport.is_closing():
            self._transport.pause_reading()
        self.waits |= reason

    def resume(self, reason: Wait) -> None:
        """A reason is gone; read on, if it was the last one."""
        if not self.waits & reason:
            return
        self.waits &= ~reason
        if not self.waits:
            self.last = time.monotonic()
            if not self._transport.is_closing():
                self._transport.resume_reading()
