"""Delayed messages, returned to the holding exchanges.

Each is as it was published; one that was delayed has the delay in its header ``x-delay`` negated, as RabbitMQ's plugin
has it.
"""

import time
from collections.abc import Iterable

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.dead_letters.dead_letters import DeadLetter
from jumpmq.queues import clock
from jumpmq.queues.delayed import DUE
from jumpmq.queues.delays import negated

PERSISTENT = 2


def due_messages(messages: Iterable[Message], reason: str) -> list[DeadLetter]:
    """Return the messages to route in place of messages leaving an exchange's queue; their own expiry begins now."""
    now, last, written = time.time(), b"", Properties()
    found: list[DeadLetter] = []
    for message in messages:
        if message.properties != last or not found:
            last, written = message.properties, Properties.parse(message.properties)
            octets = last
            if reason == DUE:
                written.headers = negated(written.headers or [])
                octets = written.encode()
        persistent = written.delivery_mode == PERSISTENT
        due = Message(message.exchange, message.routing_key, octets, message.body, persistent, now)
        if written.expiration is not None:  # found to be a number when it was published
            due.expires_at = clock.now() + int(written.expiration) / 1000
        found.append(DeadLetter(due, ()))
    return found
