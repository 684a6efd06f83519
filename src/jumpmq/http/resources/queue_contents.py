"""The messages of a queue as JSON: looked at, taken, or thrown away."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.schema.shapes import Shape, one_of, whole
from jumpmq.queues import Outcome, Queue, clock

MAX_COUNT = 10_000
"""Messages that one request may ask for."""

OUTCOMES = {
    "ack_requeue_true": Outcome.REQUEUED,
    "reject_requeue_true": Outcome.REQUEUED,
    "ack_requeue_false": Outcome.ACKNOWLEDGED,
    "reject_requeue_false": Outcome.REJECTED,
}
"""What becomes of the messages that were got, by ``ackmode``."""

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


async def get(request: Request) -> Response:
    """``POST /api/queues/{vhost}/{queue}/get``: messages from the front; ``ackmode`` says what becomes of them."""
    queue, body = requested.unlocked_queue(request), await requested.shaped_body(request, SHAPE)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    while not queue.knows_next:
        await requested.broker(request).slices.next()
    with requested.broker(request).turns.turn():
        queue.touch()
        messages = queue.take(body["count"])
        if OUTCOMES[body["ackmode"]] is Outcome.ACKNOWLEDGED:
            queue.got_unasked += len(messages)
        else:
            queue.got += len(messages)
        queue.got_nothing += not messages
        if (spans := requested.broker(request).spans) is not None:
            spans.delivered(queue, messages, None)
        left = queue.ready_count + len(messages)
        found = [_shown(message, body, left - place) for place, message in enumerate(messages, 1)]
        queue.settle(messages, OUTCOMES[body["ackmode"]])
    return answer(found)


async def purge(request: Request) -> Response:
    """``DELETE /api/queues/{vhost}/{queue}/contents``: throw away what is ready."""
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    await changing.in_turns(request, _purging(queue))
    return changing.deleted()


def _purging(queue: Queue) -> Iterator[None]:
    queue.purge()
    while queue.purging:
        yield
        queue.trim(clock.now())


def _shown(message: Message, body: dict[str, Any], message_count: int) -> dict[str, Any]:
    payload = message.body[: body.get("truncate")]
    text, encoding = _encoded(payload, body["encoding"])
    return {
        "payload_bytes": len(message.body),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key.decode("utf-8", "replace"),
        "message_count": message_count,
        "properties": _properties(message),
        "payload": text,
        "payload_encoding": encoding,
    }


def _encoded(payload: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return payload.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(payload).decode(), "base64"


def _properties(message: Message) -> dict[str, Any] | list[Any]:
    """The properties that the message has; none are an empty list, as RabbitMQ writes them."""
    parsed = Properties.parse(message.properties)
    found = {name: getattr(parsed, name) for name in Properties.__slots__}
    found["headers"] = to_python(parsed.headers) if parsed.headers is not None else None
    return {name: value for name, value in found.items() if value is not None} or []


ROUTES = [
    Endpoint("POST", "/api/queues/{vhost}/{queue}/get", get, shape=SHAPE),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}/contents", purge),
]
