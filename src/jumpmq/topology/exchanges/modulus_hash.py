"""The modulus hash exchange, RabbitMQ sharding's ``x-modulus-hash``: hash of the routing keys modulo the destinations.

Destinations are counted in order of kind (exchanges before queues) and name, so that the decision does not depend on
the order of binding. The binding key is ignored.
"""

from collections.abc import Iterable

from jumpmq.amqp.messages import Message
from jumpmq.hashing import moduli, modulus
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import DeclareExchange
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange, Split, gather


class ModulusHashExchange(Exchange):
    """Every change of the number of destinations moves nearly all keys: see ``x-consistent-hash``."""

    type = "x-modulus-hash"

    def __init__(self, declared: DeclareExchange) -> None:
        super().__init__(declared)
        self._bound = BoundDestinations()
        self._order: list[Destination] = []

    def added(self, binding: Binding, destination: Destination) -> None:
        self._bound.add(destination)
        self._order = sorted(self._bound, key=_place)

    def removed(self, binding: Binding, destination: Destination) -> None:
        self._bound.remove(destination)
        self._order = sorted(self._bound, key=_place)

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        if not self._order:
            return ()
        return (self._order[modulus(envelope.keys, len(self._order))],)

    def split(self, messages: list[Message]) -> Split[Message]:
        if not self._order:
            return {}, messages
        places = moduli([message.routing_key for message in messages], len(self._order))
        return gather(self._order, places, messages), []


def _place(destination: Destination) -> tuple[bool, bytes]:
    return not isinstance(destination, Exchange), destination.name.encode()
