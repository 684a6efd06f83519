"""The modulus hash exchange, RabbitMQ sharding's ``x-modulus-hash``: hash of the routing keys modulo the destinations.

Destinations are counted in order of kind (exchanges before queues) and name, so that the decision does not depend on
the order of binding. The binding key is ignored.
"""

from collections.abc import Iterable, Mapping

from jumpmq.amqp.messages import Message, routing_keys
from jumpmq.hashing import moduli, modulus
from jumpmq.queues.runs import by_destination
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange, Split
from jumpmq.topology.exchanges.ordered_scaling import ordered_scaling, require_fenceable
from jumpmq.topology.exchanges.placement import ModulusPlacement, Placement


class ModulusHashExchange(Exchange):
    """Every change of the number of destinations moves nearly all keys: see ``x-consistent-hash``."""

    type = "x-modulus-hash"
    compared_arguments = (*Exchange.compared_arguments, "ordered-scaling")

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self.ordered = ordered_scaling(definition)
        self._bound = BoundDestinations()
        self._sorted: list[Destination] | None = None

    def check(self, binding: Binding, queue_type: str | None) -> None:
        require_fenceable(self, binding, queue_type)

    def placement(self) -> Placement:
        return ModulusPlacement(self.names)

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
        """The destinations as they are counted; an exchange among them is called ``exchange:NAME``."""
        return [f"exchange:{one.name}" if isinstance(one, Exchange) else one.name for one in self._order()]

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        order = self._order()
        return (order[modulus(envelope.keys, len(order))],) if order else ()

    def split(self, messages: list[Message]) -> Split[Message]:
        order = self._order()
        if not order:
            return {}, messages
        places = moduli(routing_keys(messages), len(order))
        return by_destination(messages, places, order), []

    def _order(self) -> list[Destination]:
        if self._sorted is None:
            self._sorted = sorted(self._bound, key=_place)
        return self._sorted


def _place(destination: Destination) -> tuple[bool, bytes]:
    return not isinstance(destination, Exchange), destination.name.encode()
