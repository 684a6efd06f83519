"""Dead lettering (RabbitMQ, "Dead Letter Exchanges"): where messages go that expired, overflowed or were rejected."""

import time
from typing import Any

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import HEADERS, Properties
from jumpmq.broker import routing
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost


def publish_dead_letters(vhost: VirtualHost, queue: Queue, messages: list[Message], reason: str) -> None:
    """Publish what left a queue undelivered to its dead letter exchange; where that is missing it is gone.

    Args:
        reason: ``expired``, ``maxlen`` or ``rejected``.
    """
    exchange = vhost.exchanges.get(queue.limits.dead_letter_exchange or "")
    if exchange is not None:
        found = [_dead_letter(queue, message, reason) for message in messages]
        routing.push(vhost, exchange, [message for message in found if message is not None], HEADERS)


def _dead_letter(queue: Queue, message: Message, reason: str) -> Message | None:
    """The message to publish in a dead one's place; None where it has gone round in a circle with no rejection."""
    properties = Properties.parse(message.properties)
    deaths = _deaths(properties)
    if reason != "rejected" and _is_cycle(deaths, queue.name):
        return None
    key = queue.limits.dead_letter_routing_key
    routing_key = message.routing_key if key is None else key.encode()
    _note_death(properties, deaths, queue, message, reason)
    properties.expiration = None
    return Message(
        queue.limits.dead_letter_exchange or "",
        routing_key,
        properties.encode(),
        message.body,
        message.persistent,
        time.time(),
    )


def _deaths(properties: Properties) -> list[list[Field]]:
    for field in properties.headers or []:
        if field.name == "x-death" and field.type == "A":
            return [table for kind, table in field.value if kind == "F"]
    return []


def _is_cycle(deaths: list[list[Field]], queue: str) -> bool:
    """Whether the message died here before, and was never rejected on its way round (RabbitMQ drops such)."""
    for place, death in enumerate(deaths):
        if _get(death, "queue") == queue:
            return all(_get(one, "reason") != "rejected" for one in deaths[: place + 1])
    return False


def _get(death: list[Field], name: str) -> Any:
    return next((field.value for field in death if field.name == name), None)


def _note_death(properties: Properties, deaths: list[list[Field]], queue: Queue, message: Message, reason: str) -> None:
    """Put this death first in the ``x-death`` header, counting on if there was one like it."""
    headers = [field for field in properties.headers or [] if field.name != "x-death"]
    count = 1
    for death in deaths:
        if _get(death, "queue") == queue.name and _get(death, "reason") == reason:
            count = int(_get(death, "count") or 0) + 1
            deaths = [other for other in deaths if other is not death]
            break
    key = ("S", message.routing_key.decode(errors="surrogateescape"))
    entry = [
        Field("count", "l", count),
        Field("exchange", "S", message.exchange),
        Field("queue", "S", queue.name),
        Field("reason", "S", reason),
        Field("routing-keys", "A", [key]),
        Field("time", "T", int(time.time())),
    ]
    if properties.expiration is not None:
        entry.append(Field("original-expiration", "S", properties.expiration))
    if not any(field.name == "x-first-death-queue" for field in headers):
        for name, value in (("exchange", message.exchange), ("queue", queue.name), ("reason", reason)):
            headers.append(Field(f"x-first-death-{name}", "S", value))
    headers.append(Field("x-death", "A", [("F", one) for one in [entry, *deaths]]))
    properties.headers = headers
