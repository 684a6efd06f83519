"""The modulus hash exchange, RabbitMQ's ``x-modulus-hash``, routes by the routing keys' hash modulo the destinations.

Destinations are numbered in order of kind (exchanges before queues) and name, so the order of binding does not matter.
The binding key is ignored. The declare argument ``hash-header`` or ``hash-property`` names a header or property to hash
instead of the routing keys; RabbitMQ ignores both arguments.

The declare argument ``hash-function``, also ignored by RabbitMQ, names another hash. ``murmur2`` decides like Kafka's
partitioner, and ``murmur3`` like RabbitMQ's clients for super streams. This holds if destination N is the topic's or
super stream's partition N: :func:`jumpmq.hashing.functions.modulus_place` numbers destinations accordingly. All
functions except ``phash2`` hash the routing key alone, without the keys in the headers CC and BCC.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar

from jumpmq.amqp.messages import Message, routing_keys
from jumpmq.hashing import moduli, modulus
from jumpmq.hashing.functions import NUMBERS, modulus_place
from jumpmq.queues.runs import by_destination
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange, Previewed, Split
from jumpmq.topology.exchanges.hashed import hash_function, hashed
from jumpmq.topology.exchanges.ordered_scaling import ordered_scaling, require_fenceable
from jumpmq.topology.exchanges.placement import ModulusPlacement, octets_of

T = TypeVar("T")


class ModulusHashExchange(Exchange):
    """Routes by hash modulo the number of destinations.

    A change of that number moves nearly all keys to other destinations; ``x-consistent-hash`` moves few.

    Attributes:
        hashed: the value hashed instead of the routing keys: ``("header", NAME)`` or ``("property", NAME)``.
        missing_count: messages without the hashed header or property, since the broker started.
        function: the hash function.
    """

    type = "x-modulus-hash"
    compared_arguments = (*Exchange.compared_arguments, "hash-function", "ordered-scaling")
    kept_on_replacement = Exchange.kept_on_replacement | {"missing_count"}

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self.hashed = hashed(definition)
        self.function = hash_function(definition)
        self.missing_count = 0
        self.ordered = ordered_scaling(definition)
        self._bound = BoundDestinations()
        self._sorted: list[Destination] | None = None

    def check(self, binding: Binding, queue_type: str | None) -> None:
        require_fenceable(self, binding, queue_type)

    def placement(self) -> ModulusPlacement:
        return ModulusPlacement(self.hashed, self.names, self.function)

    def placed(self) -> Mapping[str, Destination]:
        return dict(zip(self.names, self._order(), strict=True))

    def added(self, binding: Binding, destination: Destination) -> None:
        self._bound.add(destination)
        self._sorted = None

    def removed(self, binding: Binding, destination: Destination) -> None:
        self._bound.remove(destination)
        self._sorted = None

    @property
    def names(self) -> list[str]:
        """The destinations in the order of their numbers; exchanges are called ``exchange:NAME``."""
        return [_label(one) for one in self._order()]

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        if self.hashed is not None:
            return self.split_envelopes([envelope])[0]
        order = self._order()
        return (order[modulus(envelope.keys, len(order), self.function)],) if order else ()

    def split(self, messages: list[Message]) -> Split[Message]:
        return _counted(self.preview(messages))

    def split_envelopes(self, envelopes: list[Envelope]) -> Split[Envelope]:
        if self.hashed is None:
            return super().split_envelopes(envelopes)
        return _counted(self.preview_envelopes(envelopes))

    def preview(self, messages: list[Message]) -> Previewed[Message]:
        return self._preview(messages, messages)

    def preview_envelopes(self, envelopes: list[Envelope]) -> Previewed[Envelope]:
        if self.hashed is None:
            return super().preview_envelopes(envelopes)
        return self._preview([envelope.message for envelope in envelopes], envelopes)

    def _preview(self, messages: list[Message], items: list[T]) -> Previewed[T]:
        order = self._order()
        if not order:
            return ({}, items), None
        keys, missing = (routing_keys(messages), 0) if self.hashed is None else octets_of(messages, self.hashed)
        groups = by_destination(items, moduli(keys, len(order), NUMBERS[self.function]), order)
        return (groups, []), partial(self._count_missing, missing) if missing else None

    def _count_missing(self, count: int) -> None:
        self.missing_count += count

    def _order(self) -> list[Destination]:
        if self._sorted is None:
            self._sorted = sorted(self._bound, key=self._place)
        return self._sorted

    def _place(self, destination: Destination) -> tuple[object, ...]:
        is_queue = not isinstance(destination, Exchange)
        return is_queue, modulus_place(destination.name, self.function)


def _counted(previewed: Previewed[T]) -> Split[T]:
    """Count the messages without a key, and return the messages by destination and the unroutable messages."""
    found, tally = previewed
    if tally is not None:
        tally()
    return found


def _label(destination: Destination) -> str:
    return f"exchange:{destination.name}" if isinstance(destination, Exchange) else destination.name
