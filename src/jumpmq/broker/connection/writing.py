"""The writing side of a socket: answers are written at the end of an event-loop iteration, or when the commit that they
promise is complete.
"""

import asyncio
import os
import time

from jumpmq.amqp.protocol import ServerProtocol
from jumpmq.broker.connection.busy_polling import SOON, BusyPolling
from jumpmq.broker.connection.closed import CLOSED
from jumpmq.broker.memory.charges import Charges

WRITE_AT = 256 << 10
"""Octets of gathered deliveries that are written during an event-loop iteration, before its end."""

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
        charges: memory held by the connection.
        busy_polling: keeps the event loop awake for a client that is likely to send its next request soon.

    Attributes:
        deferred_until: the commit that must be complete before the next write; 0 without one.
        hanging_up: True to close the socket when everything is written.
        last: time of the last write, in seconds by the monotonic clock.
        octets, writes: numbers of written octets and of writes, since the start.
        gathered: octets of deliveries that wait for the write.
    """

    def __init__(self, protocol: ServerProtocol, charges: Charges, busy_polling: BusyPolling) -> None:
        self.deferred_until = 0
        self.hanging_up = False
        self.last = time.monotonic()
        self.octets = self.writes = self.gathered = 0
        self._protocol = protocol  # encodes the output
        self._charges = charges  # counts unsent octets
        self._busy_polling = busy_polling
        self._expects_request = False  # True if the client's last request came soon after an answer
        self._transport: asyncio.Transport  # the event loop's transport
        self._socket = -1  # descriptor for direct writes; -1 with TLS

    def start(self, transport: asyncio.Transport, descriptor: int) -> None:
        """Begin writing to a new socket.

        Args:
            descriptor: descriptor for direct writes, past the event loop; -1 with TLS.
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
        """Octets not yet accepted by the kernel: the client does not read."""
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
        """Handle received data: end busy polling."""
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
        # Octets in front of these have to leave first.
        if self.deferred_until or self.waiting or self._protocol.has_data_to_send or self._transport.is_closing():
            return 0
        written = self._written(octets)
        if written:
            self.last = time.monotonic()
            self.octets += written
            self.writes += 1
        return written

    def _sent_at_once(self, octets: bytes | memoryview) -> bool:
        """Write an answer directly to the socket if no data is pending. The client may wait for the answer, and the
        event loop would write it only after all current work."""
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
        except OSError:  # no room, or the client is gone: the transport handles both
            return 0
