"""Validation of declarations, deletions and bindings: rules, order of checks and texts are RabbitMQ 3.10's.

:func:`check` judges a change by the definitions alone, so that every node judges it alike. What depends on a queue's
messages and consumers is judged by :func:`queue_deletion`, at its home.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.errors import AccessRefused, NotFound, PreconditionFailed
from jumpmq.queues import DECLARABLE_TYPES, QUEUE_TYPES
from jumpmq.topology import changes, equivalence, limits, resharding
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import QueueDefinition, home_of
from jumpmq.topology.exchanges import Exchange, exchange_type, make_exchange
from jumpmq.topology.exchanges.holding import HoldingExchange
from jumpmq.topology.exchanges.ordered_scaling import ordered_scaling
from jumpmq.topology.policies import policy_of
from jumpmq.topology.queue_arguments import check_arguments, check_properties
from jumpmq.topology.users import Permissions, TopicPermissions
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.topology import Topology

RESERVED_PREFIX = "amq."


def check(topology: Topology, change: changes.Change) -> None:
    """Refuse an invalid change.

    Raises:
        AMQPError: with the reason.
    """
    _CHECKS[type(change)](topology, change)


# --- what a client asks for ---


def passive_exchange(vhost: VirtualHost, name: str) -> Exchange:
    """Return the exchange for a passive declaration.

    Raises:
        AccessRefused: the default exchange cannot be declared, even so.
        NotFound: there is none.
    """
    _refuse_default_exchange(name)
    return vhost.exchange(name)


def queue_deletion(
    vhost: VirtualHost, name: str, *, if_unused: bool = False, if_empty: bool = False, connection: str | None = None
) -> changes.DeleteQueue | None:
    """Return the change that deletes a queue on request; None if the queue does not exist.

    Args:
        if_unused: refuse while it has consumers.
        if_empty: refuse while it has ready messages.
        connection: who asks.

    Raises:
        PreconditionFailed: it is in use, or not empty.
        ResourceLocked: it belongs to another connection exclusively.
    """
    if name not in vhost.queues:
        return None
    queue = vhost.queue(name, connection)
    if queue.is_internal:
        exchange = queue.limits.dead_letter_exchange
        raise AccessRefused(f"queue '{name}' in vhost '{vhost.name}' goes with exchange '{exchange}'")
    if if_unused and queue.consumers:
        raise PreconditionFailed(f"queue '{name}' in vhost '{vhost.name}' in use")
    if if_empty and queue.ready_count and not queue.append_only:
        raise PreconditionFailed(f"queue '{name}' in vhost '{vhost.name}' not empty")
    return changes.DeleteQueue(vhost.name, name, queue.id)


def refuse_for_all(change: changes.Change) -> None:
    """Refuse what no user may do, before rights are looked at: RabbitMQ's order.

    Raises:
        AccessRefused: the name is the broker's own.
        PreconditionFailed: there is no such type of exchange.
    """
    match change:
        case changes.DeclareExchange(definition):
            exchange_type(definition.type)
            _refuse_default_exchange(definition.name)
        case changes.DeleteExchange(vhost, name):
            _refuse_default_exchange(name)
            if name.startswith(RESERVED_PREFIX):
                raise AccessRefused(f"deletion of system exchange '{name}' in vhost '{vhost}' not allowed")
        case changes.DeclareQueue(definition, server_named) if not server_named:
            _refuse_reserved("queue", definition.name)


def refuse_default_exchanges(binding: Binding) -> None:
    """Refuse a binding of the default exchange.

    Raises:
        AccessRefused: it is one.
    """
    _refuse_default_exchange(binding.source)
    if binding.kind == "exchange":
        _refuse_default_exchange(binding.destination)


# --- virtual hosts, users and policies ---


def _check_virtual_host(topology: Topology, change: changes.AddVirtualHost) -> None:
    if change.default_queue_type is not None and change.default_queue_type not in DECLARABLE_TYPES:
        raise PreconditionFailed(f"unsupported queue type '{change.default_queue_type}'")


def _check_permissions(topology: Topology, change: changes.SetPermissions) -> None:
    topology.user(change.user)
    topology.vhost(change.vhost)
    Permissions(change.configure, change.write, change.read).check()


def _check_topic_permissions(topology: Topology, change: changes.SetTopicPermissions) -> None:
    topology.user(change.user)
    topology.vhost(change.vhost)
    TopicPermissions(change.write, change.read).check()


def _check_user_limit(topology: Topology, change: changes.SetUserLimit) -> None:
    topology.user(change.user)
    limits.check(change.limit, change.value, limits.USER_LIMITS, "user-limits")


def _check_virtual_host_limit(topology: Topology, change: changes.SetVirtualHostLimit) -> None:
    topology.vhost(change.vhost)
    limits.check(change.limit, change.value, limits.VIRTUAL_HOST_LIMITS, "limits")


def _check_clear_global_parameter(topology: Topology, change: changes.ClearGlobalParameter) -> None:
    if change.name not in topology.global_parameters:
        raise NotFound(f"no global parameter '{change.name}'")


def _check_policy(topology: Topology, change: changes.SetPolicy | changes.SetOperatorPolicy) -> None:
    topology.vhost(change.vhost)
    policy, operator = policy_of(change), isinstance(change, changes.SetOperatorPolicy)
    policy.check(operator)
    if not operator:
        resharding.check_policy(topology, policy)


def _check_clear_policy(topology: Topology, change: changes.ClearPolicy | changes.ClearOperatorPolicy) -> None:
    operator = isinstance(change, changes.ClearOperatorPolicy)
    topology.vhost(change.vhost).policies.get(change.name, operator)


# --- exchanges and queues ---


def _check_declare_exchange(topology: Topology, change: changes.DeclareExchange) -> None:
    definition = change.definition
    vhost = topology.vhost(definition.vhost)
    refuse_for_all(change)
    _refuse_default_exchange(definition.name)
    current = vhost.exchanges.get(definition.name)
    if current is not None:
        equivalence.check_exchange(current, definition)
    else:
        _refuse_reserved("exchange", definition.name)
        exchange = make_exchange(definition)  # refuses arguments that its type does not take
        if isinstance(exchange, HoldingExchange):
            if exchange.queue_name in vhost.declared:  # imported as any queue, or of another exchange with a long name
                raise PreconditionFailed(
                    f"cannot declare exchange '{exchange.name}' in vhost '{vhost.name}': its queue "
                    f"'{exchange.queue_name}' would be one that is there already"
                )
            _refuse_beyond_limit(vhost, exchange.queue_name)
        resharding.check_exchange(topology, definition)


def _check_delete_exchange(topology: Topology, change: changes.DeleteExchange) -> None:
    vhost = topology.vhost(change.vhost)
    refuse_for_all(change)
    exchange = vhost.exchanges.get(change.name)
    if exchange is not None and change.if_unused and exchange.bindings:
        raise PreconditionFailed(f"exchange '{change.name}' in vhost '{vhost.name}' in use")


def _check_declare_queue(topology: Topology, change: changes.DeclareQueue) -> None:
    definition = change.definition
    vhost = topology.vhost(definition.vhost)
    refuse_for_all(change)
    current = vhost.declared.get(definition.name)
    if current is not None:
        if current.exclusive != definition.exclusive or current.owner != definition.owner:
            raise vhost.locked(definition.name)
        equivalence.check_queue(current.definition, definition)
        return
    _refuse_forgotten(topology, definition.home)
    if definition.id:
        _require_number(topology, definition)
    _refuse_beyond_limit(vhost, definition.name)
    topology.holdings.require(topology.users, definition.user, "queue", f"declare queue '{definition.name}'")
    check_arguments(definition)
    check_properties(definition)


def _require_number(topology: Topology, definition: QueueDefinition) -> None:
    """
    Raises: PreconditionFailed: the number of a queue is not available.
    """
    queues = (queue.definition for host in topology.vhosts.values() for queue in host.declared.values())
    if home_of(definition.id) != definition.home or any(definition.id in (one.id, one.before) for one in queues):
        raise PreconditionFailed(f"queue '{definition.name}' cannot have the number {definition.id}")


def _check_move_queue(topology: Topology, change: changes.MoveQueue) -> None:
    if (declared := topology.vhost(change.vhost).declared.get(change.name)) is not None and declared.id == change.id:
        refuse_move(topology, declared.definition, change.home)


def refuse_move(topology: Topology, definition: QueueDefinition, home: int) -> None:
    """Refuse the move of an immovable queue.

    Raises:
        PreconditionFailed: with the reason.
    """
    subject = f"queue '{definition.name}' in vhost '{definition.vhost}'"
    if home not in topology.homes:
        raise PreconditionFailed(f"{subject} cannot be moved: there is no home {home}")
    if home in topology.left and home != definition.home:
        raise PreconditionFailed(f"{subject} cannot be moved: home {home} is being left")
    if definition.before:
        raise PreconditionFailed(f"{subject} is on its way already")
    if not definition.is_kept:
        raise PreconditionFailed(f"{subject} cannot be moved: it ends with who uses it, or with its node")


def _refuse_beyond_limit(vhost: VirtualHost, name: str) -> None:
    limit = limits.reached(vhost.limits, "max-queues", len(vhost.declared))
    if limit is not None:
        raise PreconditionFailed(
            f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({limit}) is reached"
        )


# --- bindings ---


def _check_bind(topology: Topology, change: changes.Bind) -> None:
    vhost, binding = topology.vhost(change.vhost), change.binding
    refuse_default_exchanges(binding)
    source = vhost.exchange(binding.source)
    destination = vhost.destination(binding)
    if not isinstance(destination, Exchange) and QUEUE_TYPES[destination.type].is_internal:
        raise AccessRefused(f"queue '{binding.destination}' in vhost '{vhost.name}' cannot be bound: it is internal")
    source.check(binding, None if isinstance(destination, Exchange) else destination.type)
    if source.ordered and (declared := vhost.queue_definition(binding.destination)) is not None:
        _refuse_priorities(source, binding, declared)
    vhost.destination(binding, change.connection)  # that it is another's is told last, as RabbitMQ does
    if binding not in source.bindings:
        act = f"bind {binding.kind} '{binding.destination}'"
        limit = limits.reached(vhost.limits, "max-bindings", vhost.binding_count)
        if limit is not None:
            raise PreconditionFailed(f"cannot {act}: binding limit in vhost '{vhost.name}' ({limit}) is reached")
        topology.holdings.require(topology.users, change.user, "binding", act)


def _refuse_priorities(source: Exchange, binding: Binding, definition: QueueDefinition) -> None:
    """Refuse to bind a queue with priorities to an exchange with ``ordered-scaling``: the orders conflict."""
    if ordered_scaling(source.definition) and binding.kind == "queue" and definition.arguments.get("x-max-priority"):
        raise PreconditionFailed(
            f"exchange '{source.name}' in vhost '{source.vhost}' with ordered-scaling cannot be bound to queue "
            f"'{definition.name}' with priorities: they have another order"
        )


def _check_unbind(topology: Topology, change: changes.Unbind) -> None:
    vhost, binding = topology.vhost(change.vhost), change.binding
    refuse_default_exchanges(binding)
    source = vhost.exchanges.get(binding.source)
    if source is not None and binding in source.bindings:
        vhost.destination(binding, change.connection)


def _refuse_default_exchange(name: str) -> None:
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def _refuse_reserved(kind: str, name: str) -> None:
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


# --- homes ---


def _check_add_home(topology: Topology, change: changes.AddHome) -> None:
    _refuse_forgotten(topology, change.home)


def _check_leave_home(topology: Topology, change: changes.LeaveHome) -> None:
    if change.home not in topology.homes:
        raise NotFound(f"there is no home {change.home}")
    if change.leaves and not topology.homes.keys() - topology.left - {change.home}:
        raise PreconditionFailed(f"home {change.home} cannot be left: there is no other for its queues")


def _check_remove_home(topology: Topology, change: changes.RemoveHome) -> None:
    if change.home not in topology.homes:
        return
    if change.home not in topology.left:
        raise PreconditionFailed(f"home {change.home} cannot be removed: it is not left")
    if change.home < (last := max(topology.nodes[topology.node_of(change.home)])):
        raise PreconditionFailed(f"home {change.home} cannot be removed before home {last}")
    for vhost in topology.vhosts.values():
        for queue in vhost.queue_definitions():
            if (queue.home == change.home and queue.is_kept) or home_of(queue.before) == change.home:
                raise PreconditionFailed(
                    f"home {change.home} cannot be removed: queue '{queue.name}' in vhost '{vhost.name}' is there"
                )


def _refuse_forgotten(topology: Topology, home: int) -> None:
    if (node := topology.forgotten.get(home)) is not None:
        raise PreconditionFailed(f"home {home} was forgotten with node '{node}': its number is not used again")


def _check_forget_node(topology: Topology, change: changes.ForgetNode) -> None:
    homes = topology.nodes.get(change.node)
    if homes is None:
        raise NotFound(f"node '{change.node}' is not in the cluster")
    if len(topology.nodes) == 1:
        raise PreconditionFailed(f"node '{change.node}' is the only one of the cluster")


_CHECKS: dict[type[changes.Change], Callable[[Topology, Any], object]] = {
    changes.AddHome: _check_add_home,
    changes.ForgetNode: _check_forget_node,
    changes.HomeDown: lambda topology, change: None,
    changes.LeaveHome: _check_leave_home,
    changes.RemoveHome: _check_remove_home,
    changes.AddVirtualHost: _check_virtual_host,
    changes.DeleteVirtualHost: lambda topology, change: topology.vhost(change.name),
    changes.SetTracing: lambda topology, change: topology.vhost(change.vhost),
    changes.PutUser: lambda topology, change: None,
    changes.DeleteUser: lambda topology, change: topology.user(change.name),
    changes.SetPermissions: _check_permissions,
    changes.ClearPermissions: lambda topology, change: topology.user(change.user),
    changes.SetTopicPermissions: _check_topic_permissions,
    changes.ClearTopicPermissions: lambda topology, change: topology.user(change.user),
    changes.SetUserLimit: _check_user_limit,
    changes.ClearUserLimit: lambda topology, change: topology.user(change.user),
    changes.SetVirtualHostLimit: _check_virtual_host_limit,
    changes.ClearVirtualHostLimit: lambda topology, change: topology.vhost(change.vhost),
    changes.SetGlobalParameter: lambda topology, change: None,
    changes.ClearGlobalParameter: _check_clear_global_parameter,
    changes.SetPolicy: _check_policy,
    changes.SetOperatorPolicy: _check_policy,
    changes.ClearPolicy: _check_clear_policy,
    changes.ClearOperatorPolicy: _check_clear_policy,
    changes.DeclareExchange: _check_declare_exchange,
    changes.DeleteExchange: _check_delete_exchange,
    changes.DeclareQueue: _check_declare_queue,
    changes.DeleteQueue: lambda topology, change: topology.vhost(change.vhost),
    changes.MoveQueue: _check_move_queue,
    changes.EndMove: lambda topology, change: topology.vhost(change.vhost),
    changes.Bind: _check_bind,
    changes.Unbind: _check_unbind,
}
