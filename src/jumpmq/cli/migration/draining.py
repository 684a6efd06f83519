"""Moving the messages of a queue from RabbitMQ to JumpMQ, each once, also when the move is killed and begun again.

How it works. A queue is moved a chunk at a time: the chunk is consumed, published in one request, and acknowledged. The
broker that gets it remembers, in the commit of the chunk itself, which chunk of this queue it has (a *writer* of the
management API: chunk number, messages, digest), and before the next one is consumed it is told that this one was
acknowledged too. So a new run asks where the move stands. If a chunk is published and not told to be acknowledged, its
messages are in the queue again, delivered before (``redelivered``): they are acknowledged, and not published again;
or the acknowledgement came through, and they are not there.

A chunk is found again in one of two ways:

- As a whole, by the digest of all its messages, where these are the first of the queue again.
- One by one, where single messages may have left (a time to live, a limit, other consumers), or others come before them
  (priorities). Such a queue is moved in small chunks, whose digest has a mark for each message.

A RabbitMQ that is killed forgets the acknowledgements of its last moments. A process that has seen that passes over
what comes again: it knows the marks of what it has acknowledged lately. Messages that have the same mark as another
one cannot be told apart, and come again rather than get lost.

A stream is moved by ranges of offsets, and the number of a chunk is its first offset.
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
"""Messages of the first chunk of a queue, and of any chunk at most."""

MARKED = 200
"""Maximum number of messages of a chunk with a mark per message."""

CHUNK_OCTETS = 16 << 20
"""Maximum octets of bodies in a chunk or request, except for a single larger message."""

ON_THEIR_WAY = 10.0
"""Seconds to wait for messages counted by a queue but not yet received."""

QUIET = 0.5
"""Seconds without a message until a stream counts as read to its end."""

FORGETFUL = 5.0
"""Seconds of acknowledgements that a killed RabbitMQ may lose; half a second was seen."""

SEARCHED = 20_000
"""Number of messages of a queue searched for earlier moved messages."""

EACH = "*"
"""First character of a digest with a mark per message."""

_EXPIRATION = 1 << 8
"""The flag of the property ``expiration``."""

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}

Progress = Callable[[int], None]


class MigrationError(Exception):
    """A queue cannot be moved; the text names the queue and the reason. Messages moved before stay moved."""


class Full(MigrationError):
    """The target queue accepts no more messages, or refuses the messages."""


class Target:
    """A queue of the broker that messages are moved to.

    Args:
        origin: what the queue is moved from; a move that is begun again must say the same.
        insist: called with the error of a request; it returns if the request is to be sent again, which may have been
            acted on.
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
        name = queue if source is None else source  # that of the queue that is moved tells the writer
        self._writer = f"migrate {hashlib.sha256(f'{origin} {vhost} {name}'.encode()).hexdigest()[:32]}"
        self._insist = insist  # None where errors are raised at once

    def place(self) -> dict[str, Any]:
        """Return the progress of the move: number and messages of the last chunk, and its digest."""
        found: dict[str, Any] = self._ask(lambda: self._api.get("messages", self._vhost, "writers", self._writer))
        return found

    def publish(self, chunk: int, deliveries: Sequence[ClientDelivery], noted: str = "", done: int = 0) -> None:
        """Publish a chunk and record its number; without messages, only record the previous chunk as done.

        Args:
            noted: the digest of the chunk; empty for that of all its messages.
            done: how many of its messages are published.

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
                f"queue '{self._queue}' in vhost '{self._vhost}' refused {answer['refused']} messages: it is full"
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
        patience: seconds to wait for messages that the queue says it has.
        is_ending: whether the move is to end; then it ends behind the chunk that it is at.

    Attributes:
        marks_each: whether single messages may leave the queue, or others come before them, while a chunk is moved.
        gets: whether messages are got, for the end of a consumer would delete the queue.
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
        self._target = target  # where messages go
        self._progress = progress  # told how many were moved
        self._patience = patience
        self._is_ending = is_ending
        self._chunk: int | None = None  # the last that was used; None before the target was asked
        self._moving: list[str] = []  # marks of the chunk that is published, or about to be
        self._lately: deque[tuple[float, list[str]]] = deque()  # marks of what was acknowledged, with its time
        self._lost: Counter[str] = Counter()  # of these, what the source may have forgotten
        self._ready: list[ClientDelivery] = []  # taken, and not moved yet
        self._is_held = False  # whether messages are held until the other queue has room

    @property
    def is_holding(self) -> bool:
        """True if messages refused by the target queue are held: :meth:`run` must get the same connection."""
        return self._is_held

    def run(self, amqp: AMQPConnection, most: int | None = None) -> int:
        """Move messages until none is ready, or so many are moved; the answer is how many were.

        Raises:
            Full: the other queue is full: what was taken is held.
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
        """The connection to the source broke: what was acknowledged lately may come again."""
        self.forget()
        for _, marks in self._lately:
            self._lost.update(marks)
        self._lately.clear()

    def forget(self) -> None:
        """The connection is used no more: what is not acknowledged comes again."""
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
        amqp.declared(self.queue)  # answered behind the acknowledgement
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

    # --- going on ---

    def _begin(self, amqp: AMQPConnection) -> None:
        """Ask where the move stands, and acknowledge what is published and in the queue again."""
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
        """Acknowledge a chunk with a digest over all messages, if the first messages of the queue are the chunk's
        messages again.
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
        """Acknowledge moved messages found in the queue again; return the remaining messages taken with them.

        Args:
            published: marks of the chunk that is published, and maybe not acknowledged.
            again: marks of what was acknowledged lately; each is there once.
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
        amqp: a connection that is used for nothing else.
    """

    def __init__(self, amqp: AMQPConnection, stream: str, target: Target, progress: Progress) -> None:
        self._amqp = amqp
        self._target = target  # where messages go
        self._progress = progress  # told how many were copied
        place = target.place()
        self._next = 0 if place["batch"] is None else place["batch"] + place["rows"]  # the next offset
        amqp.consume(stream, CHUNK, {"x-stream-offset": self._next if self._next else "first"})

    def run(self, quiet: float = QUIET, most: int | None = None) -> int:
        """Copy until no message comes for so many seconds, or so many are copied; the answer is how many were."""
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
    """A digest of what a chunk holds; the empty text of nothing."""
    if not deliveries:
        return ""
    found = hashlib.sha256()
    for one in deliveries:
        for part in _parts(one):
            found.update(len(part).to_bytes(8))
            found.update(part)
    return found.hexdigest()


def mark(one: ClientDelivery) -> str:
    """Return eight characters to distinguish a message from the rest: 48 bits of a digest."""
    found = hashlib.blake2b(digest_size=6)
    for part in _parts(one):
        found.update(len(part).to_bytes(8))
        found.update(part)
    return base64.urlsafe_b64encode(found.digest()).decode("ascii")


def _parts(one: ClientDelivery) -> tuple[bytes, ...]:
    return one.exchange.encode("utf-8", "surrogateescape"), one.routing_key, one.properties, one.body


def _marks_in(noted: str) -> list[str]:
    """The marks in a digest; none in one of a whole chunk."""
    marks = noted.removeprefix(EACH)
    return [marks[at : at + 8] for at in range(0, len(marks), 8)] if marks != noted else []


def _may_expire(one: ClientDelivery) -> bool:
    return bool(int.from_bytes(one.properties[:2]) & _EXPIRATION)


def _consumed(amqp: AMQPConnection, queue: str, most: int, patience: float) -> list[ClientDelivery]:
    """Take the first messages of a queue, unacknowledged, with no further message delivered."""
    count = min(most, amqp.declared(queue).message_count)
    if not count:
        return []
    consumer = amqp.consume(queue, count)
    found: list[ClientDelivery] = []
    while len(found) < count and amqp.wait(patience):
        found.append(_as_published(amqp.deliveries.popleft()))
    amqp.cancel(consumer)
    while amqp.deliveries:  # deliveries during the cancellation
        found.append(_as_published(amqp.deliveries.popleft()))
    return found


def _as_published(one: ClientDelivery) -> ClientDelivery:
    """Return the message without headers of the current delivery, to give a repeated delivery and the message equal
    digests.
    """
    octets = as_published(one.properties)
    return one if octets is one.properties else replace(one, properties=octets)


def _next_size(deliveries: Sequence[ClientDelivery]) -> int:
    """Return the maximum size of the next chunk, in messages: twice the last size, if the messages are no larger."""
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
