"""A virtual host: its exchanges, queues and bindings, and the rules by which they come and go.

Its changes are made by :meth:`Topology.apply` only. Texts and order of checks are RabbitMQ 3.10's.
"""

from collections.abc import Callable, Iterator

from jumpmq.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from jumpmq.amqp.messages import Message
from jumpmq.queues.classic import ClassicQueue
from jumpmq.topology import equivalence
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import DeclareExchange, DeclareQueue, DeleteExchange, DeleteQueue
from jumpmq.topology.exchanges import Destination, Exchange, exchange_type, make_exchange
from jumpmq.topology.queue_arguments import check_arguments
from jumpmq.topology.records import Records
from jumpmq.topology.routing import Routes, route

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

RESERVED_PREFIX = "amq."


class VirtualHost:
    """A name space of exchanges and queues.

    Args:
        name: such as ``/``.
        records: told of every durable change.
        make_queue: makes the queue that a checked declaration asks for.

    Attributes:
        exchanges, queues: by name.
    """

    def __init__(self, name: str, records: Records, make_queue: Callable[[DeclareQueue], ClassicQueue]) -> None:
        self.name = name
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, ClassicQueue] = {}
        self._records = records
        self._make_queue = make_queue
        self._declared: dict[ClassicQueue, DeclareQueue] = {}
        self._owned: dict[str, dict[ClassicQueue, None]] = {}
        self._bound_to: dict[Destination, dict[Binding, None]] = {}
        for exchange, kind in PREDECLARED.items():
            internal = exchange == "amq.rabbitmq.trace"
            self.insert_exchange(DeclareExchange(name, exchange, kind, durable=True, internal=internal))

    def __repr__(self) -> str:
        return f"<virtual host {self.name!r}>"

    # --- looking up ---

    def exchange(self, name: str) -> Exchange:
        """The exchange of this name.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.exchanges[name]
        except KeyError:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'") from None

    def passive_exchange(self, name: str) -> Exchange:
        """The exchange of this name, for a passive declaration.

        Raises:
            AccessRefused: the default exchange cannot be declared, even so.
            NotFound: there is none.
        """
        _refuse_default_exchange(name)
        return self.exchange(name)

    def queue(self, name: str, connection: str | None = None) -> ClassicQueue:
        """The queue of this name.

        Args:
            connection: who wants it; None may have any.

        Raises:
            NotFound: there is none.
            ResourceLocked: it belongs to another connection exclusively.
        """
        try:
            queue = self.queues[name]
        except KeyError:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'") from None
        if queue.exclusive and connection is not None and queue.owner != connection:
            raise self._locked(name)
        return queue

    def declared(self, queue: ClassicQueue) -> DeclareQueue:
        """The declaration that made a queue, with its arguments' types."""
        return self._declared[queue]

    def exclusive_queues(self, connection: str) -> list[ClassicQueue]:
        """The queues that end with a connection."""
        return list(self._owned.get(connection, ()))

    def bindings(self) -> Iterator[Binding]:
        """All bindings, exchange by exchange, those of the default exchange (one a queue) among them."""
        for exchange in self.exchanges.values():
            yield from exchange.bindings

    def bindings_to(self, destination: Destination) -> list[Binding]:
        """All bindings that lead to a queue or exchange, the oldest first."""
        return list(self._bound_to.get(destination, ()))

    # --- routing ---

    def publishable(self, name: str) -> Exchange:
        """The exchange of this name, for a client's publish.

        Raises:
            NotFound: there is none.
            AccessRefused: it is internal.
        """
        exchange = self.exchange(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{self.name}'")
        return exchange

    def route(self, exchange: str | Exchange, messages: list[Message], plain: bool = False) -> Routes:
        """Where a run of messages goes.

        BCC headers are taken out of the messages on the way.

        Args:
            exchange: a name is looked up with :meth:`publishable`.
            messages: in published order.
            plain: whether none of them has headers, which is much faster.

        Raises:
            NotFound, AccessRefused: as :meth:`publishable`.
        """
        if isinstance(exchange, str):
            exchange = self.publishable(exchange)
        return route(exchange, messages, plain, self._alternate)

    def _alternate(self, exchange: Exchange) -> Exchange | None:
        return self.exchanges.get(exchange.alternate) if exchange.alternate else None

    # --- exchanges ---

    def declare_exchange(self, declared: DeclareExchange) -> Exchange:
        """Add an exchange, or return the equivalent one that is there.

        Raises:
            CommandInvalid: unknown type.
            AccessRefused: the default exchange, or a reserved name.
            PreconditionFailed: another declaration than the existing one's, or arguments the type does not take.
        """
        _refuse_default_exchange(declared.name)
        exchange_type(declared.type)
        current = self.exchanges.get(declared.name)
        if current is not None:
            equivalence.check_exchange(current, declared)
            return current
        _refuse_reserved("exchange", declared.name)
        exchange = self.insert_exchange(declared)
        self._records.put_exchange(exchange)
        return exchange

    def delete_exchange(self, change: DeleteExchange) -> None:
        """Delete an exchange and the bindings from and to it.

        Raises:
            AccessRefused: a predeclared exchange.
            PreconditionFailed: it is in use.
        """
        _refuse_default_exchange(change.name)
        subject = f"exchange '{change.name}' in vhost '{self.name}'"
        if change.name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"deletion of system {subject} not allowed")
        exchange = self.exchanges.get(change.name)
        if exchange is None:
            return
        if change.if_unused and exchange.bindings:
            raise PreconditionFailed(f"{subject} in use")
        self._remove_exchange(exchange)

    def insert_exchange(self, declared: DeclareExchange) -> Exchange:
        """Add an exchange that no rule forbids, without a record.

        Raises:
            CommandInvalid, PreconditionFailed: as :func:`make_exchange`.
        """
        exchange = self.exchanges[declared.name] = make_exchange(declared)
        return exchange

    def _remove_exchange(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        for binding in list(exchange.bindings):
            self._take_binding(exchange, binding)
        self._remove_bindings_to(exchange)
        self._records.delete_exchange(exchange)

    # --- queues ---

    def declare_queue(self, declared: DeclareQueue) -> ClassicQueue:
        """Add a queue, or return the equivalent one that is there.

        Raises:
            AccessRefused: a reserved name.
            PreconditionFailed: another declaration than the existing one's, or arguments no queue takes.
            ResourceLocked: the existing one is exclusive, and this is not its owner's same declaration, or vice versa.
        """
        current = self.queues.get(declared.name)
        if current is not None:
            if current.exclusive != declared.exclusive or (current.exclusive and current.owner != declared.connection):
                raise self._locked(declared.name)
            equivalence.check_queue(self._declared[current], declared)
            return current
        if not declared.server_named:
            _refuse_reserved("queue", declared.name)
        check_arguments(declared)
        queue = self.insert_queue(self._make_queue(declared), declared)
        self._records.put_queue(queue, declared)
        return queue

    def delete_queue(self, change: DeleteQueue) -> int:
        """Delete a queue and the bindings to it; returns how many messages were ready.

        Raises:
            PreconditionFailed: it is in use, or not empty.
            ResourceLocked: it belongs to another connection exclusively.
        """
        if change.name not in self.queues:
            return 0
        queue = self.queue(change.name, change.connection)
        if change.if_unused and queue.consumers:
            raise PreconditionFailed(f"queue '{change.name}' in vhost '{self.name}' in use")
        if change.if_empty and queue.ready_count:
            raise PreconditionFailed(f"queue '{change.name}' in vhost '{self.name}' not empty")
        return self._remove_queue(queue)

    def insert_queue(self, queue: ClassicQueue, declared: DeclareQueue) -> ClassicQueue:
        """Add a queue that no rule forbids, without a record."""
        self.queues[queue.name] = queue
        self._declared[queue] = declared
        if queue.exclusive and declared.connection is not None:
            self._owned.setdefault(declared.connection, {})[queue] = None
        self.insert_binding(_default_binding(queue))
        return queue

    def _remove_queue(self, queue: ClassicQueue) -> int:
        del self.queues[queue.name]
        connection = self._declared.pop(queue).connection
        if connection in self._owned:
            self._owned[connection].pop(queue, None)
            if not self._owned[connection]:
                del self._owned[connection]
        self._remove_bindings_to(queue)
        self._records.delete_queue(queue)
        return queue.delete()

    def _locked(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. It could be originally "
            "declared on another connection or the exclusive property value does not match that of the original "
            "declaration."
        )

    # --- bindings ---

    def bind(self, binding: Binding, connection: str | None = None) -> None:
        """Add a binding; nothing changes where it exists.

        Raises:
            AccessRefused: the default exchange.
            NotFound: there is no such exchange or queue.
            PreconditionFailed: the exchange's type does not take this binding.
            ResourceLocked: the queue belongs to another connection exclusively.
        """
        self._refuse_default_exchanges(binding)
        source = self.exchange(binding.source)
        destination = self._destination(binding, connection)
        source.check(binding)
        if binding not in source.bindings:
            self.insert_binding(binding)
            self._records.put_binding(source, binding, destination)

    def unbind(self, binding: Binding, connection: str | None = None) -> None:
        """Remove a binding; nothing changes where there is none.

        Raises:
            AccessRefused: the default exchange.
            ResourceLocked: the queue belongs to another connection exclusively.
        """
        self._refuse_default_exchanges(binding)
        source = self.exchanges.get(binding.source)
        if source is not None and binding in source.bindings:
            self._destination(binding, connection)
            self._remove_binding(binding)

    def insert_binding(self, binding: Binding) -> None:
        """Add a binding that no rule forbids, without a record."""
        destination = self._destination(binding, None)
        self.exchanges[binding.source].bind(binding, destination)
        self._bound_to.setdefault(destination, {})[binding] = None

    def _destination(self, binding: Binding, connection: str | None) -> Destination:
        if binding.kind == "exchange":
            return self.exchange(binding.destination)
        return self.queue(binding.destination, connection)

    def _remove_bindings_to(self, destination: Destination) -> None:
        for binding in self.bindings_to(destination):
            self._remove_binding(binding)

    def _remove_binding(self, binding: Binding) -> None:
        """Remove a binding, and the exchange that loses its last one if it is to be deleted automatically."""
        source = self.exchanges[binding.source]
        self._take_binding(source, binding)
        if source.auto_delete and not source.bindings:
            self._remove_exchange(source)

    def _take_binding(self, source: Exchange, binding: Binding) -> None:
        destination = source.bindings[binding]
        source.unbind(binding)
        del self._bound_to[destination][binding]
        if not self._bound_to[destination]:
            del self._bound_to[destination]
        if source.name:
            self._records.delete_binding(source, binding, destination)

    @staticmethod
    def _refuse_default_exchanges(binding: Binding) -> None:
        _refuse_default_exchange(binding.source)
        if binding.kind == "exchange":
            _refuse_default_exchange(binding.destination)

    # --- the end ---

    def clear(self) -> None:
        """Delete everything that is in it."""
        for queue in list(self.queues.values()):
            self._remove_queue(queue)
        for exchange in list(self.exchanges.values()):
            if exchange.name in self.exchanges:
                self._remove_exchange(exchange)


def _default_binding(queue: ClassicQueue) -> Binding:
    """What makes the default exchange route to a queue by its name."""
    return Binding("", "queue", queue.name, queue.name.encode())


def _refuse_default_exchange(name: str) -> None:
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def _refuse_reserved(kind: str, name: str) -> None:
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
