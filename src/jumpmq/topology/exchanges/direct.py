"""The direct exchange: to every destination bound with the message's routing key (AMQP 0-9-1, section 3.1.3.1)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Self

from jumpmq.amqp.messages import Message
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange, Split, split


class DirectExchange(Exchange):
    """The direct exchange, and the default exchange, with a binding of every queue by its name."""

    type = "direct"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        # By routing key. Most keys have one binding, and a dict of one takes three times the memory of a tuple.
        self._bound: dict[bytes, tuple[Destination] | BoundDestinations] = {}

    def added(self, binding: Binding, destination: Destination) -> None:
        bound = self._bound.get(binding.key)
        if bound is None:
            self._bound[binding.key] = (destination,)
            return
        if isinstance(bound, tuple):
            (first,) = bound
            self._bound[binding.key] = bound = BoundDestinations()
            bound.add(first)
        bound.add(destination)

    def removed(self, binding: Binding, destination: Destination) -> None:
        bound = self._bound[binding.key]
        if isinstance(bound, BoundDestinations):
            bound.remove(destination)
            if bound:
                return
        del self._bound[binding.key]
        if not self._bound:  # an emptied table would keep its size
            self._bound.clear()

    def merge(self, other: Self) -> None:
        """Add the bindings of a second direct exchange with disjoint routing keys: in one step, for any number of
        bindings."""
        self.bindings |= other.bindings
        self.fed_further += other.fed_further
        self.feeds_remote += other.feeds_remote
        self._bound |= other._bound

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        keys = envelope.keys
        if len(keys) == 1:
            return self._bound.get(keys[0], ())
        return dict.fromkeys(destination for key in keys for destination in self._bound.get(key, ()))

    def split(self, messages: list[Message]) -> Split[Message]:
        by_key: defaultdict[bytes, list[Message]] = defaultdict(list)
        for message in messages:
            by_key[message.routing_key].append(message)
        groups: dict[Destination, list[Message]] = {}
        for key, group in by_key.items():
            for destination in self._bound.get(key, ()):
                if destination in groups:  # bound by two keys: messages keep the published order
                    return split(messages, lambda message: self._bound.get(message.routing_key, ()))
                groups[destination] = group
        return groups, [message for message in messages if message.routing_key not in self._bound]
