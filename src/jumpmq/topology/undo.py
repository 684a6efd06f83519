"""Inverses of changes: for several changes applied all or none."""

from collections.abc import Callable
from typing import Any

from jumpmq.topology import changes
from jumpmq.topology.equivalence import check_exchange, check_queue
from jumpmq.topology.policies import Policy
from jumpmq.topology.topology import Topology

Changes = list[changes.Change]


def inverse(topology: Topology, change: changes.Change) -> Changes:
    """Return the changes that undo a change about to be applied, to be applied in reverse order afterwards.

    Only changes that add or replace have one, and unbinding.

    Raises:
        AMQPError: there is no such virtual host or user, so that the change itself would be refused.
    """
    return _INVERSES[type(change)](topology, change)


def changes_nothing(topology: Topology, change: changes.Change) -> bool:
    """Return True if an adding or replacing change would leave the definitions unchanged.

    Raises:
        AMQPError: as :func:`inverse`, or what is declared already was declared in another way.
    """
    match change:
        case changes.DeclareQueue(definition):
            queues = topology.vhost(definition.vhost).declared
            if definition.name not in queues:
                return False
            check_queue(queues[definition.name].definition, definition)
            return True
        case changes.DeclareExchange(definition):
            exchanges = topology.vhost(definition.vhost).exchanges
            if definition.name not in exchanges:
                return False
            check_exchange(exchanges[definition.name], definition)
            return True
        case changes.Bind(host, binding):
            source = topology.vhost(host).exchanges.get(binding.source)
            return source is not None and binding in source.bindings
        case changes.AddVirtualHost(name) if name in topology.vhosts:
            vhost = topology.vhosts[name]
            said = change.default_queue_type, change.description, change.tags, change.home
            present = vhost.default_queue_type, vhost.description, vhost.tags, vhost.home
            return all(new in (None, old) for new, old in zip(said, present, strict=True))
    return inverse(topology, change) == [change]


def inverse_of_effects(change: changes.Change, effects: Changes) -> Changes:
    """Return the changes unknown to :func:`inverse`: undoing a declared queue, by number, and consequences; applied in
    reverse order, before the inverse."""
    found: Changes = []
    for effect in effects:
        match effect:
            case changes.DeclareQueue(definition) if definition.id:
                found.append(changes.DeleteQueue(definition.vhost, definition.name, definition.id))
            case changes.Bind(vhost, binding) if effect is not change:
                found.append(changes.Unbind(vhost, binding))
            case changes.Unbind(vhost, binding) if effect is not change:
                found.append(changes.Bind(vhost, binding))
    return found


def _virtual_host(topology: Topology, change: changes.AddVirtualHost) -> Changes:
    vhost = topology.vhosts.get(change.name)
    if vhost is None:
        return [changes.DeleteVirtualHost(change.name)]
    return [changes.AddVirtualHost(vhost.name, vhost.default_queue_type, vhost.description, vhost.tags, vhost.home)]


def _global_parameter(topology: Topology, change: changes.SetGlobalParameter) -> Changes:
    if change.name not in topology.global_parameters:
        return [changes.ClearGlobalParameter(change.name)]
    return [changes.SetGlobalParameter(change.name, topology.global_parameters[change.name])]


def _user(topology: Topology, change: changes.PutUser) -> Changes:
    user = topology.users.get(change.name)
    if user is None:
        return [changes.DeleteUser(change.name)]
    return [changes.PutUser(user.name, user.password_hash, user.tags)]


def _permissions(topology: Topology, change: changes.SetPermissions) -> Changes:
    granted = topology.user(change.user).permissions.get(change.vhost)
    if granted is None:
        return [changes.ClearPermissions(change.user, change.vhost)]
    return [changes.SetPermissions(change.user, change.vhost, granted.configure, granted.write, granted.read)]


def _topic_permissions(topology: Topology, change: changes.SetTopicPermissions) -> Changes:
    granted = topology.user(change.user).topic_permissions.get((change.vhost, change.exchange))
    if granted is None:
        return [changes.ClearTopicPermissions(change.user, change.vhost, change.exchange)]
    return [changes.SetTopicPermissions(change.user, change.vhost, change.exchange, granted.write, granted.read)]


def _user_limit(topology: Topology, change: changes.SetUserLimit) -> Changes:
    value = topology.user(change.user).limits.get(change.limit)
    if value is None:
        return [changes.ClearUserLimit(change.user, change.limit)]
    return [changes.SetUserLimit(change.user, change.limit, value)]


def _virtual_host_limit(topology: Topology, change: changes.SetVirtualHostLimit) -> Changes:
    value = topology.vhost(change.vhost).limits.get(change.limit)
    if value is None:
        return [changes.ClearVirtualHostLimit(change.vhost, change.limit)]
    return [changes.SetVirtualHostLimit(change.vhost, change.limit, value)]


def _exchange(topology: Topology, change: changes.DeclareExchange) -> Changes:
    definition = change.definition
    if definition.name in topology.vhost(definition.vhost).exchanges:
        return []
    return [changes.DeleteExchange(definition.vhost, definition.name)]


def _binding(topology: Topology, change: changes.Bind) -> Changes:
    source = topology.vhost(change.vhost).exchanges.get(change.binding.source)
    if source is None or change.binding in source.bindings:
        return []
    back: Changes = [changes.Unbind(change.vhost, change.binding)]
    if source.auto_delete:  # it goes with its last binding
        back.insert(0, changes.DeclareExchange(source.definition))
    return back


def _unbinding(topology: Topology, change: changes.Unbind) -> Changes:
    vhost = topology.vhost(change.vhost)
    source = vhost.exchanges.get(change.binding.source)
    if source is None or change.binding not in source.bindings:
        return []
    return [changes.Bind(change.vhost, change.binding, user=vhost.binder(source, change.binding))]


def _policy(topology: Topology, change: changes.SetPolicy) -> Changes:
    policy = topology.vhost(change.vhost).policies.policies.get(change.name)
    if policy is None:
        return [changes.ClearPolicy(change.vhost, change.name)]
    return [changes.SetPolicy(*_parts(policy))]


def _operator_policy(topology: Topology, change: changes.SetOperatorPolicy) -> Changes:
    policy = topology.vhost(change.vhost).policies.operator_policies.get(change.name)
    if policy is None:
        return [changes.ClearOperatorPolicy(change.vhost, change.name)]
    return [changes.SetOperatorPolicy(*_parts(policy))]


def _parts(policy: Policy) -> tuple[Any, ...]:
    return policy.vhost, policy.name, policy.pattern, policy.definition, policy.priority, policy.apply_to


_INVERSES: dict[type[changes.Change], Callable[[Topology, Any], Changes]] = {
    changes.AddVirtualHost: _virtual_host,
    changes.PutUser: _user,
    changes.SetPermissions: _permissions,
    changes.SetTopicPermissions: _topic_permissions,
    changes.SetUserLimit: _user_limit,
    changes.SetVirtualHostLimit: _virtual_host_limit,
    changes.DeclareExchange: _exchange,
    changes.DeclareQueue: lambda topology, change: [],
    changes.Bind: _binding,
    changes.Unbind: _unbinding,
    changes.SetGlobalParameter: _global_parameter,
    changes.SetPolicy: _policy,
    changes.SetOperatorPolicy: _operator_policy,
}
