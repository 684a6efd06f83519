"""Delayed messages, returned to the holding exchanges.

Each is as it was published; one that was delayed has the delay in its header ``x-delay`` negated, as RabbitMQ's plugin
has it. Of one that enters the queue of another such exchange, a header (:data:`HEADER`) says there which queues it has
passed, so that exchanges bound in a ring do not pass it round without end. The header goes no further.
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
    """Return the messages to route in place of messages leaving an exchange's queue; their own expiry begins now.

    Args:
        queue: its name.
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
    """Take the queues that a message has passed out of its headers."""
    headers = properties.headers or []
    carried = [field for field in headers if field.name == HEADER and field.type == "A"]
    if not carried:
        return []
    properties.headers = [field for field in headers if field not in carried] or None
    return [(name, PASSED) for field in carried for kind, name in field.value if kind == "S"]


def to_pass(letters: Iterable[DeadLetter]) -> list[Message]:
    """Return copies of due messages for the queue of another exchange."""
    found = []
    for letter in letters:
        copy = letter.message.copy()
        copy.expires_at = letter.message.expires_at
        properties = Properties.parse(copy.properties)
        passed = Field(HEADER, "A", [("S", name) for name, _ in letter.deaths])
        properties.headers = [*(properties.headers or []), passed]
        copy.properties = properties.encode()
        found.append(copy)
    return found
