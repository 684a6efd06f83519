"""Dead-lettered messages: published in place of expired, overflowed or rejected messages.

The header ``x-death`` of a letter lists the queues in which the message died, and the reasons. Each queue and reason
has one entry with a count, the latest first (RabbitMQ, "Dead Letter Exchanges"). Publishers may forge the header, so
the code accepts any content. As in RabbitMQ 3.10, another death increases the count and moves the entry to the front,
which reverses the order of the other entries. Several entries of an older broker for one queue and reason become one
entry.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues import Queue

MAX_COUNT = (1 << 63) - 1
"""Maximum count of deaths: the field is a signed integer of 64 bits."""

Death = tuple[Any, Any]
"""Queue and reason of an entry of ``x-death``, as far as the entry has them."""


class DeadLetterOrigin(NamedTuple):
    """A queue with dead messages, and the destination address of dead-lettered messages."""

    queue: str
    exchange: str
    routing_key: bytes | None


class Dead(NamedTuple):
    """Messages dead in a queue for a common reason.

    Attributes:
        at_least_once: True if the dead letters must arrive.
        is_again: True if another home may already have the letters, because a link broke before the home answered.
    """

    queue: Queue
    origin: DeadLetterOrigin
    messages: list[Message]
    reason: str
    at_least_once: bool = False
    is_again: bool = False

    def cut(self, most: int) -> "tuple[Dead, Dead | None]":
        """Return at most the given number of messages, and the rest; None without a rest."""
        if len(self.messages) <= most:
            return self, None
        return self._replace(messages=self.messages[:most]), self._replace(messages=self.messages[most:])


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter not yet routed.

    Attributes:
        message: the message to publish.
        deaths: queues and reasons of the message's deaths, the latest first.
    """

    message: Message
    deaths: Sequence[Death]

    def comes_back_to(self, queue: str) -> bool:
        """Return True if the message died in the queue before, without a rejection since.

        RabbitMQ does not deliver such a letter to that queue, unless the letter was rejected just now. Other queues
        receive it.
        """
        for place, reason in self.deaths:
            if reason == "rejected":
                return False
            if place == queue:
                return True
        return False


def dead_letters(origin: DeadLetterOrigin, messages: Iterable[Message], reason: str) -> list[DeadLetter]:
    """Return the dead-lettered messages for messages dead in a queue.

    Args:
        reason: ``expired``, ``maxlen``, ``rejected`` or ``delivery_limit``; or one of ``HELD`` (``dead_lettering``).
    """
    now = time.time()
    writer = _Writer(origin, reason, int(now))
    found = []
    for message in messages:
        properties, deaths = writer.write(message)
        routing_key = message.routing_key if origin.routing_key is None else origin.routing_key
        letter = Message(origin.exchange, routing_key, properties, message.body, message.persistent, now)
        found.append(DeadLetter(letter, deaths))
    return found


class _Writer:
    """Writes the properties of dead-lettered messages, once for neighbours differing only in body."""

    def __init__(self, origin: DeadLetterOrigin, reason: str, now: int) -> None:
        self._origin = origin
        self._reason = reason
        self._now = now
        self._last: tuple[bytes, bytes, str] | None = None
        self._written: tuple[bytes, Sequence[Death]] = (b"", ())

    def write(self, message: Message) -> tuple[bytes, Sequence[Death]]:
        """Return the properties of the dead-lettered message, and the deaths recorded in the properties."""
        key = (message.properties, message.routing_key, message.exchange)
        if key != self._last:
            self._written = self._write(message)
            self._last = key
        return self._written

    def _write(self, message: Message) -> tuple[bytes, Sequence[Death]]:
        properties = Properties.parse(message.properties)
        headers = properties.headers or []
        entry = self._entry(message, properties, headers)
        found = next((field for field in headers if field.name == "x-death"), None)
        death = (("exchange", message.exchange), ("queue", self._origin.queue), ("reason", self._reason))
        # As in RabbitMQ: `x-first-death-*` stay as written at the first death, `x-last-death-*` are written at each
        # death.
        which = ("x-last-death-",) if found is not None else ("x-first-death-", "x-last-death-")
        headers = [field for field in headers if not field.name.startswith(which)]
        headers += [Field(f"{prefix}{name}", "S", value) for prefix in which for name, value in death]
        deaths = _counted(found.value if found is not None and found.type == "A" else [], entry)
        headers = [field for field in headers if field.name != "x-death"]
        if self._origin.routing_key is not None:  # replaces the CC
            headers = [field for field in headers if field.name != "CC"]
        properties.headers = [*headers, Field("x-death", "A", deaths)]
        # As in RabbitMQ: otherwise the letter would expire again in its next queue.
        properties.expiration = None
        return properties.encode(), tuple(map(_death, deaths))

    def _entry(self, message: Message, properties: Properties, headers: list[Field]) -> list[Field]:
        keys = [("S", message.routing_key.decode(errors="surrogateescape"))]
        for field in headers:
            if field.name == "CC" and field.type == "A":
                keys += [(kind, value) for kind, value in field.value if kind == "S"]
                break
        entry = [
            Field("count", "l", 1),
            Field("exchange", "S", message.exchange),
            Field("queue", "S", self._origin.queue),
            Field("reason", "S", self._reason),
            Field("routing-keys", "A", keys),
            Field("time", "T", self._now),
        ]
        if properties.expiration is not None:
            # In order of the names, as in `_with_count`.
            entry.insert(2, Field("original-expiration", "S", properties.expiration))
        return entry


def _counted(deaths: list[tuple[str, Any]], entry: list[Field]) -> list[tuple[str, Any]]:
    """Return the entries of ``x-death`` after a further death."""
    others = _grouped(deaths)
    latest = _death(("F", entry))
    for place, death in enumerate(others):
        if _death(death) == latest:
            del others[place]
            count = _count(death[1])
            return [("F", _with_count(death[1], 1 if count is None else min(count + 1, MAX_COUNT))), *others]
    return [("F", entry), *others]


def _grouped(deaths: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return one entry per queue and reason, counting entries written individually by older brokers."""
    if len(deaths) < 2:
        return list(deaths)
    groups: dict[str, list[tuple[str, Any]]] = {}
    for death in deaths:
        groups.setdefault(repr(_death(death)) if death[0] == "F" else repr(death), []).append(death)
    found = []
    for kind, first in [group[0] for group in groups.values()]:
        if kind == "F" and _count(first) is None:
            first = _with_count(first, len(groups[repr(_death((kind, first)))]))
        found.append((kind, first))
    return found[::-1]


def _death(death: tuple[str, Any]) -> Death:
    """Return queue and reason of an entry. An entry other than a table ends the search for a cycle, like a
    rejection.
    """
    kind, table = death
    return (_get(table, "queue"), _get(table, "reason")) if kind == "F" else (None, "rejected")


def _get(table: list[Field], name: str) -> Any:
    return next((field.value for field in table if field.name == name), None)


def _count(table: list[Field]) -> int | None:
    """Return the count of an entry; None if missing or not a number."""
    count = _get(table, "count")
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _with_count(table: list[Field], count: int) -> list[Field]:
    others = [field for field in table if field.name != "count"]
    return sorted([*others, Field("count", "l", count)], key=lambda field: field.name)
