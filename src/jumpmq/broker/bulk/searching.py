"""Search for ready messages of a queue, without taking them.

A search examines messages in the order of their numbers, in time slices. It ends after the requested number of found
messages, or after the maximum number of examined messages, and then has the number for the next search.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.queues import Queue, clock
from jumpmq.store.stream_segment import messages_of

MAX_SEARCHED = 100_000
"""Maximum number of messages examined by a search."""

MAX_OCTETS = 64 << 20
"""Octets of examined bodies and properties after which a search stops."""

ROWS = 256
"""Number of messages of a stream built from records at once."""


@dataclass(frozen=True)
class SearchCriteria:
    """Search criteria; a message must meet all.

    Attributes:
        first, last: the lowest and the highest number.
        since: seconds since the epoch: published at this time or later.
        key: the routing key.
        header: the name of a header.
        value: value of the header or property, as text: strings unchanged, other values as JSON.
        text: octets within the body.
        property: the name of a property that a hash exchange can hash; it must have the ``value``.
    """

    first: int
    last: int
    since: float | None = None
    key: bytes | None = None
    header: str | None = None
    value: str | None = None
    text: bytes | None = None
    property: str | None = None

    def matches(self, message: Message) -> bool:
        """Return True if a message in any location meets the criteria."""
        if self.key is not None and message.routing_key != self.key:
            return False
        if self.since is not None and message.published_at < self.since:
            return False
        if self.text is not None and self.text not in message.body:
            return False
        if self.property is not None and not self._has_property(message, self.property):
            return False
        return self.header is None or self._has_header(message, self.header)

    def _has_property(self, message: Message, name: str) -> bool:
        found = getattr(Properties.parse(message.properties), name)
        return found is not None and text_of(found) == self.value

    def _has_header(self, message: Message, name: str) -> bool:
        if name.encode(errors="surrogateescape") not in message.properties:
            return False  # before the parse of the properties, the slowest part: most messages lack the header
        headers = to_python(Properties.parse(message.properties).headers or [])
        return name in headers and self.value in (None, text_of(headers[name]))


def text_of(value: Any) -> str:
    """Return a header's value as text: strings unchanged, other values as JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else json.dumps(value, default=str)


class Search:
    """A search.

    Attributes:
        searched: number of examined messages.
        next: first number for the next search; None at the end of the range.
    """

    def __init__(self, slices: Slices, queue: Queue, wanted: SearchCriteria) -> None:
        self.searched = 0
        self.next: int | None = None
        self._slices = slices
        self._queue = queue
        self._wanted = wanted
        self._enough = False

    def stop(self) -> None:
        """Stop the search before the next message."""
        self._enough = True

    async def found(self, count: int) -> AsyncIterator[Message]:
        """Yield up to ``count`` matching messages, by number; the messages stay in the queue."""
        octets, now, left = 0, clock.now(), count
        async for message in self._slices.through(self._all()):
            if self._enough or left <= 0 or self.searched >= MAX_SEARCHED or octets >= MAX_OCTETS:
                self.next = message.seq
                return
            self.searched += 1
            octets += len(message.body) + len(message.properties)
            if 0.0 < message.expires_at <= now:
                continue
            if self._wanted.matches(message):
                left -= 1
                yield message

    def _all(self) -> Iterator[Message]:
        queue, wanted = self._queue, self._wanted
        if (batches := queue.view.record_batches(wanted.first, wanted.last)) is None:
            for messages in queue.view.in_sequence(wanted.first, wanted.last):
                yield from messages
            return
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS):
                yield from messages_of(batch.slice(start, ROWS))
