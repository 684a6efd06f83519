"""The consistent hash exchange, RabbitMQ's ``x-consistent-hash``: every key to one destination, by weight.

The binding key is the weight: the destination's number of buckets on the ring. The hashed value is the routing key, the
header named by the argument ``hash-header``, or the property named by ``hash-property``. A message without it is hashed
like the atom ``undefined``, so that all such messages have one destination. The hash function is RabbitMQ's, or the one
named by the argument ``hash-function``.
"""

import re
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.hashing import MAX_WEIGHT, MISSING, HashRing
from jumpmq.hashing.ring import RingRemoval
from jumpmq.queues.runs import by_destination
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange, Previewed, Split, string_argument
from jumpmq.topology.exchanges.hashed import hash_function, hashed
from jumpmq.topology.exchanges.ordered_scaling import ordered_scaling, require_fenceable
from jumpmq.topology.exchanges.placement import Placement, RingPlacement, keys_of
from jumpmq.topology.exchanges.traffic import Traffic

T = TypeVar("T")

_INTEGER = re.compile(rb"[+-]?[0-9]+")


class ConsistentHashExchange(Exchange):
    """A consistent hash exchange. Of several bindings to a destination, the oldest determines the weight.

    Attributes:
        ring: destinations by their labels (:func:`label`).
        missing_count: number of messages without the header or property, since the broker's start.
        traffic: counts keys; None without counting.
    """

    type = "x-consistent-hash"
    compared_arguments = (*Exchange.compared_arguments, "ring-removal", "hash-function", "ordered-scaling")
    kept_on_replacement = Exchange.kept_on_replacement | {"missing_count", "traffic"}

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._hashed = hashed(definition)
        self.ring = HashRing(_removal(definition), hash_function(definition))
        self.ordered = ordered_scaling(definition)
        self.missing_count = 0
        self.traffic: Traffic | None = None
        self._bindings_to: dict[Destination, list[Binding]] = {}
        self._by_label: dict[str, Destination] = {}
        self._order: list[Destination] | None = None

    def check(self, binding: Binding, queue_type: str | None) -> None:
        weight(binding.key)
        require_fenceable(self, binding, queue_type)

    def added(self, binding: Binding, destination: Destination) -> None:
        bindings = self._bindings_to.setdefault(destination, [])
        bindings.append(binding)
        if len(bindings) == 1:
            self._add(binding, destination)

    def removed(self, binding: Binding, destination: Destination) -> None:
        bindings = self._bindings_to[destination]
        before = weight(bindings[0].key)
        bindings.remove(binding)
        if bindings and weight(bindings[0].key) == before:
            return
        self._remove(destination)
        if bindings:
            self._add(bindings[0], destination)
        else:
            del self._bindings_to[destination]

    def replacement(self) -> Generator[None, None, Self]:
        replacement = yield from super().replacement()
        replacement.ring = HashRing.restore(self.ring.state())  # its history decides which keys move
        return replacement

    def lead(self, bindings: list[Binding], destination: Destination) -> None:
        ring = self.ring.state()
        super().lead(bindings, destination)
        self.ring = HashRing.restore(ring)  # no key moves
        self._order = None

    def restore_ring(self, state: dict[str, Any]) -> None:
        """Replace the ring built from bindings by a stored ring, to keep the destination of every key.

        Destinations of the stored ring without such a binding leave the ring; bound destinations missing in it join.
        """
        self.ring = HashRing.restore(state)
        self._order = None
        bound = {label(destination): weight(bindings[0].key) for destination, bindings in self._bindings_to.items()}
        for name, held in list(self.ring.destinations.items()):
            if bound.get(name) != held:
                self.ring.remove(name)
        for name, wanted in bound.items():
            if name not in self.ring:
                self.ring.add(name, wanted)

    def count_traffic(self) -> None:
        """Count keys from now on."""
        if self.traffic is None:
            self.traffic, self._order = Traffic(), None

    def placement(self) -> Placement:
        return RingPlacement(self._hashed, HashRing.restore(self.ring.state()))

    def placed(self) -> Mapping[str, Destination]:
        return dict(self._by_label)

    @property
    def hashed(self) -> tuple[str, str] | None:
        """Hashed value instead of the routing key: ``("header", NAME)`` or ``("property", NAME)``."""
        return self._hashed

    @property
    def missing_destination(self) -> str | None:
        """Label of the destination of messages without the header or property."""
        return self.ring.route(MISSING)

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        return self.split_envelopes([envelope])[0]

    def split(self, messages: list[Message]) -> Split[Message]:
        return self._split(messages, messages) if self._by_label else ({}, messages)

    def split_envelopes(self, envelopes: list[Envelope]) -> Split[Envelope]:
        if not self._by_label:
            return {}, envelopes
        return self._split([envelope.message for envelope in envelopes], envelopes)

    def preview(self, messages: list[Message]) -> Previewed[Message]:
        return self._preview(messages, messages)

    def preview_envelopes(self, envelopes: list[Envelope]) -> Previewed[Envelope]:
        return self._preview([envelope.message for envelope in envelopes], envelopes)

    def _preview(self, messages: list[Message], items: list[T]) -> Previewed[T]:
        if not self._by_label:
            return ({}, items), None
        keys, missing = keys_of(messages, self._hashed)
        order, places = self._in_order(), self.ring.route_index(keys)
        return (by_destination(items, places, order), []), partial(self._count, keys, missing, places, order)

    def _count(
        self, keys: list[bytes] | list[bytes | int], missing: int, places: list[int], order: list[Destination]
    ) -> None:
        """Count previewed keys. Their indexes refer to an order of destinations, and are looked up again if the
        order has changed.
        """
        self.missing_count += missing
        if self.traffic is None or not self._by_label:
            return
        if self._in_order() is not order:
            self._counted(self.traffic, keys, missing)
            return
        if missing:
            self.traffic.note_missing(missing)
        self.ring.count(keys, places, self.traffic.counts, MISSING if missing else None)

    def _split(self, messages: list[Message], items: list[T]) -> Split[T]:
        keys, missing = keys_of(messages, self._hashed)
        self.missing_count += missing
        order, traffic = self._in_order(), self.traffic
        places = self.ring.route_index(keys) if traffic is None else self._counted(traffic, keys, missing)
        return by_destination(items, places, order), []

    def _counted(self, traffic: Traffic, keys: list[bytes] | list[bytes | int], missing: int) -> list[int]:
        """Return the destinations of keys and count the keys; ``missing`` of them are placeholders."""
        if missing:
            traffic.note_missing(missing)
        return self.ring.route_index(keys, traffic.counts, MISSING if missing else None)

    def _in_order(self) -> list[Destination]:
        """Return the destinations in the ring's order."""
        if self._order is None:
            self._order = [self._by_label[name] for name in self.ring.names]
            if self.traffic is not None:
                self.traffic.begin(self.ring.names)
        return self._order

    def _add(self, binding: Binding, destination: Destination) -> None:
        name = label(destination)
        self._by_label[name] = destination
        self.ring.add(name, weight(binding.key))
        self._order = None

    def _remove(self, destination: Destination) -> None:
        name = label(destination)
        del self._by_label[name]
        self.ring.remove(name)
        self._order = None


def weight(binding_key: bytes) -> int:
    """Parse a binding key as weight.

    Raises:
        PreconditionFailed: the key is not an integer from 1 to ``MAX_WEIGHT``.
    """
    if not _INTEGER.fullmatch(binding_key):
        raise PreconditionFailed(f"The binding key must be an integer: {erlang.binary(binding_key)}")
    value = int(binding_key)
    if value < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    if value > MAX_WEIGHT:
        raise PreconditionFailed(f"The binding key must not be greater than {MAX_WEIGHT}")
    return value


def label(destination: Destination) -> str:
    """Return the label of a destination on the ring: a queue's name, or ``exchange:NAME``.

    A queue whose name begins like a label of another kind gets ``queue:NAME``.
    """
    if isinstance(destination, Exchange):
        return f"exchange:{destination.name}"
    if destination.name.startswith(("exchange:", "queue:")):
        return f"queue:{destination.name}"
    return destination.name


def _removal(definition: ExchangeDefinition) -> RingRemoval:
    match string_argument(definition, "ring-removal"):
        case None | "minimal":
            return "minimal"
        case "shift":
            return "shift"
        case other:
            raise PreconditionFailed(f"Unsupported ring-removal: {other}; expected minimal or shift")
