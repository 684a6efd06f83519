"""Publishing of a single message over HTTP: for tests, not for traffic."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from jumpmq.amqp.errors import AMQPError, NotFound
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.channel.publishing import publish_one
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow_messages import require_room
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Blocked, Unauthorized
from jumpmq.http.schema.shapes import ARGUMENTS, NAME, OBJECT, TEXT, Shape, one_of, whole

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.topology import VirtualHost

ANSWER_TIMEOUT = 10.0
"""Maximum seconds for the answer of other homes."""

PROPERTIES = Shape(
    {
        **dict.fromkeys(("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"), NAME),
        **dict.fromkeys(("message_id", "type", "user_id", "app_id", "cluster_id"), NAME),
        "headers": ARGUMENTS,
        "delivery_mode": whole(255),
        "priority": whole(255),
        "timestamp": whole((1 << 63) - 1),
    }
)
SHAPE = Shape(
    {"routing_key": NAME, "payload": TEXT, "payload_encoding": one_of("string", "base64"), "properties": OBJECT},
    required=("routing_key", "payload", "payload_encoding", "properties"),
    ignored=("exchange", "vhost", "name", "headers", "props", "delivery_mode"),
)


async def publish(request: Request) -> JSONResponse:
    """``POST /api/exchanges/{vhost}/{exchange}/publish``: publish a message; ``routed`` is true if a queue received it.

    A persistent message is on disk before the answer. The answer is 404 for an unknown exchange. It is 400 if a queue
    refuses the message, for example because the queue is full, even if other queues have accepted the message. It is
    503, with ``Retry-After``, while memory or disk is short, at this home or at the home of a queue.
    """
    host, exchange = requested.virtual_host(request), requested.exchange_name(request)
    if host.name not in requested.user(request).permissions:
        raise Unauthorized("User not authorised to access virtual host")
    if exchange not in host.exchanges:
        raise NotFound(f"no exchange '{exchange}' in vhost '{host.name}'")
    broker = requested.broker(request)
    if broker.alarms.active:
        raise Blocked(f"publishers are blocked: {broker.alarms.reason}")
    body = await requested.shaped_body(request, SHAPE, requested.MAX_LONG_BODY)
    properties = PROPERTIES.read(body["properties"], "properties")
    if "headers" in properties:
        properties["headers"] = list(properties["headers"].fields)
    encoded = Properties(**properties).encode()
    require_room(len(encoded))
    message = Message(
        exchange,
        body["routing_key"].encode(),
        encoded,
        _payload(body),
        properties.get("delivery_mode") == 2,
        time.time(),
    )
    await broker.count_published(requested.principal(request), 1)
    await broker.pause.over()
    try:
        user = requested.principal(request)
        pushed = publish_one(broker.authorization, user, host, message, broker.spans, broker.sender)
    except AMQPError as error:  # as in RabbitMQ, each error of a publish is a 400
        raise BadRequest(f"{error.code} {error.reply_text}") from None
    refused_there = None if pushed.sent is None else broker.refused(pushed.sent)
    await broker.committed()
    if pushed.refused or (refused_there is not None and await _known(refused_there)):
        raise BadRequest(_refusal(broker, host, exchange, body["routing_key"]))
    return JSONResponse({"routed": bool(pushed.queues)})


def _refusal(broker: Broker, host: VirtualHost, exchange: str, key: str) -> str:
    """Return the reason of a refused message: a queue's node is down, or, in RabbitMQ's words, a queue refused the
    message.
    """
    names = [key] if not exchange else [one.destination for one in host.exchanges[exchange].bindings]
    bound = [host.declared[name].definition for name in names if name in host.declared]
    down = next((one for one in bound if one.home not in broker.running_homes), None)
    if down is None:
        return "rejected Unable to publish message. Check queue limits."
    node = broker.topology.node_of(down.home)
    return f"Not published: node {node}, which holds queue '{down.name}', is down."


async def _known(refused_there: asyncio.Future[bool]) -> bool:
    """Return the answer of other homes.

    Raises:
        Blocked: no answer came in time: a home short of memory or disk does not answer.
    """
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            return await refused_there
    except TimeoutError:
        raise Blocked(
            f"another home has not answered for {ANSWER_TIMEOUT:g} s; the message may be published all the same"
        ) from None


def _payload(body: dict[str, Any]) -> bytes:
    if body["payload_encoding"] == "string":
        text: str = body["payload"]
        return text.encode()
    try:
        return base64.b64decode(body["payload"], validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("'payload' is not base64") from None


ROUTES = [Endpoint("POST", "/api/exchanges/{vhost}/{exchange}/publish", publish, shape=SHAPE)]
