"""Effects of changes on memory and records, after the checks of :mod:`jumpmq.topology.rules`.

No clock, no random number and no name of this node has a say here: a log of changes has the same effect everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from jumpmq.topology import changes, holding_queues, resharding
from jumpmq.topology.definitions import home_of
from jumpmq.topology.exchanges import ConsistentHashExchange, make_exchange
from jumpmq.topology.policies import Policies, policy_of
from jumpmq.topology.preparing import Preparation
from jumpmq.topology.users import Permissions, TopicPermissions, User
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue
    from jumpmq.topology.topology import Topology


Steps = Generator[None, None, list[changes.Change]]
"""Steps of an effect, returning the consequent changes."""


def take_effect(topology: Topology, change: changes.Change) -> Steps:
    """Apply an admitted change.

    It takes one step, or several between which the definitions are as before, and others can be served.

    Returns:
        The change as it took effect, and those that followed.
    """
    if (in_steps := _IN_STEPS.get(type(change))) is not None:
        with topology.records.aside():
            return [change, *(yield from in_steps(topology, change))]
    return [_EFFECTS[type(change)](topology, change) or change]


# --- virtual hosts and users ---


def _add_virtual_host(topology: Topology, change: changes.AddVirtualHost) -> None:
    is_new = change.name not in topology.vhosts
    if is_new:
        topology.vhosts[change.name] = VirtualHost(change.name, topology.records, topology.holdings, topology.fences)
    vhost = topology.vhosts[change.name]
    given = {name: getattr(change, name) for name in ("default_queue_type", "description", "tags", "home")}
    for name, value in given.items():
        if value is not None:
            setattr(vhost, name, value)
    if is_new or any(value is not None for value in given.values()):
        topology.records.put_virtual_host(vhost)


def _delete_virtual_host(topology: Topology, change: changes.DeleteVirtualHost) -> Steps:
    vhost = topology.vhosts.pop(change.name)
    topology.revision += 1
    for leave in topology.leaving:  # who uses it still does so no more: it can be taken apart
        leave(vhost)
    queues = list(vhost.declared.values())
    for declared in queues:
        yield from vhost.removing_bindings_to(declared.destination)
        vhost.take_queue(declared)
        yield
    for operator in (False, True):
        for policy in vhost.policies.all(operator):
            topology.records.delete_policy(policy, operator)
    yield from vhost.removing_exchanges()
    for user in topology.users.values():
        _clear_permissions(topology, changes.ClearPermissions(user.name, change.name))
        _clear_topic_permissions(topology, changes.ClearTopicPermissions(user.name, change.name))
    topology.past.add(vhost.past)
    vhost.past = topology.past  # its channels have yet to close
    topology.records.put_virtual_host_limits(change.name, {})
    topology.records.put_tracing(change.name, enabled=False)
    topology.records.delete_virtual_host(change.name)
    topology.records.hand_over()
    topology.drop_contents(queues)
    for declared in queues:
        if declared.contents is not None:
            declared.contents.delete()
            yield
    return [changes.DeleteQueue(change.name, declared.name, declared.id) for declared in queues]


def _set_tracing(topology: Topology, change: changes.SetTracing) -> None:
    topology.vhost(change.vhost).tracing = change.enabled
    topology.records.put_tracing(change.vhost, change.enabled)


def _put_user(topology: Topology, change: changes.PutUser) -> None:
    user = topology.users.setdefault(change.name, User(change.name, ""))
    user.password_hash, user.tags = change.password_hash, change.tags
    topology.records.put_user(user)


def _delete_user(topology: Topology, change: changes.DeleteUser) -> None:
    user = topology.users.pop(change.name)
    for vhost in user.permissions:
        topology.records.delete_permissions(change.name, vhost)
    for vhost, exchange in user.topic_permissions:
        topology.records.delete_topic_permissions(change.name, vhost, exchange)
    topology.records.put_user_limits(change.name, {})
    topology.records.delete_user(change.name)


def _set_permissions(topology: Topology, change: changes.SetPermissions) -> None:
    user = topology.user(change.user)
    user.permissions[change.vhost] = Permissions(change.configure, change.write, change.read)
    topology.records.put_permissions(user, change.vhost)


def _clear_permissions(topology: Topology, change: changes.ClearPermissions) -> None:
    if topology.user(change.user).permissions.pop(change.vhost, None) is not None:
        topology.records.delete_permissions(change.user, change.vhost)


def _set_topic_permissions(topology: Topology, change: changes.SetTopicPermissions) -> None:
    granted = TopicPermissions(change.write, change.read)
    topology.user(change.user).topic_permissions[change.vhost, change.exchange] = granted
    topology.records.put_topic_permissions(change.user, change.vhost, change.exchange, granted)


def _clear_topic_permissions(topology: Topology, change: changes.ClearTopicPermissions) -> None:
    granted = topology.user(change.user).topic_permissions
    for vhost, exchange in list(granted):
        if vhost == change.vhost and change.exchange in (None, exchange):
            del granted[vhost, exchange]
            topology.records.delete_topic_permissions(change.user, vhost, exchange)


# --- limits ---


def _set_user_limit(topology: Topology, change: changes.SetUserLimit) -> None:
    user = topology.user(change.user)
    user.limits[change.limit] = change.value
    topology.records.put_user_limits(user.name, user.limits)


def _clear_user_limit(topology: Topology, change: changes.ClearUserLimit) -> None:
    user = topology.user(change.user)
    if user.limits.pop(change.limit, None) is not None:
        topology.records.put_user_limits(user.name, user.limits)


def _set_virtual_host_limit(topology: Topology, change: changes.SetVirtualHostLimit) -> None:
    vhost = topology.vhost(change.vhost)
    vhost.limits[change.limit] = change.value
    topology.records.put_virtual_host_limits(vhost.name, vhost.limits)


def _clear_virtual_host_limit(topology: Topology, change: changes.ClearVirtualHostLimit) -> None:
    vhost = topology.vhost(change.vhost)
    if vhost.limits.pop(change.limit, None) is not None:
        topology.records.put_virtual_host_limits(vhost.name, vhost.limits)


def _set_global_parameter(topology: Topology, change: changes.SetGlobalParameter) -> None:
    topology.global_parameters[change.name] = change.value
    topology.records.put_global_parameter(change.name, change.value)


def _clear_global_parameter(topology: Topology, change: changes.ClearGlobalParameter) -> None:
    del topology.global_parameters[change.name]
    topology.records.delete_global_parameter(change.name)


# --- policies ---


def _set_policy(topology: Topology, change: changes.SetPolicy | changes.SetOperatorPolicy) -> Steps:
    vhost, policy = topology.vhost(change.vhost), policy_of(change)
    operator = isinstance(change, changes.SetOperatorPolicy)
    topology.records.put_policy(policy, operator)
    policies = vhost.policies.with_policy(policy, operator)
    return (yield from _bring_into_force(topology, vhost, policies))


def _clear_policy(topology: Topology, change: changes.ClearPolicy | changes.ClearOperatorPolicy) -> Steps:
    vhost = topology.vhost(change.vhost)
    operator = isinstance(change, changes.ClearOperatorPolicy)
    topology.records.delete_policy(vhost.policies.get(change.name, operator), operator)
    policies = vhost.policies.without_policy(change.name, operator)
    return (yield from _bring_into_force(topology, vhost, policies))


def _bring_into_force(topology: Topology, vhost: VirtualHost, policies: Policies) -> Steps:
    shards = Preparation(topology, vhost, policies)
    yield from shards.prepare(resharding.follow(topology, vhost, policies))
    vhost.policies = policies
    following = vhost.follow_policies()
    shards.reveal()
    topology.records.hand_over()
    topology.later(f"following the policies of vhost '{vhost.name}'", following)
    return shards.changes


# --- homes ---


def _add_home(topology: Topology, change: changes.AddHome) -> Steps:
    if topology.homes.get(change.home) != change.node:
        topology.homes[change.home] = change.node
        topology.records.put_home(change.home, change.node, change.home in topology.left)
    prepared = []
    for vhost in topology.vhosts.values():
        shards = Preparation(topology, vhost, vhost.policies)
        ended = vhost.ended_with(change.home)
        yield from shards.end(ended)
        names = {declared.name for declared in ended}
        missing = chain(resharding.missing(topology, vhost, names), holding_queues.missing(topology, vhost, names))
        yield from shards.prepare(missing)
        prepared.append(shards)
    for vhost, shards in zip(topology.vhosts.values(), prepared, strict=True):
        vhost.follow_home(change.home, change.node)
        shards.reveal()
    topology.records.hand_over()
    return [made for shards in prepared for made in shards.changes]


def _forget_node(topology: Topology, change: changes.ForgetNode) -> Steps:
    gone = topology.nodes[change.node]
    prepared = []
    for vhost in topology.vhosts.values():
        shards = Preparation(topology, vhost, vhost.policies)
        yield from shards.end(declared for home in gone for declared in vhost.queues_of(home))
        yield from shards.prepare(_holding_elsewhere(topology, vhost, shards, gone))
        prepared.append(shards)
    for home in gone:
        del topology.homes[home]
        topology.left.discard(home)
        topology.forgotten[home] = change.node
        topology.records.put_forgotten_home(home, change.node)
    for shards in prepared:
        shards.reveal()
    for vhost in topology.vhosts.values():
        for declared in vhost.declared.values():
            before = declared.definition.before
            if before and home_of(before) in gone:  # what was left there is gone with it
                _end_move_of(topology, declared)
    topology.records.hand_over()
    return _ended_and_made(prepared)


def _home_down(topology: Topology, change: changes.HomeDown) -> Steps:
    gone = frozenset(change.queues)
    return (yield from _end_queues(topology, change.home, lambda declared: declared.id in gone))


def _leave_home(topology: Topology, change: changes.LeaveHome) -> None:
    if change.leaves is not (change.home in topology.left):
        (topology.left.add if change.leaves else topology.left.discard)(change.home)
        topology.records.put_home(change.home, topology.homes[change.home], change.leaves)


def _remove_home(topology: Topology, change: changes.RemoveHome) -> Steps:
    if change.home not in topology.homes:
        return []
    del topology.homes[change.home]
    topology.left.discard(change.home)
    topology.records.delete_home(change.home)
    return (yield from _end_queues(topology, change.home, lambda declared: True))


def _end_queues(topology: Topology, home: int, ends: Callable[[DeclaredQueue], bool]) -> Steps:
    """Delete the queues of a home that end with its process, if selected by ``ends``."""
    prepared = []
    for vhost in topology.vhosts.values():
        shards = Preparation(topology, vhost, vhost.policies)
        yield from shards.end(declared for declared in vhost.ended_with(home) if ends(declared))
        yield from shards.prepare(_holding_elsewhere(topology, vhost, shards, [home]))
        prepared.append(shards)
    for shards in prepared:
        shards.reveal()
    topology.records.hand_over()
    for declared in [declared for shards in prepared for declared in shards.ended]:
        if declared.contents is not None:
            declared.contents.delete()
    return _ended_and_made(prepared)


def _holding_elsewhere(
    topology: Topology, vhost: VirtualHost, shards: Preparation, gone: Iterable[int]
) -> Iterator[changes.Change]:
    """Return the changes that recreate, at remote homes, the queues of exchanges ending with the ``gone`` homes."""
    return holding_queues.missing(topology, vhost, {declared.name for declared in shards.ended}, frozenset(gone))


def _ended_and_made(prepared: list[Preparation]) -> list[changes.Change]:
    ended = [declared for shards in prepared for declared in shards.ended]
    deleted = [changes.DeleteQueue(declared.vhost, declared.name, declared.id) for declared in ended]
    return [*deleted, *(made for shards in prepared for made in shards.changes)]


# --- exchanges, queues and bindings ---


def _declare_exchange(topology: Topology, change: changes.DeclareExchange) -> Steps:
    vhost, definition = topology.vhost(change.definition.vhost), change.definition
    if definition.name in vhost.exchanges:
        return []
    exchange = make_exchange(definition)
    topology.records.put_exchange(definition)
    shards = Preparation(topology, vhost, vhost.policies, exchange)
    settings = resharding.settings_under(vhost.policies, definition.name)
    resharded = resharding.reshard(topology, vhost, exchange, None, settings)
    yield from shards.prepare(chain(resharded, holding_queues.queue_of(topology, vhost, exchange)))
    vhost.add_exchange(exchange)
    if isinstance(exchange, ConsistentHashExchange):
        topology.records.note_new_ring(exchange)
    shards.reveal()
    topology.records.hand_over()
    return shards.changes


def _delete_exchange(topology: Topology, change: changes.DeleteExchange) -> Steps:
    vhost = topology.vhost(change.vhost)
    if change.name in vhost.exchanges:
        yield from vhost.removing_exchange(vhost.exchanges[change.name])
        topology.records.hand_over()
    return []


def _declare_queue(topology: Topology, change: changes.DeclareQueue) -> changes.Change | None:
    vhost = topology.vhost(change.definition.vhost)
    if change.definition.name in vhost.declared:
        return None
    definition = topology.number(change.definition)
    topology.insert_queue(definition)
    topology.records.put_numbered_queue(definition)
    if change.definition.id:
        topology.records.put_counter(definition.home, topology.counters[definition.home])
    return changes.DeclareQueue(definition, change.server_named)


def _delete_queue(topology: Topology, change: changes.DeleteQueue) -> Steps:
    vhost = topology.vhost(change.vhost)
    declared = vhost.declared.get(change.name)
    if declared is None or change.id not in (declared.id, declared.definition.before):
        return []
    yield from vhost.removing_bindings_to(declared.destination)
    vhost.take_queue(declared)
    topology.records.hand_over()
    if declared.contents is not None:
        declared.contents.delete()
    if declared.id == change.id:
        return []
    return [changes.DeleteQueue(change.vhost, change.name, declared.id)]  # who asked did not know yet that it moves


def _move_queue(topology: Topology, change: changes.MoveQueue) -> None:
    vhost = topology.vhost(change.vhost)
    old = vhost.declared.get(change.name)
    if old is None or old.id != change.id or old.definition.home == change.home:
        return
    moved = topology.make_queue(topology.at_home(old.definition, change.home))
    vhost.replace_queue(old, moved)
    topology.records.put_numbered_queue(moved.definition)


def _end_move(topology: Topology, change: changes.EndMove) -> None:
    declared = topology.vhost(change.vhost).declared.get(change.name)
    if declared is not None and declared.id == change.id:
        _end_move_of(topology, declared)


def _end_move_of(topology: Topology, declared: DeclaredQueue) -> None:
    vhost = topology.vhosts[declared.vhost]
    departed = vhost.departed.pop(declared.name, None)
    if departed is not None:
        vhost.past.add_queue(departed)
        departed.delete()
    declared.definition = replace(declared.definition, before=0)
    topology.records.put_queue(declared.definition)


def _bind(topology: Topology, change: changes.Bind) -> None:
    vhost, binding = topology.vhost(change.vhost), change.binding
    source = vhost.exchanges[binding.source]
    if binding not in source.bindings:
        vhost.insert_binding(binding, change.user)
        topology.records.put_binding(source, binding, source.bindings[binding], change.user)


def _unbind(topology: Topology, change: changes.Unbind) -> None:
    vhost, binding = topology.vhost(change.vhost), change.binding
    source = vhost.exchanges.get(binding.source)
    if source is not None and binding in source.bindings:
        vhost.remove_binding(binding)


_EFFECTS: dict[type[changes.Change], Callable[[Topology, Any], changes.Change | None]] = {
    changes.AddVirtualHost: _add_virtual_host,
    changes.SetTracing: _set_tracing,
    changes.PutUser: _put_user,
    changes.DeleteUser: _delete_user,
    changes.SetPermissions: _set_permissions,
    changes.ClearPermissions: _clear_permissions,
    changes.SetTopicPermissions: _set_topic_permissions,
    changes.ClearTopicPermissions: _clear_topic_permissions,
    changes.SetUserLimit: _set_user_limit,
    changes.ClearUserLimit: _clear_user_limit,
    changes.SetVirtualHostLimit: _set_virtual_host_limit,
    changes.ClearVirtualHostLimit: _clear_virtual_host_limit,
    changes.SetGlobalParameter: _set_global_parameter,
    changes.ClearGlobalParameter: _clear_global_parameter,
    changes.DeclareQueue: _declare_queue,
    changes.LeaveHome: _leave_home,
    changes.MoveQueue: _move_queue,
    changes.EndMove: _end_move,
    changes.Bind: _bind,
    changes.Unbind: _unbind,
}

_IN_STEPS: dict[type[changes.Change], Callable[[Topology, Any], Steps]] = {
    changes.AddHome: _add_home,
    changes.ForgetNode: _forget_node,
    changes.HomeDown: _home_down,
    changes.RemoveHome: _remove_home,
    changes.DeleteVirtualHost: _delete_virtual_host,
    changes.SetPolicy: _set_policy,
    changes.SetOperatorPolicy: _set_policy,
    changes.ClearPolicy: _clear_policy,
    changes.ClearOperatorPolicy: _clear_policy,
    changes.DeclareExchange: _declare_exchange,
    changes.DeleteExchange: _delete_exchange,
    changes.DeleteQueue: _delete_queue,
}
"""Changes with many consequences."""
