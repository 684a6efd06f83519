"""What a reader asks of a broker, asked of one that is only reached over AMQP.

It answers as :class:`jumpmq.spark.client.Client` does, as far as AMQP tells: which queues are bound to an exchange, or
match a pattern, it does not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jumpmq.amqp.client import Delivery, stream_offset
from jumpmq.client import AMQPConnection
from jumpmq.spark.errors import BrokerAway, Gone, JumpMQError, NotThere
from jumpmq.spark.options import Broker
from jumpmq.spark.patience import taken_up
from jumpmq.spark.rabbitmq.columns import AT_ONCE, batch_of
from jumpmq.spark.rabbitmq.kinds import is_stream
from jumpmq.spark.rabbitmq.link import address_of, connect, said_here

MOST_PREFETCH = 65535
"""The largest prefetch that AMQP can say."""

WINDOW = 10_000
"""Messages of a stream that are on their way at once."""

QUIET = 0.3
"""Seconds without a message after which a stream is taken to be at its end."""

GONE_AFTER = 5.0
"""Seconds without a message after which those that were there are taken to be somebody else's; and to wait for other
consumers to leave."""


class AMQPClient:
    """Reads queues and streams over AMQP. It holds no connection, so it can be sent to executors.

    Raises:
        JumpMQError: the URL makes no sense.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._address = address_of(broker)
        self._streams: dict[str, bool] = {}
        self.identity: str | None = None  # AMQP does not tell

    def require_broker(self) -> None:
        """Refuse unless a broker answers and takes the user."""
        connect(self._broker).close()

    def queues(self) -> list[str]:
        """AMQP does not tell."""
        raise JumpMQError("AMQP does not say which queues there are: name them, with option 'queue' or 'queues'")

    def ranges(
        self, exchange: str | None, queues: list[str], *, timestamp: float | None = None, missing: bool = False
    ) -> dict[str, dict[str, Any]]:
        """``type``, ``first_seq``, ``last_seq`` and number of ``messages`` of queues; of streams, ``seq_at`` of a time.

        The numbers of other queues than streams are places, from 1.

        Raises:
            NotThere: there is no such queue, and none may be ``missing``.
        """
        if exchange is not None:
            raise JumpMQError(
                "AMQP does not say which queues are bound to an exchange: name them, with option 'queue' or 'queues'"
            )
        return {name: found for name in queues if (found := self._range(name, timestamp, missing)) is not None}

    def ready(self, slices: list[list[Any]], columns: list[str]) -> Iterator[pa.RecordBatch]:
        """As many messages of each queue as its slice ``[queue, first, last]`` says; they go back to the queue.

        Raises:
            JumpMQError: there were fewer for this reader, as others consume from the queue.
        """
        for queue, first, last in slices:
            count = last - first + 1
            with said_here(self._address), self._alone(queue, count) as amqp:
                yield from self._look(amqp, queue, count, columns)

    def cut(self, stream: str, first: int, last: int, columns: list[str], *, whole: bool) -> Iterator[pa.RecordBatch]:
        """The messages of a stream with offsets ``first`` to ``last``; what breaks off is taken up.

        Raises:
            Gone: some are not there any more, and they should be.
        """

        def rest() -> Iterator[pa.RecordBatch]:
            nonlocal first
            if first > last:
                return
            with said_here(self._address), connect(self._broker) as amqp:
                for found in _messages(amqp, stream, first, last):
                    offset = stream_offset(found[0])
                    if whole and offset != first:
                        raise Gone(f"stream '{stream}' begins with offset {offset} now, not {first}")
                    first = (stream_offset(found[-1]) or 0) + 1
                    yield batch_of(stream, found, columns)

        return taken_up(self._broker.retry_seconds, rest)

    def _range(self, queue: str, timestamp: float | None, missing: bool) -> dict[str, Any] | None:
        try:
            with said_here(self._address), connect(self._broker) as amqp:
                count = amqp.declared(queue).message_count
                if queue not in self._streams:
                    self._streams[queue] = is_stream(self._broker, queue)
                if not self._streams[queue]:
                    return {"type": "classic", "id": 0, "first_seq": 1, "last_seq": count, "messages": count}
        except NotThere:
            if missing:
                return None
            raise
        with said_here(self._address):
            first, last = self._first(queue, "first") or 0, self._last(queue)
            found = {"type": "stream", "id": 0, "first_seq": first, "last_seq": last, "messages": last - first + 1}
            if timestamp is not None:
                at = self._first(queue, datetime.fromtimestamp(timestamp, UTC))
                found["seq_at"] = last + 1 if at is None else at
        return found

    def _first(self, stream: str, place: str | datetime) -> int | None:
        """The first offset from some place on; None where there is none."""
        with connect(self._broker) as amqp:
            _attach(amqp, stream, place, 1)
            return stream_offset(amqp.deliveries[0]) if amqp.wait(QUIET) else None

    def _last(self, stream: str) -> int:
        """The last offset; -1 where there is none."""
        last = -1
        with connect(self._broker) as amqp:
            _attach(amqp, stream, "last", WINDOW)
            while amqp.wait(QUIET):
                last = stream_offset(amqp.deliveries[-1]) or 0
                amqp.deliveries.clear()
        return last

    def _alone(self, queue: str, count: int) -> AMQPConnection:
        """A connection that consumes up to ``count`` messages; it waits for other consumers to leave, for a while.

        Two looks at once, as where a table is joined with itself, would divide the messages between them.
        """
        until = time.monotonic() + GONE_AFTER
        while True:
            amqp = connect(self._broker)
            try:
                others = amqp.declared(queue).consumer_count
                if not others or time.monotonic() > until:
                    amqp.consume(queue, 0 if count > MOST_PREFETCH else count)
                    if amqp.declared(queue).consumer_count == 1 or time.monotonic() > until:
                        return amqp
            except BaseException:
                amqp.close()
                raise
            amqp.close()
            time.sleep(random.uniform(0.02, 0.2))  # others that wait too choose another time

    def _look(self, amqp: AMQPConnection, queue: str, count: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        left = count
        while left and amqp.wait(GONE_AFTER):
            found = _taken(amqp, min(left, AT_ONCE))
            left -= len(found)
            yield batch_of(queue, found, columns)
        if left and amqp.declared(queue).consumer_count > 1:
            raise JumpMQError(
                f"queue '{queue}' had {count} messages when the query was planned, and {left} of them did not come: "
                "it has other consumers, or a table of it is read twice at once; cache() the table, or stop the others"
            )


def _attach(amqp: AMQPConnection, stream: str, place: str | int | datetime, prefetch: int) -> None:
    amqp.consume(stream, prefetch, {"x-stream-offset": place})


def _messages(amqp: AMQPConnection, stream: str, first: int, last: int) -> Iterator[list[Delivery]]:
    """The messages of a range, as they come; the broker may begin before it, where a chunk does."""
    _attach(amqp, stream, first, WINDOW)
    unacknowledged, reached = 0, first - 1
    while reached < last:
        if not amqp.wait(GONE_AFTER):
            raise BrokerAway(f"stream '{stream}' has sent nothing behind offset {reached} for {GONE_AFTER:g} s")
        found = _taken(amqp, AT_ONCE)
        unacknowledged += len(found)
        if unacknowledged > WINDOW // 4:
            amqp.ack(found[-1].tag)
            unacknowledged = 0
        reached = stream_offset(found[-1]) or 0
        wanted = [one for one in found if first <= (stream_offset(one) or 0) <= last]
        if wanted:
            yield wanted


def _taken(amqp: AMQPConnection, most: int) -> list[Delivery]:
    return [amqp.deliveries.popleft() for _ in range(min(most, len(amqp.deliveries)))]
