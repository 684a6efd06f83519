"""What may be declared, deleted and bound in a virtual host: rules, order of checks and texts are RabbitMQ 3.10's."""

from collections.abc import Callable

from jumpmq.amqp.errors import AccessRefused, PreconditionFailed
from jumpmq.queues import Queue
from jumpmq.topology import equivalence
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import Bind, DeclareExchange, DeclareQueue, DeleteExchange, DeleteQueue, Unbind
from jumpmq.topology.exchanges import Exchange, exchange_type
from jumpmq.topology.queue_arguments import check_arguments
from jumpmq.topology.vhost import VirtualHost

RESERVED_PREFIX = "amq."


def passive_exchange(vhost: VirtualHost, name: str) -> Exchange:
    """The exchange that a passive declaration asks for.

    Raises:
        AccessRefused: the default exchange cannot be declared, even so.
        NotFound: there is none.
    """
    _refuse_default_exchange(name)
    return vhost.exchange(name)


def declare_exchange(vhost: VirtualHost, change: DeclareExchange) -> Exchange:
    """Add an exchange, or return the equivalent one that is there.

    Raises:
        CommandInvalid: unknown type.
        AccessRefused: the default exchange, or a reserved name.
        PreconditionFailed: another declaration than the existing one's, or arguments the type does not take.
    """
    _refuse_default_exchange(change.name)
    exchange_type(change.type)
    current = vhost.exchanges.get(change.name)
    if current is not None:
        equivalence.check_exchange(current, change)
        return current
    _refuse_reserved("exchange", change.name)
    exchange = vhost.insert_exchange(change)
    vhost.records.put_exchange(exchange)
    return exchange


def delete_exchange(vhost: VirtualHost, change: DeleteExchange) -> None:
    """Delete an exchange and the bindings from and to it.

    Raises:
        AccessRefused: a predeclared exchange.
        PreconditionFailed: it is in use.
    """
    _refuse_default_exchange(change.name)
    subject = f"exchange '{change.name}' in vhost '{vhost.name}'"
    if change.name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"deletion of system {subject} not allowed")
    exchange = vhost.exchanges.get(change.name)
    if exchange is None:
        return
    if change.if_unused and exchange.bindings:
        raise PreconditionFailed(f"{subject} in use")
    vhost.remove_exchange(exchange)


def declare_queue(vhost: VirtualHost, change: DeclareQueue, make_queue: Callable[[DeclareQueue], Queue]) -> Queue:
    """Add a queue, or return the equivalent one that is there.

    Raises:
        AccessRefused: a reserved name.
        PreconditionFailed: another declaration than the existing one's, or arguments no queue takes.
        ResourceLocked: the existing one is exclusive, and this is not its owner's same declaration, or vice versa.
    """
    current = vhost.queues.get(change.name)
    if current is not None:
        if current.exclusive != change.exclusive or (current.exclusive and current.owner != change.connection):
            raise vhost.locked(change.name)
        equivalence.check_queue(vhost.declared(current), change)
        return current
    if not change.server_named:
        _refuse_reserved("queue", change.name)
    check_arguments(change)
    queue = make_queue(change)
    vhost.insert_queue(queue, change)
    vhost.records.put_queue(queue, change)
    return queue


def delete_queue(vhost: VirtualHost, change: DeleteQueue) -> int:
    """Delete a queue and the bindings to it; returns how many messages were ready.

    Raises:
        PreconditionFailed: it is in use, or not empty.
        ResourceLocked: it belongs to another connection exclusively.
    """
    if change.name not in vhost.queues:
        return 0
    queue = vhost.queue(change.name, change.connection)
    if change.if_unused and queue.consumers:
        raise PreconditionFailed(f"queue '{change.name}' in vhost '{vhost.name}' in use")
    if change.if_empty and queue.ready_count:
        raise PreconditionFailed(f"queue '{change.name}' in vhost '{vhost.name}' not empty")
    return vhost.remove_queue(queue)


def bind(vhost: VirtualHost, change: Bind) -> None:
    """Add a binding; nothing changes where it exists.

    Raises:
        AccessRefused: the default exchange.
        NotFound: there is no such exchange or queue.
        PreconditionFailed: the exchange's type does not take this binding.
        ResourceLocked: the queue belongs to another connection exclusively.
    """
    binding = change.binding
    _refuse_default_exchanges(binding)
    source = vhost.exchange(binding.source)
    destination = vhost.destination(binding, change.connection)
    source.check(binding)
    if binding not in source.bindings:
        vhost.insert_binding(binding)
        vhost.records.put_binding(source, binding, destination)


def unbind(vhost: VirtualHost, change: Unbind) -> None:
    """Remove a binding; nothing changes where there is none.

    Raises:
        AccessRefused: the default exchange.
        ResourceLocked: the queue belongs to another connection exclusively.
    """
    binding = change.binding
    _refuse_default_exchanges(binding)
    source = vhost.exchanges.get(binding.source)
    if source is not None and binding in source.bindings:
        vhost.destination(binding, change.connection)
        vhost.remove_binding(binding)


def _refuse_default_exchanges(binding: Binding) -> None:
    _refuse_default_exchange(binding.source)
    if binding.kind == "exchange":
        _refuse_default_exchange(binding.destination)


def _refuse_default_exchange(name: str) -> None:
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def _refuse_reserved(kind: str, name: str) -> None:
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
