"""Messages of a stream as they are stored, in the columns of a chunk: cut for a consumer, and encoded as deliveries."""

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from jumpmq.amqp import methods as m
from jumpmq.amqp.frames import APART, FRAME_METHOD, encode_content, encode_frame, with_header
from jumpmq.amqp.messages import encode_rows

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET = "x-stream-offset"
"""Header of a delivery, and argument of a consumer."""

ROWS_OCTETS = 1 << 20
"""Maximum octets of bodies handed to a consumer at once; the last message may exceed them."""

SENT = ("exchange", "routing_key", "properties", "body")
"""Columns in a delivery."""


class StreamRows:
    """Consecutive encoded messages of a stream."""

    def __init__(self, first: int, count: int, batch: "pa.RecordBatch") -> None:
        self._first, self._start, self._stop = first, 0, count
        self._buffers: list[memoryview] = []
        for name in SENT:
            _, offsets, octets = batch.column(name).buffers()
            self._buffers += [memoryview(one if one is not None else b"").cast("B") for one in (offsets, octets)]
        self._ends = self._buffers[6].cast("i")

    def __len__(self) -> int:
        return self._stop - self._start

    def has(self, offset: int) -> bool:
        """Return True if the rows include an offset."""
        return self._first + self._start <= offset < self._first + self._stop

    def run(self, wanted: list[int], offset: int, count: int) -> tuple[int, int]:
        """Return the offset of the first wanted message from an offset on, and the number of consecutive wanted
        messages, at most ``count``. Return 0 with the offset after the last row if there are none.

        Args:
            wanted: wanted rows, in order.
        """
        place = bisect_left(wanted, offset - self._first)
        if place == len(wanted):
            return self._first + self._stop, 0
        row, end = wanted[place], min(place + count, len(wanted))
        length = next((one for one in range(1, end - place) if wanted[place + one] != row + one), end - place)
        return self._first + row, length

    def cut(self, offset: int, count: int) -> "StreamRows":
        """Return up to ``count`` rows from an offset on, limited in octets."""
        start = offset - self._first
        stop = min(start + count, self._stop)
        stop = bisect_right(self._ends, self._ends[start] + ROWS_OCTETS, start + 1, stop)
        # A large body is encoded alone, without a copy of the body.
        if self._body_size(start) >= APART:
            stop = start + 1
        part = object.__new__(StreamRows)
        part._first, part._buffers, part._ends = self._first, self._buffers, self._ends
        part._start, part._stop = start, stop
        return part

    def encode(self, channel: int, consumer_tag: bytes, first_tag: int, frame_max: int) -> list[bytes | memoryview]:
        """Encode a ``basic.deliver`` per message; see :func:`jumpmq.amqp.messages.encode_deliveries`."""
        start = self._start
        if len(self) == 1 and self._body_size(start) >= APART:
            return self._encode_apart(channel, consumer_tag, first_tag, frame_max)
        offset = self._first + start
        return [encode_rows(self._buffers, start, self._stop, offset, channel, consumer_tag, first_tag, frame_max)]

    def _body_size(self, row: int) -> int:
        return int(self._ends[row + 1] - self._ends[row])

    def _encode_apart(self, channel: int, consumer_tag: bytes, tag: int, frame_max: int) -> list[bytes | memoryview]:
        """Encode a message with a large body, without copying the body."""
        values = []
        for offsets, octets in zip(self._buffers[::2], self._buffers[1::2], strict=True):
            ends = offsets.cast("i")
            values.append(octets[ends[self._start] : ends[self._start + 1]])
        exchange, key, properties, body = values
        content = _ContentParts(with_header(bytes(properties), OFFSET.encode(), self._first + self._start), body)
        deliver = m.BasicDeliver(consumer_tag.decode(), tag, False, str(exchange, "utf-8"), bytes(key))
        return [encode_frame(FRAME_METHOD, channel, deliver.encode()), *encode_content(content, channel, frame_max)]


class _ContentParts(NamedTuple):
    """Parts of a message sent after the method."""

    properties: bytes
    body: memoryview
    attempts: int = 0
