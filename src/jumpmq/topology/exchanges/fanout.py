"""The fanout exchange: to every bound destination (AMQP 0-9-1, section 3.1.3.2)."""

from collections.abc import Iterable

from jumpmq.amqp.messages import Message
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange, Split


class FanoutExchange(Exchange):
    """The fanout exchange; binding keys are ignored."""

    type = "fanout"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._bound = BoundDestinations()

    def added(self, binding: Binding, destination: Destination) -> None:
        self._bound.add(destination)

    def removed(self, binding: Binding, destination: Destination) -> None:
        self._bound.remove(destination)

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        return self._bound

    def split(self, messages: list[Message]) -> Split[Message]:
        return dict.fromkeys(self._bound, messages), ([] if self._bound else messages)
