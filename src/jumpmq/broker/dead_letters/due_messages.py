"""Delayed messages, returned from the queues of holding exchanges to be routed.

A returned message is as published. The header ``x-delay`` of a delayed message is negated, as in RabbitMQ's plugin. A
message that enters the queue of another holding exchange has a further header (:data:`HEADER`) with the queues passed
so far, so that exchanges bound in a ring do not pass the message forever. Consumers never see this header.
"""

import time
from collections.abc import Iterable, Sequence

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.dead_letters.dead_letters import DeadLetter, Death
from jumpmq.queues import clock
from jumpmq.queues.deduplicating import PASSED
from jumpmq.queues.delayed import DUE
from jumpmq.queues.delays import negated

PERSISTENT = 2

HEADER = "x-jumpmq-passed"
"""Names of the queues of exchanges that a message has passed."""


def due_messages(queue: str, messages: Iterable[Message], reason: str) -> list[DeadLetter]:
    """Return the messages to route for messages that leave an exchange's queue. Their own expiry begins now.

    Args:
        queue: name of the queue.
    """
    now, last, written = time.time(), b"", Properties()
    found: list[DeadLetter] = []
    deaths: Sequence[Death] = ()
    for message in messages:
        if message.properties != last or not found:
            last, written = message.properties, Properties.parse(message.properties)
            deaths = ((queue, PASSED), *_passed(written))
            octets = last
            if reason == DUE:
                written.headers = negated(written.headers or [])
            if reason == DUE or len(deaths) > 1:
                octets = written.encode()
        persistent = written.delivery_mode == PERSISTENT
        due = Message(message.exchange, message.routing_key, octets, message.body, persistent, now)
        if written.expiration is not None:  # found to be a number when it was published
            due.expires_at = clock.now() + int(written.expiration) / 1000
        found.append(DeadLetter(due, deaths))
    return found


def _passed(properties: Properties) -> list[Death]:
    """Remove the queues that a message has passed from its headers, and return the queues."""
    headers = properties.headers or []
    carried = [field for field in headers if field.name == HEADER and field.type == "A"]
    if not carried:
        return []
    properties.headers = [field for field in headers if field not in carried] or None
    return [(name, PASSED) for field in carried for kind, name in field.value if kind == "S"]


def to_pass(dead_letters: Iterable[DeadLetter]) -> list[Message]:
    """Return copies of due messages for the queue of another exchange."""
    found = []
    for letter in dead_letters:
        copy = letter.message.copy()
        copy.expires_at = letter.message.expires_at
        properties = Properties.parse(copy.properties)
        passed = Field(HEADER, "A", [("S", name) for name, _ in letter.deaths])
        properties.headers = [*(properties.headers or []), passed]
        copy.properties = properties.encode()
        found.append(copy)
    return found
