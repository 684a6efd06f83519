"""Exchanges that hold messages in a queue of their own: delayed messages, and messages to deduplicate.

Messages return from the queue and are routed then. The queue is internal; it is declared and deleted with the exchange
(:mod:`jumpmq.topology.changes.holding_queues`). Another home than the exchange's may have the queue.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, ClassVar, TypeVar

from jumpmq.amqp.messages import Message
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange, Previewed, Split

T = TypeVar("T")

MAX_NAME = 255
"""Octets of a queue's name."""


class HoldingExchange(Exchange):
    """Mixin for exchanges that hold messages; the class of the exchange type follows among the base classes.

    Attributes:
        held_queue: returns the queue; None if the queue is lost.
        queue_type: type of the queue.
        queue_prefix: start of the queue's name.
    """

    queue_type: ClassVar[str]
    queue_prefix: ClassVar[str]
    held_queue: Callable[[], Destination | None]

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self.feeds_remote = 1  # the queue may be at another home
        self._passes = False  # whether messages that come back are routed

    @abstractmethod
    def holds(self, message: Message) -> bool:
        """True if a message goes to the queue first."""

    @property
    def queue_name(self) -> str:
        """The name of the queue: prefix and the exchange's name, or a hash of a name that is too long."""
        name = self.queue_prefix + self.name
        if len(name.encode(errors="surrogateescape")) <= MAX_NAME:
            return name
        return self.queue_prefix + sha256(self.name.encode(errors="surrogateescape")).hexdigest()

    @property
    def queue_arguments(self) -> dict[str, Any]:
        """Arguments of the queue's declaration."""
        return {"x-queue-type": self.queue_type, "x-dead-letter-exchange": self.name}

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Within the block the exchange routes messages that return from the queue, and holds none."""
        self._passes = True
        try:
            yield
        finally:
            self._passes = False

    def split(self, messages: list[Message]) -> Split[Message]:
        return self._split_held(messages, _itself, super().split)

    def split_envelopes(self, envelopes: list[Envelope]) -> Split[Envelope]:
        return self._split_held(envelopes, _message_of, super().split_envelopes)

    def preview(self, messages: list[Message]) -> Previewed[Message]:
        return self._preview_held(messages, _itself, super().preview)

    def preview_envelopes(self, envelopes: list[Envelope]) -> Previewed[Envelope]:
        return self._preview_held(envelopes, _message_of, super().preview_envelopes)

    def _split_held(
        self, items: list[T], message_of: Callable[[T], Message], split: Callable[[list[T]], Split[T]]
    ) -> Split[T]:
        return self._preview_held(items, message_of, lambda run: (split(run), None))[0]

    def _preview_held(
        self, items: list[T], message_of: Callable[[T], Message], preview: Callable[[list[T]], Previewed[T]]
    ) -> Previewed[T]:
        if self._passes or (queue := self.held_queue()) is None:
            return preview(items)
        held, now = list[T](), list[T]()
        for item in items:
            (held if self.holds(message_of(item)) else now).append(item)
        if not held:
            return preview(items)
        (groups, missed), tally = preview(now) if now else (({}, now), None)
        return ({**groups, queue: held}, missed), tally


def _itself(message: Message) -> Message:
    return message


def _message_of(envelope: Envelope) -> Message:
    return envelope.message
