"""The messages of a queue as JSON: reading, purging, deleting and moving of messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jumpmq.amqp.errors import ResourceLocked
from jumpmq.amqp.messages import Message
from jumpmq.broker.bulk.moving_messages import MoveDestination, delete_numbered, move_messages, move_numbered
from jumpmq.broker.bulk.searching import Search
from jumpmq.broker.channel.returning import put_back
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.upkeep.slices import SLICE, in_turns
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.answers import answer_array
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Blocked
from jumpmq.http.plumbing.rendering import Rendered
from jumpmq.http.plumbing.wanted import WANTED, wanted_of
from jumpmq.http.schema.shapes import BOOLEAN, NAME, Shape, numbers, one_of, whole
from jumpmq.queues import Outcome, Queue, clock

MAX_COUNT = 10_000
"""Maximum number of messages per request."""

TAKEN_AT_ONCE = 256 << 10
"""Maximum octets of messages taken before rendering."""

MAX_MOVED = 1_000_000
"""Maximum number of messages moved per request."""

AT_ONCE = 500
"""Number of messages settled per slice."""

OUTCOMES = {
    "ack_requeue_true": Outcome.REQUEUED,
    "reject_requeue_true": Outcome.REQUEUED,
    "ack_requeue_false": Outcome.ACKNOWLEDGED,
    "reject_requeue_false": Outcome.REJECTED,
}
"""Outcome of the messages of a request, by ``ackmode``."""

SHAPE = Shape(
    {
        "count": whole(MAX_COUNT),
        "ackmode": one_of(*OUTCOMES),
        "encoding": one_of("auto", "base64"),
        "truncate": whole((1 << 63) - 1),
    },
    required=("count", "ackmode", "encoding"),
    ignored=("queue", "vhost", "name", "payload_file", "requeue"),
)


MAX_NUMBERS = 10_000
"""Maximum number of message numbers in a request."""

MOVE = Shape(
    {
        "queue": NAME,
        "exchange": NAME,
        "routing_key": NAME,
        "origin": BOOLEAN,
        "count": whole(MAX_MOVED),
        "numbers": numbers(MAX_NUMBERS),
        **WANTED.keys,
    },
    ignored=("vhost", "name"),
)

DELETE = Shape({"numbers": numbers(MAX_NUMBERS)}, required=("numbers",), ignored=("vhost", "name"))


async def get(request: Request) -> Response:
    """``POST /api/queues/{vhost}/{queue}/get``: messages from the front; ``ackmode`` decides on their outcome.

    The messages are taken in steps, and other consumers, served in between, may take some of the following messages. A
    long answer has fewer messages than requested, but at least one.
    """
    try:
        queue = requested.unlocked_queue(request)
    except ResourceLocked as error:  # an AMQP error, because RabbitMQ uses an AMQP client for this request
        raise BadRequest(f"{error.code} {error.reply_text}") from None
    body = await requested.shaped_body(request, SHAPE)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    broker = requested.broker(request)
    messages = Rendered(broker.memory, body["encoding"], body.get("truncate"))
    getting, more = _Getting(queue, body, broker.spans), True
    queue.touch()
    with messages:
        try:
            while more and not messages.is_full:
                with broker.turns.turn():
                    more = getting.take_some(min(messages.room, TAKEN_AT_ONCE))
                async for message, content, left in broker.slices.through(getting.unshown()):
                    await messages.add(message, content, message_count=left)
                if more:
                    await _next_known(queue)
                    await broker.slices.next()
        finally:
            await in_turns(broker, getting.settle())
    return messages.sent_by(answer_array(request, messages.texts))


async def _next_known(queue: Queue) -> None:
    """Wait until the queue's next message is known."""
    known = asyncio.get_running_loop().create_future()
    queue.when_next_known(lambda: None if known.done() else known.set_result(None))
    await known


class _Getting:
    """Messages of a get request."""

    def __init__(self, queue: Queue, body: dict[str, Any], spans: Spans | None) -> None:
        self._queue, self._body, self._spans = queue, body, spans
        self._outcome = OUTCOMES[body["ackmode"]]
        self._taken: list[Message] = []
        self._unshown: list[tuple[Message, bytes, int]] = []  # with body, and number of messages left in the queue

    def take_some(self, most: int) -> bool:
        """Take messages for the time of a slice; return True if more messages may follow.

        Args:
            most: octets after which no more messages are taken.

        Raises:
            ResourceLocked: a consumer group consumes from the queue.
        """
        queue, until, octets = self._queue, time.perf_counter() + SLICE, 0
        queue.require_unshared()
        while len(self._taken) < self._body["count"]:
            if not queue.knows_next:
                return True
            if not (messages := queue.take(1)):
                queue.got_nothing += not self._taken
                break
            octets += self._take(messages)
            if octets > most or time.perf_counter() > until:
                return True
        return False

    def unshown(self) -> list[tuple[Message, bytes, int]]:
        """Return the messages taken since the last call, with bodies and numbers of messages left in the queue."""
        found, self._unshown = self._unshown, []
        return found

    def _take(self, messages: list[Message]) -> int:
        """Count messages as delivered by a get; return the octets of the messages."""
        self._taken += messages
        if self._outcome is Outcome.ACKNOWLEDGED:
            self._queue.got_unasked += 1
        else:
            self._queue.got += 1
        if self._spans is not None:
            self._spans.delivered(self._queue, messages, None)
        (message,) = messages
        self._unshown.append((message, message.body, self._queue.ready_count))
        return len(message.body) + len(message.properties)

    def settle(self) -> Iterator[None]:
        """Settle the messages in slices; requeued messages return to their positions last to first."""
        queue, taken, outcome = self._queue, self._taken, self._outcome
        if outcome is not Outcome.REQUEUED:
            for start in range(0, len(taken), AT_ONCE):
                queue.settle(taken[start : start + AT_ONCE], outcome)
                yield
        else:
            yield from put_back(queue, taken)


async def purge(request: Request) -> Response:
    """``DELETE /api/queues/{vhost}/{queue}/contents``: purge the ready messages."""
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    await changing.in_turns(request, _purging(queue))
    return changing.deleted()


async def retry(request: Request) -> JSONResponse:
    """``POST /api/queues/{vhost}/{queue}/retries``: retry all resting messages now.

    ``messages`` in the answer is the number of messages that rest, or wait for a resting message of their key.
    """
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    with requested.broker(request).turns.turn():
        count = 0 if queue.retries is None else queue.retries.hasten()
    return JSONResponse({"messages": count})


def _purging(queue: Queue) -> Iterator[None]:
    queue.purge()
    while queue.purging:
        yield
        queue.trim(clock.now())


async def move(request: Request) -> JSONResponse:
    """``POST /api/queues/{vhost}/{queue}/contents/move``: publish messages again, from the front, and remove them.

    The destination is a ``queue``, an ``exchange`` (with a ``routing_key``, unless each message keeps its own), or
    ``origin``: for dead letters, the queue where each message died last. At most ``count`` messages are moved; by
    default all messages that are ready now. A message that cannot be moved returns to its position: ``kept`` has the
    numbers of such messages, by reason.

    With ``numbers``, only the messages with these numbers are moved; with any of ``from``, ``to``, ``since``, ``key``,
    ``header``, ``value`` and ``text``, only the messages that meet these conditions. A request searches a bounded
    number of messages: if ``next`` is not null, the next request continues ``from`` there.
    """
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    body = await requested.shaped_body(request, MOVE)
    given = [key for key in ("queue", "exchange", "origin") if body.get(key) not in (None, False)]
    if len(given) != 1:
        raise BadRequest("exactly one of 'queue', 'exchange' and 'origin' must be given")
    if "routing_key" in body and given != ["exchange"]:
        raise BadRequest("'routing_key' needs an 'exchange'")
    broker = requested.broker(request)
    if broker.alarms.active:
        raise Blocked(f"publishers are blocked: {broker.alarms.reason}")
    key = body.get("routing_key")
    destination = MoveDestination(body.get("queue"), body.get("exchange"), None if key is None else key.encode())
    host, user = requested.virtual_host(request), requested.principal(request)
    following: dict[str, Any] = {}
    if body.keys() & {"numbers", *WANTED.keys}:
        chosen, following = await _chosen(request, queue, body)
        moved = await move_numbered(broker, user, host, queue, destination, chosen)
    else:
        moved = await move_messages(broker, user, host, queue, destination, body.get("count", queue.ready_count))
    return JSONResponse({"moved": moved.moved, "kept": moved.kept} | following)


async def _chosen(request: Request, queue: Queue, body: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """Return the numbers of the messages to move, and the answer's fields on the remaining ones."""
    wanted = body.keys() & WANTED.keys
    if "numbers" in body:
        if wanted or "count" in body:
            raise BadRequest("'numbers' excludes all other conditions")
        return body["numbers"], {}
    search = Search(requested.broker(request).slices, queue, wanted_of(queue, body))
    found = [message.seq async for message in search.found(body.get("count", MAX_MOVED))]
    return found, {"next": search.next}


async def delete(request: Request) -> JSONResponse:
    """``POST /api/queues/{vhost}/{queue}/contents/delete``: delete the ready messages with the given ``numbers``.

    ``deleted`` in the answer is the number of deleted messages. All others are gone, or delivered to consumers.
    """
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    body = await requested.shaped_body(request, DELETE)
    deleted = await delete_numbered(requested.broker(request), queue, body["numbers"])
    return JSONResponse({"deleted": deleted})


ROUTES = [
    Endpoint("POST", "/api/queues/{vhost}/{queue}/get", get, shape=SHAPE, at_home=True),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}/contents", purge, at_home=True),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/retries", retry, at_home=True),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/contents/move", move, shape=MOVE, at_home=True),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/contents/delete", delete, shape=DELETE, at_home=True),
]
