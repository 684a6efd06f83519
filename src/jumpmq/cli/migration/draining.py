"""Moves of a queue's messages from RabbitMQ to JumpMQ, each message once, also if a killed move is repeated.

How it works. A queue is moved in chunks. The move consumes a chunk, publishes the chunk in one request, and
acknowledges the messages. The JumpMQ records the chunk's number, message count and digest, in the commit of the chunk
itself (a *writer* of the management API). After the acknowledgement, and before the next chunk, the move records the
chunk as done.

A new run asks the JumpMQ for the last record. If this chunk is published and not done, there are two cases. Either the
RabbitMQ has the acknowledgement, and the chunk's messages are gone from the queue. Or the messages are in the queue
again, marked as delivered before (``redelivered``): the run acknowledges these messages without publishing them again.

The run finds the messages of such a chunk in one of two ways:

- As a whole, by a digest of all messages, if the chunk's messages are the first of the queue again.
- One by one, if single messages may have left the queue (a time to live, a limit, other consumers), or if other
  messages may come before them (priorities). Such a queue is moved in small chunks. The digest of a small chunk has a
  mark per message.

A killed RabbitMQ forgets its last acknowledgements, and delivers these messages again. The process of the move keeps
the marks of recently acknowledged messages, and acknowledges such a message again without publishing it. Messages with
the same mark cannot be told apart: they are published again rather than lost.

A stream is moved in ranges of offsets; the number of a chunk is its first offset.
"""

from __future__ import annotations

import base64
import hashlib
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jumpmq.amqp.client import ClientDelivery, as_published, stream_offset
from jumpmq.client import AMQPConnection
from jumpmq.management import ManagementClient, ManagementError

SMALLEST, CHUNK = 50, 5_000
"""Number of messages in the first chunk of a queue, and maximum number in any chunk."""

MARKED = 200
"""Maximum number of messages of a chunk with a mark per message."""

CHUNK_OCTETS = 16 << 20
"""Maximum octets of bodies in a chunk or request, except for a single larger message."""

ON_THEIR_WAY = 10.0
"""Seconds to wait for messages counted by a queue but not yet received."""

QUIET = 0.5
"""Seconds without a message until a stream counts as read to its end."""

FORGETFUL = 5.0
"""Age of acknowledgements that a killed RabbitMQ may forget, in seconds; half a second was observed."""

SEARCHED = 20_000
"""Maximum number of messages of a queue searched for messages moved before."""

EACH = "*"
"""First character of a digest with a mark per message."""

_EXPIRATION = 1 << 8
"""Flag of the property ``expiration`` in the property flags (AMQP 0-9-1, basic class)."""

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}

Progress = Callable[[int], None]


class MigrationError(Exception):
    """A queue cannot be moved; the text names the queue and the reason. Messages moved before stay moved."""


class Full(MigrationError):
    """The target queue accepts no more messages, or refuses the messages."""


class Target:
    """A target queue of the JumpMQ.

    Args:
        origin: cluster name of the RabbitMQ. A repeated move must give the same name.
        insist: called with the error of a request; returns to repeat the request. The JumpMQ may have executed the
            request before. None raises errors at once.
        source: name of the queue at the RabbitMQ; None for the name of the target queue.
    """

    def __init__(
        self,
        api: ManagementClient,
        vhost: str,
        queue: str,
        origin: str,
        insist: Callable[[ManagementError], None] | None = None,
        *,
        source: str | None = None,
    ) -> None:
        self._api = api
        self._vhost = vhost
        self._queue = queue
        name = queue if source is None else source  # the source queue's name identifies the writer
        self._writer = f"migrate {hashlib.sha256(f'{origin} {vhost} {name}'.encode()).hexdigest()[:32]}"
        self._insist = insist

    def place(self) -> dict[str, Any]:
        """Return the progress of the move: number and messages of the last chunk, and its digest."""
        found: dict[str, Any] = self._ask(lambda: self._api.get("messages", self._vhost, "writers", self._writer))
        return found

    def publish(self, chunk: int, deliveries: Sequence[ClientDelivery], noted: str = "", done: int = 0) -> None:
        """Publish a chunk and record its number; without messages, only record the previous chunk as done.

        Args:
            noted: the digest of the chunk; empty for a digest of all messages.
            done: number of the chunk's messages already published.

        Raises:
            Full: the queue is full.
        """
        first = 0
        for end in _cuts(deliveries):
            if 0 < end <= done:
                first = end
                continue
            query = {"writer": self._writer, "batch": chunk, "first": first, "rows": end, "persistent": "false"}
            query |= {"queue": self._queue, "digest": noted or digest(deliveries[:end])}
            self._publish(deliveries[first:end], query)
            first = end

    def _publish(self, deliveries: Sequence[ClientDelivery], query: dict[str, Any]) -> None:
        body = _stream_of(self._queue, deliveries)
        answer = self._ask(
            lambda: self._api.ask("POST", "messages", self._vhost, "publish", body=body, query=query, headers=ARROW)
        )
        if answer["refused"]:
            raise Full(
                f"queue '{self._queue}' in vhost '{self._vhost}' refused {answer['refused']} messages: "
                "the queue is full"
            )

    def _ask(self, request: Callable[[], Any]) -> Any:
        while True:
            try:
                return request()
            except ManagementError as error:
                if self._insist is None:
                    raise
                self._insist(error)


class Drain:
    """Move of a classic or quorum queue, resumed from its last position.

    Args:
        patience: seconds to wait for messages counted by the queue but not yet received.
        is_ending: returns True to end the move after the current chunk.

    Attributes:
        marks_each: True if single messages may leave the queue during the move of a chunk, or other messages may come
            before them.
        gets: True to take messages by ``basic.get``: an auto-delete queue ends with its last consumer.
    """

    def __init__(
        self,
        queue: str,
        target: Target,
        progress: Progress,
        *,
        patience: float = ON_THEIR_WAY,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self.queue = queue
        self.marks_each = self.gets = False
        self._target = target
        self._progress = progress  # called with the number of messages of each moved chunk
        self._patience = patience
        self._is_ending = is_ending
        self._chunk: int | None = None  # last used chunk number; None before the target is asked
        self._moving: list[str] = []  # marks of the chunk being published, or published and not done
        self._lately: deque[tuple[float, list[str]]] = deque()  # recently acknowledged marks, with the time
        self._lost: Counter[str] = Counter()  # acknowledged marks that the source may have forgotten
        self._ready: list[ClientDelivery] = []  # messages taken from the queue, and not moved yet
        self._is_held = False  # True if messages are held until the target queue has room

    @property
    def is_holding(self) -> bool:
        """True if messages refused by the target queue are held. The next :meth:`run` must get the same connection."""
        return self._is_held

    def run(self, amqp: AMQPConnection, most: int | None = None) -> int:
        """Move messages until none is ready, or at least ``most`` are moved. Return the number of moved messages.

        Raises:
            Full: the target queue is full. The messages taken from the source queue are held.
        """
        moved, size = 0, SMALLEST
        if self._is_held:
            amqp.declared(self.queue)  # raises if the holding connection is lost
        elif self._chunk is None:
            self._begin(amqp)
        while not self._is_ending() and (most is None or moved < most):
            found = self._ready = self._ready or self._take(amqp, min(size, MARKED) if self.gets else size)
            if not found:
                break
            while self._ready and not self._is_ending():
                part, rest = self._split(self._ready)
                self._move(amqp, part)
                self._ready, self._is_held = rest, False
                moved += len(part)
            size = _next_size(found)
        if self._ready and not self._is_held:
            amqp.requeue(self._ready[-1].tag)
            amqp.declared(self.queue)
            self._ready = []
        return moved

    def source_lost(self) -> None:
        """Handle a lost connection to the source: recently acknowledged messages may be delivered again."""
        self.forget()
        for _, marks in self._lately:
            self._lost.update(marks)
        self._lately.clear()

    def forget(self) -> None:
        """Handle the end of the connection: the source delivers all unacknowledged messages again."""
        self._chunk, self._ready, self._is_held = None, [], False

    def _take(self, amqp: AMQPConnection, most: int) -> list[ClientDelivery]:
        """Take the first messages of the queue, unacknowledged."""
        if not self.gets:
            return _consumed(amqp, self.queue, most, self._patience)
        found: list[ClientDelivery] = []
        while len(found) < most and (one := amqp.get(self.queue)) is not None:
            found.append(_as_published(one))
        return found

    def _split(self, found: list[ClientDelivery]) -> tuple[list[ClientDelivery], list[ClientDelivery]]:
        """Split messages into the next chunk, and the remaining messages."""
        if not self.marks_each and not any(map(_may_expire, found)):
            return found, []
        end = min(MARKED, next(_cuts(found), MARKED))
        return found[:end], found[end:]

    def _move(self, amqp: AMQPConnection, part: list[ClientDelivery]) -> None:
        assert self._chunk is not None
        self._moving = [mark(one) for one in part]
        noted = EACH + "".join(self._moving) if len(part) <= MARKED and len(list(_cuts(part))) == 1 else ""
        done = self._published() if self._is_held else 0
        try:
            self._target.publish(self._chunk + 1, part, noted, done)
        except Full:
            self._is_held = True
            raise
        self._chunk += 1
        amqp.ack(part[-1].tag)
        amqp.declared(self.queue)  # the answer follows the processing of the acknowledgement
        self._note_acked(self._moving)
        self._target.publish(self._chunk + 1, ())
        self._chunk += 1
        self._moving = []
        self._progress(len(part))

    def _published(self) -> int:
        """Return the number of published messages of the held chunk."""
        assert self._chunk is not None
        place = self._target.place()
        return int(place["rows"]) if place["batch"] == self._chunk + 1 else 0

    def _note_acked(self, marks: list[str]) -> None:
        now = time.monotonic()
        self._lately.append((now, marks))
        while self._lately[0][0] < now - FORGETFUL:
            self._lately.popleft()

    # --- resuming ---

    def _begin(self, amqp: AMQPConnection) -> None:
        """Ask the target for the progress, and acknowledge published messages found in the source queue again."""
        place = self._target.place()
        chunk = place["batch"] or 0
        published = Counter[str]()
        if place["rows"] and not self._settle_whole(amqp, place):
            published.update(self._moving[: place["rows"]] or _marks_in(place["digest"]))
        again = Counter({one: 1 for one, count in self._lost.items() if count == 1 and not published[one]})
        if published or again:
            self._ready = self._settle_each(amqp, published, again)
        self._lost.clear()
        if place["rows"]:
            chunk += 1
            self._target.publish(chunk, ())
        self._moving, self._chunk = [], chunk

    def _settle_whole(self, amqp: AMQPConnection, place: dict[str, Any]) -> bool:
        """Acknowledge a published chunk if the first messages of the queue have the chunk's digest; return True then.

        A chunk with a mark per message is left to :meth:`_settle_each`.
        """
        if place["digest"].startswith(EACH):
            return False
        found = self._take(amqp, place["rows"])
        is_here = len(found) == place["rows"] and all(one.redelivered for one in found)
        if is_here and digest(found) == place["digest"]:
            amqp.ack(found[-1].tag)
        elif found:
            amqp.requeue(found[-1].tag)
            is_here = False
        amqp.declared(self.queue)
        return is_here

    def _settle_each(self, amqp: AMQPConnection, published: Counter[str], again: Counter[str]) -> list[ClientDelivery]:
        """Acknowledge published messages found in the queue again; return the other messages taken from the queue.

        Args:
            published: marks of the last published chunk.
            again: unique marks of recently acknowledged messages.
        """
        others = []
        for one in self._take(amqp, SEARCHED):
            known = mark(one)
            for marks in (published, again) if one.redelivered else ():
                if marks[known] > 0:
                    marks[known] -= 1
                    amqp.ack(one.tag, multiple=False)
                    break
            else:
                others.append(one)
        amqp.declared(self.queue)
        return others


class StreamCopy:
    """Copy of a stream, resumed from the last position.

    Args:
        amqp: a connection for this stream only.
    """

    def __init__(self, amqp: AMQPConnection, stream: str, target: Target, progress: Progress) -> None:
        self._amqp = amqp
        self._target = target
        self._progress = progress  # called with the number of messages of each copied chunk
        place = target.place()
        self._next = 0 if place["batch"] is None else place["batch"] + place["rows"]  # the next offset
        amqp.consume(stream, CHUNK, {"x-stream-offset": self._next if self._next else "first"})

    def run(self, quiet: float = QUIET, most: int | None = None) -> int:
        """Copy until no message arrives for ``quiet`` seconds, or at least ``most`` messages are copied.

        Returns:
            the number of copied messages.
        """
        moved = 0
        while (most is None or moved < most) and self._amqp.wait(quiet):
            waiting = self._amqp.deliveries
            found = [waiting.popleft() for _ in range(min(CHUNK, len(waiting)))]
            self._amqp.ack(found[-1].tag)
            offsets = [stream_offset(one) or 0 for one in found]
            known = bisect_left(offsets, self._next)
            new = [_as_published(one) for one in found[known:]]
            if new:
                self._target.publish(offsets[known], new)
                self._next = offsets[-1] + 1
                moved += len(new)
                self._progress(len(new))
        return moved


def digest(deliveries: Sequence[ClientDelivery]) -> str:
    """Return the SHA-256 digest of a chunk's messages, in hexadecimal; empty without messages."""
    if not deliveries:
        return ""
    found = hashlib.sha256()
    for one in deliveries:
        for part in _parts(one):
            found.update(len(part).to_bytes(8))
            found.update(part)
    return found.hexdigest()


def mark(one: ClientDelivery) -> str:
    """Return a message's mark: 48 bits of a digest, as eight characters."""
    found = hashlib.blake2b(digest_size=6)
    for part in _parts(one):
        found.update(len(part).to_bytes(8))
        found.update(part)
    return base64.urlsafe_b64encode(found.digest()).decode("ascii")


def _parts(one: ClientDelivery) -> tuple[bytes, ...]:
    return one.exchange.encode("utf-8", "surrogateescape"), one.routing_key, one.properties, one.body


def _marks_in(noted: str) -> list[str]:
    """Return the marks in a digest; empty for a digest of a whole chunk."""
    marks = noted.removeprefix(EACH)
    return [marks[at : at + 8] for at in range(0, len(marks), 8)] if marks != noted else []


def _may_expire(one: ClientDelivery) -> bool:
    return bool(int.from_bytes(one.properties[:2]) & _EXPIRATION)


def _consumed(amqp: AMQPConnection, queue: str, most: int, patience: float) -> list[ClientDelivery]:
    """Take the first messages of a queue without an acknowledgement, and without a prefetch of further messages."""
    count = min(most, amqp.declared(queue).message_count)
    if not count:
        return []
    consumer = amqp.consume(queue, count)
    found: list[ClientDelivery] = []
    while len(found) < count and amqp.wait(patience):
        found.append(_as_published(amqp.deliveries.popleft()))
    amqp.cancel(consumer)
    while amqp.deliveries:  # messages delivered during the cancellation
        found.append(_as_published(amqp.deliveries.popleft()))
    return found


def _as_published(one: ClientDelivery) -> ClientDelivery:
    """Return the message without headers added by the delivery: a repeated delivery then has the same digest."""
    octets = as_published(one.properties)
    return one if octets is one.properties else replace(one, properties=octets)


def _next_size(deliveries: Sequence[ClientDelivery]) -> int:
    """Return the maximum number of messages in the next chunk: twice the last number, within `CHUNK` and, for messages
    of the same average size, `CHUNK_OCTETS`.
    """
    average = sum(len(one.body) for one in deliveries) // len(deliveries) + 1
    return max(1, min(CHUNK, 2 * len(deliveries), CHUNK_OCTETS // average))


def _cuts(deliveries: Sequence[ClientDelivery]) -> Iterator[int]:
    """Yield the ends of the requests of a chunk; at least one."""
    octets = 0
    for place, one in enumerate(deliveries):
        if octets and octets + len(one.body) > CHUNK_OCTETS:
            yield place
            octets = 0
        octets += len(one.body)
    yield len(deliveries)


def _stream_of(queue: str, deliveries: Sequence[ClientDelivery]) -> bytes:
    """Encode messages for the management API."""
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
