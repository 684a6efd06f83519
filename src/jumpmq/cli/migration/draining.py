"""Moving the messages of a queue from RabbitMQ to JumpMQ, each once, also when the move is killed and begun again.

How it works. A queue is moved a chunk at a time: the chunk is consumed, published in one request, and acknowledged. The
broker that gets it remembers, in the commit of the chunk itself, which chunk of this queue it has (a *writer* of the
management API: chunk number, messages, digest), and before the next one is consumed it is told that this one was
acknowledged too. So a new run asks where the move stands. If a chunk is published and not told to be
acknowledged, the queue begins either with this very chunk, delivered before (``redelivered``), which is acknowledged
and not published again; or, if the acknowledgement came through, with messages that were never delivered.

A stream is moved by ranges of offsets, and the number of a chunk is its first offset.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jumpmq.amqp.client import Delivery, as_published, stream_offset
from jumpmq.client import AMQPConnection
from jumpmq.management import ManagementClient

SMALLEST, CHUNK = 50, 5_000
"""Messages of the first chunk of a queue, and of any chunk at most."""

CHUNK_OCTETS = 16 << 20
"""Octets of bodies that a chunk should have at most, and a request has, but for one message that is larger."""

ON_THEIR_WAY = 10.0
"""Seconds to wait for messages that a queue says it has."""

QUIET = 0.5
"""Seconds without a message after which a stream is taken to be at its end."""

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}

Progress = Callable[[int], None]


class MigrationError(Exception):
    """A queue cannot be moved; the text says which and why. What was moved before is."""


class Target:
    """A queue of the broker that messages are moved to.

    Args:
        origin: what the queue is moved from; a move that is begun again must say the same.
    """

    def __init__(self, api: ManagementClient, vhost: str, queue: str, origin: str) -> None:
        self._api = api
        self._vhost = vhost
        self._queue = queue
        self._writer = f"migrate {hashlib.sha256(f'{origin} {vhost} {queue}'.encode()).hexdigest()[:32]}"

    def place(self) -> dict[str, Any]:
        """How far the move has got: number and messages of the last chunk, and its digest."""
        found: dict[str, Any] = self._api.get("messages", self._vhost, "writers", self._writer)
        return found

    def publish(self, chunk: int, deliveries: Sequence[Delivery]) -> None:
        """Publish a chunk, and note it; with no messages only note that the one before is done.

        Raises:
            MigrationError: the queue is full.
        """
        first = 0
        for end in _cuts(deliveries):
            query = {"writer": self._writer, "batch": chunk, "first": first, "rows": end, "persistent": "false"}
            query |= {"queue": self._queue, "digest": digest(deliveries[:end])}
            self._publish(deliveries[first:end], query)
            first = end

    def _publish(self, deliveries: Sequence[Delivery], query: dict[str, Any]) -> None:
        body = _stream_of(self._queue, deliveries)
        answer = self._api.ask("POST", "messages", self._vhost, "publish", body=body, query=query, headers=ARROW)
        if answer["refused"]:
            raise MigrationError(
                f"queue '{self._queue}' in vhost '{self._vhost}' refused {answer['refused']} messages: it is full"
            )


def drain(amqp: AMQPConnection, queue: str, target: Target, progress: Progress) -> int:
    """Move a classic or quorum queue, until it has no message ready; the answer is how many were moved.

    Raises:
        MigrationError: the other queue is full.
    """
    place = target.place()
    chunk, moved = place["batch"] or 0, 0
    if place["rows"]:
        _settle(amqp, queue, place)
        chunk += 1
        target.publish(chunk, ())
    most = SMALLEST
    while deliveries := _consumed(amqp, queue, most):
        chunk += 1
        target.publish(chunk, deliveries)
        amqp.ack(deliveries[-1].tag)
        amqp.declared(queue)  # answered behind the acknowledgement
        chunk += 1
        target.publish(chunk, ())
        moved += len(deliveries)
        progress(len(deliveries))
        most = _next_size(deliveries)
    return moved


def copy_stream(amqp: AMQPConnection, stream: str, target: Target, progress: Progress) -> int:
    """Copy a stream; the answer is how many messages were copied."""
    place = target.place()
    next_offset = 0 if place["batch"] is None else place["batch"] + place["rows"]
    amqp.consume(stream, CHUNK, {"x-stream-offset": next_offset if next_offset else "first"})
    moved = 0
    while amqp.wait(QUIET):
        found = [amqp.deliveries.popleft() for _ in range(min(CHUNK, len(amqp.deliveries)))]
        amqp.ack(found[-1].tag)
        offsets = [stream_offset(one) or 0 for one in found]
        known = bisect_left(offsets, next_offset)
        new = [_as_published(one) for one in found[known:]]
        if new:
            target.publish(offsets[known], new)
            next_offset = offsets[-1] + 1
            moved += len(new)
            progress(len(new))
    return moved


def digest(deliveries: Sequence[Delivery]) -> str:
    """A digest of what a chunk holds; the empty text of nothing."""
    if not deliveries:
        return ""
    found = hashlib.sha256()
    for one in deliveries:
        for part in (one.exchange.encode("utf-8", "surrogateescape"), one.routing_key, one.properties, one.body):
            found.update(len(part).to_bytes(8))
            found.update(part)
    return found.hexdigest()


def _settle(amqp: AMQPConnection, queue: str, place: dict[str, Any]) -> None:
    """Acknowledge a chunk that is published, if it is still there."""
    found = _consumed(amqp, queue, place["rows"])
    if len(found) == place["rows"] and all(one.redelivered for one in found) and digest(found) == place["digest"]:
        amqp.ack(found[-1].tag)
    elif found:
        amqp.requeue(found[-1].tag)
    amqp.declared(queue)


def _consumed(amqp: AMQPConnection, queue: str, most: int) -> list[Delivery]:
    """The first messages of a queue, unacknowledged, and no other one delivered."""
    count = min(most, amqp.declared(queue).message_count)
    if not count:
        return []
    consumer = amqp.consume(queue, count)
    found: list[Delivery] = []
    while len(found) < count and amqp.wait(ON_THEIR_WAY):
        found.append(_as_published(amqp.deliveries.popleft()))
    amqp.cancel(consumer)
    return found


def _as_published(one: Delivery) -> Delivery:
    """Without what only this delivery says: another one, and the message, have another digest with it."""
    octets = as_published(one.properties)
    return one if octets is one.properties else replace(one, properties=octets)


def _next_size(deliveries: Sequence[Delivery]) -> int:
    """How many messages the next chunk may have: twice as many, if they are no larger than these."""
    average = sum(len(one.body) for one in deliveries) // len(deliveries) + 1
    return max(1, min(CHUNK, 2 * len(deliveries), CHUNK_OCTETS // average))


def _cuts(deliveries: Sequence[Delivery]) -> Iterator[int]:
    """Where the requests of a chunk end; there is one at least."""
    octets = 0
    for place, one in enumerate(deliveries):
        if octets and octets + len(one.body) > CHUNK_OCTETS:
            yield place
            octets = 0
        octets += len(one.body)
    yield len(deliveries)


def _stream_of(queue: str, deliveries: Sequence[Delivery]) -> bytes:
    """Messages as the management API takes them."""
    columns = {
        "queue": pa.repeat(queue, len(deliveries)),
        "exchange": pa.array([one.exchange for one in deliveries], pa.string()),
        "routing_key": pa.array([one.routing_key for one in deliveries], pa.binary()),
        "properties": pa.array([one.properties for one in deliveries], pa.binary()),
        "body": pa.array([one.body for one in deliveries], pa.binary()),
    }
    batch = pa.record_batch(columns)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch)
    octets: bytes = out.getvalue().to_pybytes()
    return octets
