"""Base of the exchange types: declaration and bindings. Subclasses add routing."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import ClassVar, Self, TypeVar, Union

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.queues import Queue
from jumpmq.topology.bindings import Binding
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.placement import Placement

Destination = Union[Queue, DeclaredQueue, "Exchange"]
"""Target of a binding: a local queue's contents, or else the declared queue, or an exchange."""
T = TypeVar("T")
Split = tuple[dict[Destination, list[T]], list[T]]
"""Result of routing a run of messages: messages by destination, and unroutable messages.

Destinations may share a list, which must not be changed.
"""
CountLater = Callable[[], None]
"""Counts, at an exchange, a run of messages that was previewed and is published now."""
Previewed = tuple[Split[T], CountLater | None]
"""Result of routing a run of messages without counting, and a function that counts the run; None without counts."""


class Exchange(ABC):
    """An exchange of a virtual host.

    A type implements :meth:`destinations`, and :meth:`added` and :meth:`removed` to keep its own view of the bindings.
    A type that can route many messages at once also overrides :meth:`split`.

    Attributes:
        definition: the declaration.
        bindings: each binding with its destination, oldest first.
        declared_alternate: argument with the name of the alternate exchange; None without one.
        alternate: name of the alternate exchange in force, by argument or policy.
        fed_further: number of bindings to exchanges.
        feeds_remote: number of bindings to queues of other homes; one more if the exchange holds messages in a queue of
            its own, which may be at another home.
        ordered: True if messages of moved keys wait for earlier messages in the old queues.
        received: number of messages published to it since the broker's start.
        published_in, published_out: number of messages published by clients, and number of queues that got such
            messages.
    """

    type: ClassVar[str]
    compared_arguments: ClassVar[tuple[str, ...]] = ("alternate-exchange",)
    """Declaration arguments that must match in a redeclaration; as in RabbitMQ, further arguments are ignored."""
    kept_on_replacement: ClassVar[frozenset[str]] = frozenset(
        {"alternate", "ordered", "received", "published_in", "published_out"}
    )
    """Attributes that do not follow from the declaration and the bindings."""

    def __init__(self, definition: ExchangeDefinition) -> None:
        """
        Raises: PreconditionFailed: the exchange type does not accept these arguments.
        """
        self.definition = definition
        self.vhost = definition.vhost
        self.name = definition.name
        self.durable = definition.durable
        self.auto_delete = definition.auto_delete
        self.internal = definition.internal
        self.arguments = definition.arguments
        self.alternate = self.declared_alternate = string_argument(definition, "alternate-exchange")
        self.bindings: dict[Binding, Destination] = {}
        self.ordered = False
        self.fed_further = self.feeds_remote = self.received = self.published_in = self.published_out = 0

    def __repr__(self) -> str:
        return f"<{self.type} exchange {self.name!r} in vhost {self.vhost!r}>"

    def check(self, binding: Binding, queue_type: str | None) -> None:  # noqa: B027  (most types take any binding)
        """Refuse a binding unsuitable for the exchange type.

        Args:
            queue_type: kind of the destination queue; None for an exchange.

        Raises:
            PreconditionFailed: with the reason.
        """

    def bind(self, binding: Binding, destination: Destination) -> None:
        """Add a new binding accepted by :meth:`check`."""
        self.bindings[binding] = destination
        if not isinstance(destination, Queue):
            self._count_further(destination, 1)
        self.added(binding, destination)

    def unbind(self, binding: Binding) -> None:
        """Remove an existing binding."""
        destination = self.bindings.pop(binding)
        if not self.bindings:  # an emptied table would keep its size
            self.bindings.clear()
        if not isinstance(destination, Queue):
            self._count_further(destination, -1)
        self.removed(binding, destination)

    def lead(self, bindings: list[Binding], destination: Destination) -> None:
        """Redirect all existing bindings of a queue to its replacement.

        Args:
            bindings: the bindings, oldest first.
        """
        for binding in bindings:
            before = self.bindings[binding]
            if not isinstance(before, Queue):
                self._count_further(before, -1)
            self.removed(binding, before)
        for binding in bindings:
            self.bind(binding, destination)  # keeps the order of bindings

    def _count_further(self, destination: Destination, number: int) -> None:
        if isinstance(destination, Exchange):
            self.fed_further += number
        else:
            self.feeds_remote += number

    def replacement(self) -> Generator[None, None, Self]:
        """Build, step by step, an exchange with equal bindings and routing.

        Changes of bindings made there in many steps take effect together by :meth:`take_over`.
        """
        replacement = type(self)(self.definition)
        for binding, destination in self.bindings.items():
            replacement.bind(binding, destination)
            yield
        return replacement

    def take_over(self, replacement: Self) -> None:
        """Replace the bindings by those of a :meth:`replacement`, at once; counters stay."""
        for name, value in vars(replacement).items():
            if name not in self.kept_on_replacement:
                setattr(self, name, value)

    @abstractmethod
    def added(self, binding: Binding, destination: Destination) -> None:
        """Handle a new binding."""

    @abstractmethod
    def removed(self, binding: Binding, destination: Destination) -> None:
        """Handle a removed binding; further bindings to its destination may remain in ``bindings``."""

    @abstractmethod
    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        """Return the destinations of a message, without duplicates."""

    def split(self, messages: list[Message]) -> Split[Message]:
        """Route a run of messages without headers CC and BCC."""
        return split(messages, lambda message: self.destinations(Envelope(message)))

    def split_envelopes(self, envelopes: list[Envelope]) -> Split[Envelope]:
        """Route a run of messages by all routing keys and headers."""
        return split(envelopes, self.destinations)

    def preview(self, messages: list[Message]) -> Previewed[Message]:
        """As :meth:`split`, without counting: the messages may not be published."""
        return self.split(messages), None

    def preview_envelopes(self, envelopes: list[Envelope]) -> Previewed[Envelope]:
        """As :meth:`split_envelopes`, without counting."""
        return self.split_envelopes(envelopes), None

    def placement(self) -> Placement | None:
        """Return an immutable snapshot of the key placement; None if messages are not placed by key."""
        return None

    def placed(self) -> Mapping[str, Destination]:
        """Return the destinations by their names in the placement."""
        return {}


def string_argument(definition: ExchangeDefinition, name: str) -> str | None:
    """Return a declaration argument of type string; None if absent.

    Raises:
        PreconditionFailed: the argument is not a string.
    """
    field = definition.arguments.get(name)
    if field is None:
        return None
    if field.type != "S" or not isinstance(field.value, str):
        subject = f"exchange '{definition.name}' in vhost '{definition.vhost}'"
        raise PreconditionFailed(f"invalid type '{erlang.TYPE_NAMES[field.type]}' for arg '{name}' in {subject}")
    return field.value


def split(items: list[T], destinations: Callable[[T], Iterable[Destination]]) -> Split[T]:
    """Group items by destination, item by item."""
    groups: defaultdict[Destination, list[T]] = defaultdict(list)
    missed: list[T] = []
    for item in items:
        routed = False
        for destination in destinations(item):
            groups[destination].append(item)
            routed = True
        if not routed:
            missed.append(item)
    return groups, missed


class BoundDestinations(dict[Destination, int]):
    """Destinations in order of their first binding, with the number of bindings."""

    def add(self, destination: Destination) -> None:
        self[destination] = self.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        self[destination] -= 1
        if not self[destination]:
            del self[destination]
