"""The writing side of a socket: answers leave at the end of a turn, or when the commit they promise is complete."""

import asyncio
import os
import time

from jumpmq.amqp.protocol import ServerProtocol
from jumpmq.broker.connection.busy_polling import SOON, BusyPolling
from jumpmq.broker.connection.closed import CLOSED
from jumpmq.broker.memory.charges import Charges

WRITE_AT = 256 << 10
"""Octets of deliveries gathered per write, within one read."""

CONGESTED_AT = 1 << 20
"""Octets waiting for a slow client before its consumers are skipped."""

JOINED_UP_TO = 16 << 10
"""Maximum octets of small buffers joined by copying: up to this size, copying is cheaper than separate buffers."""

UNNUMBERED = 1 << 62
"""Placeholder for the commit of the current event-loop iteration's changes, until numbered at the iteration's end."""


class Writing:
    """Writing to a client: data and timing.

    Args:
        protocol: encodes the pending output.
        charges: what the connection holds of the broker's memory.
        busy_polling: keeps the event loop awake for a client that is likely to ask again.

    Attributes:
        deferred_until: the commit that is to be complete before anything is written; 0 is none.
        hanging_up: whether the socket is closed once everything is written.
        last: when the socket was written last, in seconds by the monotonic clock.
        octets, writes: since the start.
        gathered: octets of deliveries that wait to be written.
    """

    def __init__(self, protocol: ServerProtocol, charges: Charges, busy_polling: BusyPolling) -> None:
        self.deferred_until = 0
        self.hanging_up = False
        self.last = time.monotonic()
        self.octets = self.writes = self.gathered = 0
        self._protocol = protocol  # encodes the output
        self._charges = charges  # where what is not sent is counted
        self._busy_polling = busy_polling  # waits awake for the client's next request
        self._expects_request = False  # whether the client asks again soon after it was answered
        self._transport: asyncio.Transport  # the socket, as the event loop has it
        self._socket = -1  # its descriptor where octets may be written at once: not with TLS

    def start(self, transport: asyncio.Transport, descriptor: int) -> None:
        """Begin writing to a new socket.

        Args:
            descriptor: where octets may be written past the event loop; -1 with TLS.
        """
        self._transport = transport
        self._socket = descriptor
        transport.set_write_buffer_limits(high=CONGESTED_AT, low=CONGESTED_AT // 4)

    def end(self) -> None:
        """Release the closed socket."""
        self._transport = CLOSED
        self._socket = -1

    @property
    def unsent(self) -> int:
        """Octets written but not accepted by the kernel: the client does not read them."""
        return self._transport.get_write_buffer_size()

    @property
    def waiting(self) -> int:
        """Octets waiting for the client to read, including gathered deliveries."""
        return self.gathered + self._transport.get_write_buffer_size()

    @property
    def is_congested(self) -> bool:
        """True if more deliveries are gathered than should wait for a slow client."""
        return self.gathered > CONGESTED_AT

    def received(self, now: float) -> None:
        """The client has sent something; none is waited for awake any more."""
        self._expects_request = now - self.last < SOON
        self._busy_polling.until = 0.0

    def gather(self, octets: int) -> bool:
        """Count gathered deliveries; return True if they should be written now."""
        self.gathered += octets
        return self.gathered > WRITE_AT

    def write(self) -> None:
        """Write pending data, unless deferred."""
        if self.deferred_until or self._transport.is_closing():
            return
        buffers = self._protocol.data_to_send()
        if buffers:
            octets = sum(map(len, buffers)) if len(buffers) > 1 else len(buffers[0])
            answers, self.gathered = not self.gathered, 0
            if len(buffers) == 1:
                if not (answers and self._sent_at_once(buffers[0])):
                    self._transport.write(buffers[0])
            elif octets <= JOINED_UP_TO:
                self._transport.write(b"".join(buffers))
            else:
                self._transport.writelines(buffers)
            self.last = time.monotonic()
            self.octets += octets
            self.writes += 1
            unsent = self._transport.get_write_buffer_size()
            if unsent or self._charges.passing:
                self._charges.set("unsent", unsent)
            if answers and self._expects_request:
                self._busy_polling.begin()
        if self.hanging_up:
            self._transport.close()

    def write_past(self, octets: memoryview) -> int:
        """Write octets directly if none are pending; return the number written: the rest must be gathered."""
        if self.deferred_until or self.waiting or self._protocol.has_data_to_send or self._transport.is_closing():
            return 0
        written = self._written(octets)
        if written:
            self.last = time.monotonic()
            self.octets += written
            self.writes += 1
        return written

    def _sent_at_once(self, octets: bytes | memoryview) -> bool:
        """Write an answer to the socket directly if no data is pending, as the client may wait for it; the event loop
        would write it only after all current work."""
        if self._transport.get_write_buffer_size():
            return False
        sent = self._written(octets)
        if not sent:
            return False
        if sent < len(octets):
            self._transport.write(octets[sent:])
        return True

    def _written(self, octets: bytes | memoryview) -> int:
        """Return the number of octets that the socket accepts now; 0 with TLS."""
        if self._socket < 0:
            return 0
        try:
            return os.write(self._socket, octets)
        except OSError:  # no room, or no client: for the transport to deal with
            return 0
