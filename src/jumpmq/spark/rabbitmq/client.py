"""A reader's requests to a broker over AMQP, without a management API.

The interface is that of :class:`jumpmq.spark.client.Client`. AMQP has no request for the queues of a broker or of an
exchange, so queues must be named.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jumpmq.amqp import methods as m
from jumpmq.amqp.client import ClientDelivery, stream_offset
from jumpmq.client import AMQPConnection, RequestRefused
from jumpmq.spark.errors import BrokerAway, JumpMQError, MessagesGone
from jumpmq.spark.options import BrokerAddress
from jumpmq.spark.origin import ANY, Origin
from jumpmq.spark.patience import taken_up
from jumpmq.spark.rabbitmq.columns import AT_ONCE, batch_of
from jumpmq.spark.rabbitmq.kinds import streams_among
from jumpmq.spark.rabbitmq.link import NOT_FOUND, address_of, connect, converted_errors

MOST_PREFETCH = 65535
"""Maximum prefetch of AMQP."""

WINDOW = 10_000
"""Maximum number of unacknowledged messages of a stream."""

ATTACHED = 50
"""Number of streams attached at once, to determine their first and last offsets."""

QUIET = 0.3
"""Seconds without a message after which a stream counts as read to the end.

Not for a stream with messages that has delivered none: see :data:`BEHIND`.
"""

GONE_AFTER = 5.0
"""Seconds without a message after which expected messages count as taken by another consumer; also the time to wait for
other consumers to leave."""

BEHIND = 10.0
"""Seconds to wait for the first message of a stream that is not empty."""


class AMQPClient:
    """Reads queues and streams over AMQP. Holds no connection, and so can be pickled for executors.

    Raises:
        JumpMQError: the URL makes no sense.
    """

    def __init__(self, broker: BrokerAddress) -> None:
        self._broker = broker
        self._address = address_of(broker)
        self._streams: dict[str, bool] = {}  # whether a queue is a stream, by name
        self.identity: str | None = None  # unknown over AMQP

    def require_broker(self) -> None:
        """Refuse unless a broker answers and accepts the login.

        Raises:
            JumpMQError: there is no answer, or the login is refused.
        """
        connect(self._broker).close()

    def queues(self) -> list[str]:
        """Refuse: AMQP has no request for the names of queues.

        Raises:
            JumpMQError: always.
        """
        raise JumpMQError("AMQP does not say which queues there are: name them, with option 'queue' or 'queues'")

    def ranges(
        self,
        exchange: str | None,
        queues: list[str],
        *,
        timestamp: float | None = None,
        missing: bool = False,
        marks: Mapping[str, int] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Return ``type``, ``first_seq``, ``last_seq`` and number of ``messages`` of queues, by name.

        Message numbers of queues other than streams are positions, from 1.

        Args:
            exchange: must be None.
            queues: names of queues.
            timestamp: add ``seq_at`` of streams for this time, in seconds since the epoch.
            missing: leave out queues that do not exist, instead of an error.
            marks: ignored, as AMQP has no fingerprints.

        Raises:
            NotThere: a queue does not exist, and ``missing`` is false.
            JumpMQError: an exchange is given.
        """
        if exchange is not None:
            raise JumpMQError(
                "AMQP does not say which queues are bound to an exchange: name them, with option 'queue' or 'queues'"
            )
        with converted_errors(self._address), connect(self._broker) as amqp:
            counts = _counts(amqp, queues, missing)
            unknown = [name for name in counts if name not in self._streams]
            streams = streams_among(self._broker, amqp, unknown)
            self._streams |= {name: name in streams for name in unknown}
            found = self._bounds({name: count for name, count in counts.items() if self._streams[name]}, timestamp)
        for name, count in counts.items():
            if name not in found:
                found[name] = {"type": "classic", "id": 0, "first_seq": 1, "last_seq": count, "messages": count}
        return {name: found[name] for name in counts}

    def ready(self, slices: list[list[Any]], columns: list[str], origin: Origin = ANY) -> Iterator[pa.RecordBatch]:
        """Yield as many messages of a queue as a slice ``[queue, first, last]`` has, and return them to the queue.

        Args:
            origin: ignored, as AMQP has no identities.

        Raises:
            JumpMQError: fewer messages than planned, because other consumers use the queue.
        """
        for queue, first, last in slices:
            count = last - first + 1
            with converted_errors(self._address), self._alone(queue, count) as amqp:
                yield from self._look(amqp, queue, count, columns)

    def cut(
        self, stream: str, first: int, last: int, columns: list[str], origin: Origin, *, whole: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a stream with offsets ``first`` to ``last``, across broken connections.

        Offsets without a message are no loss: RabbitMQ stores data of stream protocol clients (offsets, publishers) in
        the stream, between the messages.

        Raises:
            MessagesGone: retention has deleted messages, and ``whole`` is true.
        """
        missing: int | None = None

        def rest() -> Iterator[pa.RecordBatch]:
            nonlocal first, missing
            if first > last:
                return
            with converted_errors(self._address), connect(self._broker) as amqp:
                for found in _messages(amqp, stream, first, last):
                    offsets = [stream_offset(one) or 0 for one in found]
                    if missing is None and offsets[-1] + 1 - first != len(offsets):
                        missing = next(expected for expected, offset in enumerate(offsets, first) if offset != expected)
                    first = offsets[-1] + 1
                    yield batch_of(stream, found, columns)

        yield from taken_up(self._broker.retry_seconds, rest)
        if whole and missing is not None:
            lowest = self._lowest(stream)
            if lowest > missing:
                raise MessagesGone(
                    f"stream '{stream}' begins with offset {lowest} now: messages from {missing} on did not come"
                )

    def _lowest(self, stream: str) -> int:
        """Return the offset of a stream's first message."""
        with converted_errors(self._address):
            return self._offsets([stream], "first", 1, {stream})[stream][0]

    def _bounds(self, counts: dict[str, int], timestamp: float | None) -> dict[str, dict[str, Any]]:
        """Return first and last offsets of streams, and the offset at a timestamp.

        Args:
            counts: number of messages by stream, as reported by the broker; possibly some seconds old.
        """
        found: dict[str, dict[str, Any]] = {}
        streams = list(counts)
        for start in range(0, len(streams), ATTACHED):
            some = streams[start : start + ATTACHED]
            filled = {name for name in some if counts[name]}
            firsts, lasts = self._offsets(some, "first", 1, filled), self._offsets(some, "last", WINDOW, filled)
            at = {} if timestamp is None else self._offsets(some, datetime.fromtimestamp(timestamp, UTC), 1, set())
            for name in some:
                first = firsts[name][0] if name in firsts else 0
                last = lasts[name][1] if name in lasts else -1
                found[name] = {
                    "type": "stream", "id": 0, "first_seq": first, "last_seq": last, "messages": last - first + 1,
                }  # fmt: skip
                if timestamp is not None:
                    found[name]["seq_at"] = at[name][0] if name in at else last + 1
        return found

    def _offsets(
        self, streams: list[str], place: str | datetime, prefetch: int, filled: set[str]
    ) -> dict[str, tuple[int, int]]:
        """Return the first and last offset received from streams after an attachment at ``place``.

        Args:
            filled: streams that have messages.

        Raises:
            BrokerAway: one of these streams delivers no message.
        """
        found: dict[str, tuple[int, int]] = {}
        with connect(self._broker) as amqp:
            names = {_attach(amqp, name, place, prefetch): name for name in streams}
            while (prefetch > 1 or len(found) < len(names)) and amqp.wait(QUIET if filled <= found.keys() else BEHIND):
                for one in _taken(amqp, len(amqp.deliveries)):
                    name, offset = names[one.consumer], stream_offset(one) or 0
                    found[name] = found.get(name, (offset, 0))[0], offset
        if silent := filled - found.keys():
            raise BrokerAway(f"stream '{min(silent)}' reports messages, but has sent none for {BEHIND:g} s")
        return found

    def _alone(self, queue: str, count: int) -> AMQPConnection:
        """Return a connection that consumes up to ``count`` messages of a queue, if possible as the only consumer.

        Waits up to :data:`GONE_AFTER` for other consumers to leave: two reads at once, as for a table joined with
        itself, would divide the messages between them.
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
            time.sleep(random.uniform(0.02, 0.2))  # spreads concurrent retries

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


def _counts(amqp: AMQPConnection, queues: list[str], missing: bool) -> dict[str, int]:
    """Return the number of messages by queue.

    Args:
        missing: leave out queues that do not exist, instead of an error.

    Raises:
        RequestRefused: a queue does not exist, or the user may not access it.
    """
    counts: dict[str, int] = {}
    answers = amqp.declare_all([m.QueueDeclare(queue=name, passive=True) for name in queues])
    for name, answer in zip(queues, answers, strict=True):
        if not isinstance(answer, RequestRefused):
            counts[name] = answer.message_count
        elif answer.code != NOT_FOUND or not missing:
            raise answer
    return counts


def _attach(amqp: AMQPConnection, stream: str, place: str | int | datetime, prefetch: int) -> str:
    return amqp.consume(stream, prefetch, {"x-stream-offset": place})


def _messages(amqp: AMQPConnection, stream: str, first: int, last: int) -> Iterator[list[ClientDelivery]]:
    """Yield the messages with offsets ``first`` to ``last`` in order.

    RabbitMQ begins at the start of a chunk, so earlier messages are skipped.
    """
    _attach(amqp, stream, first, WINDOW)
    unacknowledged, reached = 0, first - 1
    while reached < last:
        if not amqp.wait(GONE_AFTER):
            raise BrokerAway(f"stream '{stream}' has sent no message after offset {reached} for {GONE_AFTER:g} s")
        found = _taken(amqp, AT_ONCE)
        unacknowledged += len(found)
        if unacknowledged > WINDOW // 4:
            amqp.ack(found[-1].tag)
            unacknowledged = 0
        reached = stream_offset(found[-1]) or 0
        wanted = [one for one in found if first <= (stream_offset(one) or 0) <= last]
        if wanted:
            yield wanted


def _taken(amqp: AMQPConnection, most: int) -> list[ClientDelivery]:
    return [amqp.deliveries.popleft() for _ in range(min(most, len(amqp.deliveries)))]
