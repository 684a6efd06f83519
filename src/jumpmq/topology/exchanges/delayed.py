"""The delayed message exchange, ``x-delayed-message`` of RabbitMQ's plugin, routes messages with ``x-delay`` later.

It routes as an exchange of the type that the declare argument ``x-delayed-type`` names, and is one: a class is made of
each type. What is to be delayed goes to a queue of its own (:mod:`jumpmq.topology.delays`), which sends it back when it
is due; the header is negative by then, so that it is not delayed again.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.queues.delays import delay_of
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange, Split, string_argument

T = TypeVar("T")

TYPE = "x-delayed-message"
DELAYED_TYPE = "x-delayed-type"
"""The argument that names the type of exchange to route as."""


class DelayedMessageExchange(Exchange):
    """What an exchange of any type is beside that, where it delays messages.

    Attributes:
        delayed_queue: returns the queue of what is delayed; None where it is lost.
    """

    type = TYPE
    delayed_queue: Callable[[], Destination | None]

    def split(self, messages: list[Message]) -> Split[Message]:
        return self._split_delayed(messages, _itself, super().split)

    def split_envelopes(self, envelopes: list[Envelope]) -> Split[Envelope]:
        return self._split_delayed(envelopes, _message_of, super().split_envelopes)

    def preview(self, messages: list[Message]) -> Split[Message]:
        return self._split_delayed(messages, _itself, super().preview)

    def preview_envelopes(self, envelopes: list[Envelope]) -> Split[Envelope]:
        return self._split_delayed(envelopes, _message_of, super().preview_envelopes)

    def count(self, messages: list[Message]) -> None:
        super().count([message for message in messages if not delay_of(message)])

    def _split_delayed(
        self, items: list[T], message_of: Callable[[T], Message], split: Callable[[list[T]], Split[T]]
    ) -> Split[T]:
        later = [item for item in items if delay_of(message_of(item))]
        if not later or (queue := self.delayed_queue()) is None:
            return split(items)
        now = [item for item in items if not delay_of(message_of(item))]
        groups, missed = split(now) if now else ({}, now)
        return {**groups, queue: later}, missed


def _itself(message: Message) -> Message:
    return message


def _message_of(envelope: Envelope) -> Message:
    return envelope.message


def delayed_type(definition: ExchangeDefinition) -> str:
    """The type of exchange that a delayed message exchange routes as.

    Raises:
        PreconditionFailed: the argument is missing, or names this type itself.
    """
    named = string_argument(definition, DELAYED_TYPE)
    if named is None or named == TYPE:
        raise PreconditionFailed(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")
    return named


@cache
def delaying(kind: type[Exchange]) -> type[Exchange]:
    """The class of exchanges that delay messages, and else are of a type."""

    class Delaying(DelayedMessageExchange, kind):  # type: ignore[misc, valid-type]
        type = TYPE
        compared_arguments = (*kind.compared_arguments, DELAYED_TYPE)
        kept_by_twins = kind.kept_by_twins | {"delayed_queue"}

        def __init__(self, definition: ExchangeDefinition) -> None:
            super().__init__(definition)
            self.feeds_remote = 1  # the queue may be at another home

    Delaying.__name__ = Delaying.__qualname__ = f"Delayed{kind.__name__}"
    return Delaying
