"""Sending messages to queues whose homes are others."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from jumpmq.amqp.messages import Message
from jumpmq.broker.commit.receipts import REFUSED, Part, Parts
from jumpmq.topology.declared import DeclaredQueue


class Sent(NamedTuple):
    """What was sent to other homes.

    Attributes:
        queues, copies: how many queues, and how many messages these were given together.
        sources: by the ``id`` of a message, the sources of receipts that it was given to, or-ed bits.
        parts: by the ``id`` of a message that may be refused by itself, its own parts.
        by_source: the part that covers all of it, for each source.
    """

    queues: int
    copies: int
    sources: dict[int, int]
    parts: dict[int, tuple[Part, ...]]
    by_source: dict[int, Part]

    def was_refused(self, message: int) -> bool:
        """Whether a message, by its ``id``, was refused: by a queue, or as its home is down."""
        sources = self.sources.get(message, 0)
        parts = [part for source, part in self.by_source.items() if source & sources]
        return Parts((*parts, *self.parts.get(message, ()))).state is REFUSED

    def was_lost(self, message: int) -> bool:
        """Whether it may not have arrived, as a home is down: not whether a queue has refused it."""
        sources = self.sources.get(message, 0)
        return any(part.state is REFUSED for source, part in self.by_source.items() if source & sources)


class Elsewhere(Protocol):
    """Sends messages to other homes."""

    def send(self, routes: dict[DeclaredQueue, list[Message]], flags: int) -> Sent:
        """Send queues of other homes their messages; those of a home that is down are refused.

        Args:
            flags: the property flags of all messages, or-ed.
        """

    def send_reply(self, home: int, message: Message) -> bool:
        """Send an answer to the direct reply-to address that is its routing key; returns whether the home is up."""

    def when_answered(self, sent: Sent, then: Callable[[], None]) -> None:
        """Have a function called, within a turn, when it is known what became of all that was sent."""
