"""A virtual host: exchanges, queues, bindings and their relations, and routing.

The permitted operations, with their conditions, are in :mod:`jumpmq.topology.changes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from jumpmq.amqp.errors import AccessRefused, NotFound, ResourceLocked
from jumpmq.amqp.messages import Message
from jumpmq.queues import Queue
from jumpmq.topology.bindings import Binding
from jumpmq.topology.coming import Coming, default_binding
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.exchanges import Destination, DirectExchange, Exchange, make_exchange
from jumpmq.topology.exchanges.holding import HoldingExchange
from jumpmq.topology.exchanges.placement import Placement
from jumpmq.topology.grouped import discard
from jumpmq.topology.holdings import Holdings
from jumpmq.topology.in_force import PoliciesInForce
from jumpmq.topology.policies import Policies
from jumpmq.topology.records import Records
from jumpmq.topology.routing import Routes, preview, route
from jumpmq.topology.shard_table import ShardTable
from jumpmq.topology.tally import DeletedCounts

PREDECLARED = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.rabbitmq.trace": "topic",
    "amq.topic": "topic",
}
"""The exchanges of every virtual host, all durable."""


def default_description(name: str) -> str:
    """Return the default description of a virtual host."""
    return "Default virtual host" if name == "/" else ""


class Before(NamedTuple):
    """The state of an exchange before a change."""

    placement: Placement
    destinations: Mapping[str, Destination]


class AwaitedRingChanges(Protocol):
    """Ring changes awaited by queues; see :class:`~jumpmq.topology.fences.Fences`."""

    def before(self, exchange: Exchange) -> Before | None: ...
    def after(self, exchange: Exchange, before: Before) -> None: ...
    def passed(self, exchange: Exchange) -> None: ...
    def changed(self, exchange: Exchange) -> None: ...


class VirtualHost:
    """A name space of exchanges and queues.

    Methods ``insert_...`` add objects that the rules allow or the records have. Methods ``remove_...`` remove objects
    with all dependent objects, from the records, too: only this class knows the dependencies.

    Args:
        name: name, such as ``/``.
        records: the records of durable definitions.
        holdings: counts of objects made by users.
        fences: notified of changes of exchanges' rings; None if queues never wait for other queues.

    Attributes:
        exchanges: by name.
        declared: all queues, by name.
        queues: contents of queues at this home, by name.
        departed: local parts of queues that are moving to another home, by name.
        default_queue_type: type of durable queues declared without one.
        description, tags: texts for operators.
        home: number of the home that serves the clients; 0 for any.
        tracing: whether what is published and delivered is copied to `amq.rabbitmq.trace`; not kept over a restart.
        policies: its policies and operator policies.
        in_force: of these, what is in force for each queue and exchange.
        shards: its queues that are named as shards of an exchange.
        binding_count: bindings, without those of the default exchange.
        past: what was counted of channels and queues that are gone.
        limits: the limits that are set (:data:`jumpmq.topology.limits.VIRTUAL_HOST_LIMITS`).
    """

    def __init__(
        self, name: str, records: Records, holdings: Holdings, fences: AwaitedRingChanges | None = None
    ) -> None:
        self.name = name
        self.fences = fences
        self.default_queue_type: str | None = None
        self.description = default_description(name)
        self.tags: tuple[str, ...] = ()
        self.home = 0
        self.tracing = False
        self.records = records
        self._holdings = holdings  # number of objects per user
        self.exchanges: dict[str, Exchange] = {}
        self.declared: dict[str, DeclaredQueue] = {}
        self.queues: dict[str, Queue] = {}
        self.departed: dict[str, Queue] = {}
        self.policies = Policies()
        self.limits: dict[str, int] = {}
        self.past = DeletedCounts()
        self.binding_count = 0
        self.shards = ShardTable()
        self.in_force = PoliciesInForce(self)
        self._owned: dict[str, dict[DeclaredQueue, None]] = {}  # exclusive queues by owning connection
        # Bindings by destination, with their creators; without those of the default exchange, which every queue has.
        self._bound_to: dict[Destination, dict[Binding, str]] = {}
        for exchange, kind in PREDECLARED.items():
            internal = exchange == "amq.rabbitmq.trace"
            self.insert_exchange(ExchangeDefinition(name, exchange, kind, durable=True, internal=internal))

    def __repr__(self) -> str:
        return f"<virtual host {self.name!r}>"

    # --- looking up ---

    def exchange(self, name: str) -> Exchange:
        """Return an exchange by name.

        Raises:
            NotFound: there is no such exchange.
        """
        try:
            return self.exchanges[name]
        except KeyError:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'") from None

    def queue(self, name: str, connection: str | None = None) -> Queue:
        """Return the contents of a queue by name. A departing queue is served here until all homes know its new home.

        Args:
            connection: identity of the requesting connection; None may use every queue.

        Raises:
            NotFound: the queue does not exist, or belongs to another home.
            ResourceLocked: another connection owns the queue.
        """
        try:
            queue = self.queues[name]
        except KeyError:
            declared = self.declared_queue(name, connection)
            if (departed := self.departed.get(name)) is not None and not departed.moved:
                return departed
            raise NotFound(f"queue '{name}' in vhost '{self.name}' is at home {declared.definition.home}") from None
        if queue.exclusive and connection is not None and queue.owner != connection:
            raise self.locked(name)
        return queue

    def declared_queue(self, name: str, connection: str | None = None) -> DeclaredQueue:
        """Return a declared queue by name, local or remote.

        Raises:
            NotFound, ResourceLocked: as :meth:`queue`.
        """
        try:
            declared = self.declared[name]
        except KeyError:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'") from None
        if declared.exclusive and connection is not None and declared.owner != connection:
            raise self.locked(name)
        return declared

    def destination(self, binding: Binding, connection: str | None = None) -> Destination:
        """Return the destination of a binding.

        Raises:
            NotFound, ResourceLocked: as :meth:`exchange` and :meth:`queue`.
        """
        if binding.kind == "exchange":
            return self.exchange(binding.destination)
        return self.declared_queue(binding.destination, connection).destination

    def definition(self, queue: Queue) -> QueueDefinition:
        """Return the definition of a queue, with typed arguments."""
        return self.declared[queue.name].definition

    def queue_definition(self, name: str) -> QueueDefinition | None:
        """Return the definition of a queue by name; None if it does not exist."""
        declared = self.declared.get(name)
        return None if declared is None else declared.definition

    def queue_definitions(self) -> list[QueueDefinition]:
        """Return the definitions of all present queues."""
        return [declared.definition for declared in self.declared.values()]

    def queues_of(self, home: int) -> list[DeclaredQueue]:
        """Return the queues of a home."""
        return [declared for declared in self.declared.values() if declared.definition.home == home]

    def ended_with(self, home: int) -> list[DeclaredQueue]:
        """Return the queues of a home that end with the home's process."""
        return [declared for declared in self.queues_of(home) if not declared.definition.is_kept]

    def exclusive_queues(self, connection: str) -> list[DeclaredQueue]:
        """Return the exclusive queues of a connection."""
        return list(self._owned.get(connection, ()))

    def bindings(self) -> Iterator[Binding]:
        """Yield all bindings by exchange, including the default exchange's (one per queue)."""
        for exchange in self.exchanges.values():
            yield from exchange.bindings

    def bindings_to(self, destination: Destination) -> list[Binding]:
        """Return all bindings to a queue or exchange, oldest first."""
        bound = list(self._bound_to.get(destination, ()))
        if not isinstance(destination, Exchange) and (default := self.exchanges.get("")) is not None:
            binding = default_binding(destination.name)
            if binding in default.bindings:
                bound.insert(0, binding)
        return bound

    def binder(self, source: Exchange, binding: Binding) -> str:
        """Return the user who made a binding; "" for none, as with the default exchange."""
        return self._bound_to[source.bindings[binding]][binding] if source.name else ""

    def locked(self, name: str) -> ResourceLocked:
        """Return the error for access to an exclusive queue."""
        return ResourceLocked(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. It could be originally "
            "declared on another connection or the exclusive property value does not match that of the original "
            "declaration."
        )

    # --- routing ---

    def publishable(self, name: str) -> Exchange:
        """Return an exchange by name, for a client's publish.

        Raises:
            NotFound: there is no such exchange.
                AccessRefused: the exchange is internal.
        """
        exchange = self.exchange(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{self.name}'")
        return exchange

    def route(self, exchange: str | Exchange, messages: list[Message], plain: bool = False) -> Routes:
        """Route a published run of messages; they are unchanged until pushed.

        Args:
            exchange: a name is looked up with :meth:`publishable`.
            messages: in published order.
            plain: True if no message has headers, which is much faster.

        Raises:
            NotFound, AccessRefused: as :meth:`publishable`.
        """
        if isinstance(exchange, str):
            exchange = self.publishable(exchange)
        return route(exchange, messages, plain, self._alternate)

    def preview(self, exchange: str | Exchange, messages: list[Message], plain: bool = False) -> Routes:
        """As :meth:`route`, for messages that may not be published: nothing is counted."""
        if isinstance(exchange, str):
            exchange = self.publishable(exchange)
        return preview(exchange, messages, plain, self._alternate)

    def _alternate(self, exchange: Exchange) -> Exchange | None:
        return self.exchanges.get(exchange.alternate) if exchange.alternate else None

    # --- exchanges ---

    def insert_exchange(self, definition: ExchangeDefinition) -> Exchange:
        """Add an exchange.

        Raises:
            PreconditionFailed: as :func:`make_exchange`.
        """
        exchange = make_exchange(definition)
        self.add_exchange(exchange)
        return exchange

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange without bindings."""
        self.exchanges[exchange.name] = exchange
        if isinstance(exchange, HoldingExchange):
            exchange.held_queue = partial(self._held_queue, exchange.queue_name)
        self.in_force.follow_exchange(exchange)
        self.in_force.follow_shards(exchange.name)

    def _held_queue(self, name: str) -> Destination | None:
        declared = self.declared.get(name)
        return None if declared is None else declared.destination

    def removing_exchange(self, exchange: Exchange) -> Iterator[None]:
        """As :meth:`remove_exchange`, one binding per step; the last step removes the exchange."""
        for binding in list(exchange.bindings):
            self._take_binding(exchange, binding)
            yield
        yield from self.removing_bindings_to(exchange)
        if self.exchanges.get(exchange.name) is exchange:  # otherwise deleted automatically with its last binding
            self.remove_exchange(exchange)

    def remove_exchange(self, exchange: Exchange) -> None:
        """Remove an exchange, with the bindings from and to it."""
        del self.exchanges[exchange.name]
        self.in_force.forget(exchange)
        for binding in list(exchange.bindings):
            self._take_binding(exchange, binding)
        self._remove_bindings_to(exchange)
        if isinstance(exchange, HoldingExchange):
            declared = self.declared.get(exchange.queue_name)
            if declared is not None:
                self.remove_queue(declared)
        self.records.delete_exchange(exchange)
        self.in_force.follow_shards(exchange.name)

    # --- queues ---

    def insert_queue(self, declared: DeclaredQueue) -> None:
        """Add a queue, with its binding to the default exchange."""
        in_force = self.in_force.prepare_queue(declared, self.policies)
        definition = declared.definition
        self.declared[declared.name] = declared
        if declared.contents is not None:
            self.queues[declared.name] = declared.contents
        self._holdings.add(definition.user, "queue")
        self._holdings.queues_by_home[definition.home] += 1
        if declared.owner is not None:
            self._owned.setdefault(declared.owner, {})[declared] = None
        self.shards.add(declared)
        self.in_force.hold(declared.destination, in_force)
        if not declared.is_internal:
            self.insert_binding(default_binding(declared.name))

    def remove_queue(self, declared: DeclaredQueue) -> None:
        """Remove a queue, including messages and bindings."""
        self.take_queue(declared)
        if declared.contents is not None:
            declared.contents.delete()

    def take_queue(self, declared: DeclaredQueue) -> None:
        """Remove a queue and all bindings of the queue, but keep the messages."""
        definition = declared.definition
        del self.declared[declared.name]
        if declared.contents is not None:
            self.past.add_queue(self.queues.pop(declared.name))
        self.in_force.forget(declared.destination)
        self._holdings.remove(definition.user, "queue")
        self._holdings.queues_by_home[definition.home] -= 1
        if declared.owner is not None:
            discard(self._owned, declared.owner, declared)
        self.shards.remove(declared)
        self._remove_bindings_to(declared.destination)
        if not self.declared:  # an emptied table would keep its size
            self.declared.clear()
            self.queues.clear()
        self.records.delete_queue(definition)

    def replace_queue(self, old: DeclaredQueue, new: DeclaredQueue) -> None:
        """Replace a queue by one with equal name and bindings at a new home."""
        self.in_force.forget(old.destination)
        in_force = self.in_force.prepare_queue(new, self.policies)
        self.declared[new.name] = new
        if old.contents is not None:
            self.departed[old.name] = self.queues.pop(old.name)
        if new.contents is not None:
            self.queues[new.name] = new.contents
        self._holdings.queues_by_home[old.definition.home] -= 1
        self._holdings.queues_by_home[new.definition.home] += 1
        self.shards.add(new)
        self.in_force.hold(new.destination, in_force)
        by_source: dict[str, list[Binding]] = {}
        for binding in self.bindings_to(old.destination):
            by_source.setdefault(binding.source, []).append(binding)
        if (bound := self._bound_to.pop(old.destination, None)) is not None:
            self._bound_to[new.destination] = bound
        for source, bindings in by_source.items():
            self.exchanges[source].lead(bindings, new.destination)

    def follow_home(self, home: int, node: str) -> None:
        """Note the new node of a home."""
        for declared in self.declared.values():
            if declared.definition.home == home and declared.contents is not None:
                declared.contents.node = node

    # --- bindings ---

    def insert_binding(self, binding: Binding, user: str = "") -> None:
        """Add a binding between existing objects, made by a user."""
        source, destination = self.exchanges[binding.source], self.destination(binding)
        with self.in_order(source):
            source.bind(binding, destination)
        self._note_binding(source, binding, destination, user)

    def _note_binding(self, source: Exchange, binding: Binding, destination: Destination, user: str) -> None:
        if source.name:
            self._bound_to.setdefault(destination, {})[binding] = user
            self._holdings.add(user, "binding")
            self.binding_count += 1

    def remove_binding(self, binding: Binding) -> None:
        """Remove a binding, and an auto-delete exchange with its last binding."""
        source = self.exchanges[binding.source]
        self._take_binding(source, binding)
        if source.auto_delete and not source.bindings:
            self.remove_exchange(source)

    def removing_bindings_to(self, destination: Destination) -> Iterator[None]:
        """Remove the bindings to a queue or exchange, one per step. The remaining bindings route meanwhile, as in
        RabbitMQ.
        """
        for binding in self.bindings_to(destination):
            self.remove_binding(binding)
            yield

    def _remove_bindings_to(self, destination: Destination) -> None:
        for _ in self.removing_bindings_to(destination):
            pass

    def _take_binding(self, source: Exchange, binding: Binding) -> None:
        destination = source.bindings[binding]
        with self.in_order(source):
            source.unbind(binding)
        self._forget_binding(source, binding, destination)
        if source.name:
            self.records.delete_binding(source, binding, destination)

    def _forget_binding(self, source: Exchange, binding: Binding, destination: Destination) -> None:
        if source.name:
            self._holdings.remove(self._bound_to[destination][binding], "binding")
            discard(self._bound_to, destination, binding)
            self.binding_count -= 1

    @contextmanager
    def in_order(self, *exchanges: Exchange) -> Iterator[None]:
        """Change bindings of exchanges within the block. On ordered exchanges, messages of moved keys then wait for
        messages in the old queues.
        """
        fences = self.fences
        # The placement that routed the present messages, before any binding changes.
        before = [(one, fences.before(one)) for one in exchanges if one.ordered and fences is not None]
        yield
        for exchange, placed in before:
            if placed is not None and fences is not None:
                fences.after(exchange, placed)
            elif fences is not None:
                fences.passed(exchange)
        if fences is not None:
            for exchange in exchanges:
                fences.changed(exchange)

    # many at once

    def binders(self, destination: Destination) -> dict[Binding, str]:
        """Return all bindings of named exchanges to a queue or exchange, oldest first, with their authors."""
        return dict(self._bound_to.get(destination, ()))

    def note_bindings(self, coming: Coming) -> None:
        """Note added and removed bindings, already applied to their exchanges."""
        self._bound_to |= coming.bound_to
        self.binding_count += coming.balance
        for user, count in coming.taken.items():
            self._holdings.remove(user, "binding", count)

    def merge(self, coming: Coming) -> None:
        """Add prepared queues with noted bindings: in one step, for any number."""
        self.declared |= coming.declared
        self._holdings.queues_by_home.update(coming.by_home)
        self.queues |= coming.contents
        self.in_force.merge(coming.in_force)
        self.shards.merge(coming.shards)
        default = self.exchanges[""]
        assert isinstance(default, DirectExchange)
        default.merge(coming.default)

    # --- the end ---

    def removing_exchanges(self) -> Iterator[None]:
        """Remove all exchanges, in steps."""
        for exchange in list(self.exchanges.values()):
            if exchange.name in self.exchanges:
                yield from self.removing_exchange(exchange)
                yield
