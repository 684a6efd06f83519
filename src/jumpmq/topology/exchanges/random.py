"""The random exchange, RabbitMQ's ``x-random``, routes each message to a random bound destination."""

import random
from collections.abc import Iterable

from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange


class RandomExchange(Exchange):
    """Ignores binding keys. Several bindings of one destination count once."""

    type = "x-random"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._bound = BoundDestinations()
        self._choices: tuple[Destination, ...] | None = None

    def added(self, binding: Binding, destination: Destination) -> None:
        self._bound.add(destination)
        self._choices = None

    def removed(self, binding: Binding, destination: Destination) -> None:
        self._bound.remove(destination)
        self._choices = None

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        if self._choices is None:
            self._choices = tuple(self._bound)
        return (random.choice(self._choices),) if self._choices else ()
