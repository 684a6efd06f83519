"""The traffic of the load generator: publishes encoded in advance, confirms and deliveries checked on arrival.

A generator must cost much less than the loaded broker. Hence publishing only sends octets made before the clock starts.
All deliveries of a run have the same size (keys and bodies have fixed widths), so they are counted by size, and checked
without parsing: the frame end and the delivery tag of all deliveries by a strided comparison per read, and the order of
the messages in a queue by the number at the start of a body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.load.client import (
    BODY,
    FRAME,
    FRAME_END,
    FRAME_OVERHEAD,
    HEADER,
    METHOD,
    Connection,
    LoadError,
    frame,
    short,
)

CHUNK = 500
LARGE = 4096
"""Minimum size in octets of a large body, sent without a copy and received without a part of the next."""
NUMBER = struct.Struct(">Q")
ACK = struct.Struct(">BHIIQBB")
ACK_START = (METHOD, 1, 13, 60 << 16 | 80)
COUNTING = bytes(range(256))


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages published by a run.

    Attributes:
        exchange: target exchange.
        size: octets of a body, at least 8: it begins with the number of the message.
        keys: number of distinct routing keys of ten digits; neighbours differ.
        persistent: use delivery mode 2.
    """

    exchange: str
    size: int
    keys: int
    persistent: bool

    def encode(self, first: int, count: int, frame_max: int) -> bytes:
        """The encoded publishes numbered from `first`."""
        return b"".join(self._parts(first, count, frame_max))

    def chunks(self, first: int, count: int, frame_max: int, per_chunk: int) -> list[tuple[int, Sequence[bytes]]]:
        """Encode the messages in chunks: the number of messages, and their octets in parts.

        Large bodies are shared, except for the numbers: gigabytes outside of any processor cache would cost more to
        send than to receive.
        """
        starts = range(first, first + count, per_chunk)
        sizes = [min(per_chunk, first + count - start) for start in starts]
        chunks: list[tuple[int, Sequence[bytes]]] = []
        for start, size in zip(starts, sizes, strict=True):
            parts = self._parts(start, size, frame_max)
            chunks.append((size, list(parts) if self.size >= LARGE else (b"".join(parts),)))
        return chunks

    def _parts(self, first: int, count: int, frame_max: int) -> Iterator[bytes]:
        before_key, before_number, after_number = self._template(frame_max)
        pack = NUMBER.pack
        for n in range(first, first + count):
            yield b"%b%010d%b%b" % (before_key, n * 2654435761 % self.keys, before_number, pack(n))
            yield after_number

    def _template(self, frame_max: int) -> tuple[bytes, bytes, bytes]:
        """Octets of one publish: before its key, between key and number, and after the number."""
        key = "k" * 10
        flags, properties = (0x1000, b"\2") if self.persistent else (0, b"")
        publish = struct.pack(">HHH", 60, 40, 0) + short(self.exchange) + short(key) + b"\0"
        header = struct.pack(">HHQH", 60, 0, self.size, flags) + properties
        body = b"n" * NUMBER.size + b"x" * (self.size - NUMBER.size)
        most = frame_max - FRAME_OVERHEAD
        bodies = b"".join(frame(BODY, 1, body[at : at + most]) for at in range(0, self.size, most))
        before_key, rest = (frame(METHOD, 1, publish) + frame(HEADER, 1, header) + bodies).split(key.encode(), 1)
        before_number, after_number = rest.split(b"n" * NUMBER.size, 1)
        return before_key, before_number, after_number


class Confirms:
    """Confirmed publishes; the broker may confirm in any order and grouping."""

    def __init__(self, connection: Connection) -> None:
        self.sent = 0
        self.connection = connection
        self._floor = 0
        self._ahead: set[int] = set()

    @property
    def missing(self) -> int:
        """Number of unconfirmed messages."""
        return self.sent - self._floor - len(self._ahead)

    def read(self) -> None:
        """Wait for confirms and note them. Raises LoadError for a nack, a repeated or an unknown tag."""
        connection = self.connection
        connection.fill()
        whole = connection.filled // ACK.size * ACK.size
        with memoryview(connection.buffer)[:whole] as octets:
            for index, (kind, channel, size, numbers, tag, multiple, _) in enumerate(ACK.iter_unpack(octets)):
                if (kind, channel, size, numbers) != ACK_START:
                    raise connection.unexpected(index * ACK.size)
                self._note(tag, multiple)
        connection.discard(whole)

    def _note(self, tag: int, multiple: bool) -> None:
        if not self._floor < tag <= self.sent or tag in self._ahead:
            raise LoadError(f"confirm of delivery tag {tag}, which is not waiting for one (sent: {self.sent})")
        if multiple:
            self._floor = tag
            if self._ahead:
                self._ahead = {later for later in self._ahead if later > tag}
        elif tag == self._floor + 1:
            self._floor = tag
        else:
            self._ahead.add(tag)
        while self._floor + 1 in self._ahead:
            self._floor += 1
            self._ahead.remove(self._floor)


class Deliveries:
    """Counts and checks the deliveries of one consumer.

    Attributes:
        connection: the consumer's connection.
        count: deliveries so far.
        ordered: message numbers must rise, as in every queue filled by one publisher.
    """

    def __init__(self, connection: Connection, ordered: bool, singly: bool = False) -> None:
        self.count = 0
        self.ordered = ordered
        self._singly = singly
        self.connection = connection
        self._acknowledged = 0
        self._size = self._tag_at = self._number_at = 0
        self._numbers = NUMBER
        self._last_number = -1

    def take(self) -> memoryview:
        """Check the complete deliveries in the buffer and return them; the caller calls `done` afterwards.

        Raises:
            LoadError: a delivery tag was skipped or repeated, or messages of the queue came out of order.
        """
        connection = self.connection
        if not self._size and not self._measure():
            return memoryview(b"")
        size, buffer = self._size, connection.buffer
        new = connection.filled // size
        end = new * size
        if new:
            first = self.count + 1 & 255
            tags = (COUNTING * (new // 256 + 2))[first : first + new]
            ends = buffer[size - 1 : end : size].count(FRAME_END)
            last_tag = NUMBER.unpack_from(buffer, end - size + self._tag_at)[0]
            if ends != new or buffer[self._tag_at + 7 : end : size] != tags or last_tag != self.count + new:
                raise LoadError(f"deliveries {self.count + 1} to {self.count + new} do not carry these delivery tags")
            self._check_order(NUMBER.unpack_from(buffer, end - size + self._number_at)[0], new)
            self.count += new
        return memoryview(buffer)[:end]

    def numbers(self, deliveries: memoryview) -> Iterator[int]:
        """Message numbers of the result of `take`."""
        return (number for (number,) in self._numbers.iter_unpack(deliveries))

    def done(self, deliveries: memoryview, acknowledge_every: int) -> None:
        """Release the result of `take`, and acknowledge after every `acknowledge_every` deliveries (0: never)."""
        octets = len(deliveries)
        deliveries.release()
        if octets:
            self.connection.discard(octets)
            if acknowledge_every and self.count - self._acknowledged >= acknowledge_every:
                self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge all deliveries so far."""
        if self.count > self._acknowledged:
            if self._singly:
                self.connection.acknowledge_singly(self._acknowledged + 1, self.count)
            else:
                self.connection.acknowledge(self.count)
            self._acknowledged = self.count

    def _check_order(self, number: int, new: int) -> None:
        """Check that the message number rose by at least the number of deliveries since the last check."""
        if self.ordered and number < self._last_number + new:
            raise LoadError(f"message {number} came behind message {self._last_number}")
        self._last_number = number

    def _measure(self) -> bool:
        """Derive size and layout of a delivery from the first one; false while it is incomplete."""
        connection, buffer = self.connection, self.connection.buffer
        at, expected, missing = 0, METHOD, -1
        while missing:
            if connection.filled < at + FRAME.size:
                return False
            kind, _, size = FRAME.unpack_from(buffer, at)
            if connection.filled < at + size + FRAME_OVERHEAD:
                return False
            payload = at + FRAME.size
            if kind != expected or (kind == METHOD and buffer[payload : payload + 4] != b"\0\x3c\0\x3c"):
                raise connection.unexpected(at)
            if kind == METHOD:
                self._tag_at = payload + 5 + buffer[payload + 4]
                expected = HEADER
            elif kind == HEADER:
                missing = NUMBER.unpack_from(buffer, payload + 4)[0]
                expected = BODY
            else:
                self._number_at = self._number_at or payload
                missing -= size
            at += size + FRAME_OVERHEAD
        self._size = at
        if at >= LARGE:
            connection.room = max(len(buffer) // at * at, connection.filled)
        self._numbers = struct.Struct(f">{self._number_at}xQ{at - self._number_at - NUMBER.size}x")
        return True
