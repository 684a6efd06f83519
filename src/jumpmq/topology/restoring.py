"""Restoring of definitions from the journal's records, or from those of another process."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.store import kinds
from jumpmq.topology import records
from jumpmq.topology.definitions import home_of
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.policies import Policy
from jumpmq.topology.state import State, at_once
from jumpmq.topology.users import Permissions, TopicPermissions, User
from jumpmq.topology.vhost import VirtualHost

log = logging.getLogger(__name__)

Found = Mapping[str, list[Any]]
"""Values of records by kind, in the order of their first writing; counters with their keys."""


def restore(state: State, definitions: Iterable[tuple[str, str, Any]]) -> None:
    """Restore the journal's records into empty definitions. Records of other kinds are skipped.

    Missing shards of this node are made when its home joins (:class:`~jumpmq.topology.changes.AddHome`).

    Args:
        definitions: (kind, key, value), in the order of their first writing.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for kind, key, value in definitions:
        found[kind].append((key, value) if kind == kinds.COUNTER else value)
    for value in found[kinds.HOME]:
        (state.forgotten if value.get("forgotten") else state.homes)[value["home"]] = value["node"]
        if value.get("leaves"):
            state.left.add(value["home"])
    _restore_counters(state, found)
    state.applied = found[kinds.APPLIED][0] if found[kinds.APPLIED] else 0
    for value in found[kinds.VHOST]:
        host = VirtualHost(value["name"], state.records, state.holdings, state.fences)
        host.default_queue_type = value.get("default_queue_type")
        host.description, host.tags = value.get("description", host.description), tuple(value.get("tags", ()))
        host.home = value.get("home", 0)
        state.vhosts[host.name] = host
    state.global_parameters = {value["name"]: value["value"] for value in found[kinds.GLOBAL_PARAMETER]}
    _restore_users(state, found)
    # Before exchanges and queues, which then get the policies in force.
    _restore_policies(state, found)
    state.fences.is_restoring = True  # restored bindings move no keys
    _restore_each(found, kinds.TRACING, partial(_restore_tracing, state))
    _restore_each(found, kinds.EXCHANGE, partial(_restore_exchange, state))
    _restore_each(found, kinds.QUEUE, partial(_restore_queue, state))
    _restore_each(found, kinds.BINDING, partial(_restore_binding, state))
    # After bindings, which make rings, too: the buckets depend on the order of all earlier changes.
    _restore_each(found, kinds.RING, partial(_restore_ring, state))
    state.fences.is_restoring = False


def _restore_each(found: Found, kind: str, restore: Callable[[Any], object]) -> None:
    """Restore the definitions of a kind, except those with missing parts: damage can lose a definition."""
    for value in found.get(kind, ()):
        try:
            restore(value)
        except (LookupError, AMQPError) as error:
            log.warning("the definition of %s %s is left out: %r is missing", kind, value, str(error))


def _restore_counters(state: State, found: Found) -> None:
    state.counters = {records.home_of_counter(key): value for key, value in found[kinds.COUNTER]}
    for value in found[kinds.QUEUE]:  # the counter's record may be damaged
        home, counter = value.get("home", 1), value["id"] & records.COUNTER
        state.counters[home] = max(state.counters.get(home, 1), counter + 1)


def _restore_users(state: State, found: Found) -> None:
    for value in found[kinds.USER]:
        state.users[value["name"]] = User(value["name"], value["password_hash"], tuple(value["tags"]))
    _restore_each(found, kinds.PERMISSIONS, partial(_restore_permissions, state))
    _restore_each(found, kinds.TOPIC_PERMISSIONS, partial(_restore_topic_permissions, state))
    _restore_each(found, kinds.USER_LIMITS, lambda value: state.users[value["name"]].limits.update(value["limits"]))
    _restore_each(found, kinds.VHOST_LIMITS, lambda value: state.vhosts[value["name"]].limits.update(value["limits"]))


def _restore_permissions(state: State, value: dict[str, Any]) -> None:
    granted = Permissions(value["configure"], value["write"], value["read"])
    state.users[value["user"]].permissions[value["vhost"]] = granted


def _restore_topic_permissions(state: State, value: dict[str, Any]) -> None:
    granted = TopicPermissions(value["write"], value["read"])
    state.users[value["user"]].topic_permissions[value["vhost"], value["exchange"]] = granted


def _restore_policies(state: State, found: Found) -> None:
    for kind, operator in ((kinds.POLICY, False), (kinds.OPERATOR_POLICY, True)):
        _restore_each(found, kind, partial(_restore_policy, state, operator))
    for host in state.vhosts.values():
        at_once("", host.in_force.follow())  # for the predeclared exchanges


def _restore_policy(state: State, operator: bool, value: dict[str, Any]) -> None:
    state.vhosts[value["vhost"]].policies.put(Policy(**value), operator)


def _restore_tracing(state: State, value: dict[str, Any]) -> None:
    state.vhosts[value["name"]].tracing = True


def _restore_exchange(state: State, value: dict[str, Any]) -> None:
    state.vhosts[value["vhost"]].insert_exchange(records.read_exchange(value))


def _restore_queue(state: State, value: dict[str, Any]) -> None:
    definition = records.read_queue(value)
    state.insert_queue(definition)
    if definition.before and home_of(definition.before) == state.home:
        state.vhosts[definition.vhost].departed[definition.name] = state.make_departed(definition)


def _restore_binding(state: State, value: dict[str, Any]) -> None:
    vhost, binding, user = records.read_binding(value)
    state.vhosts[vhost].insert_binding(binding, user)


def _restore_ring(state: State, value: dict[str, Any]) -> None:
    exchange, ring = state.vhosts[value["vhost"]].exchanges[value["exchange"]], value["state"]
    if isinstance(exchange, ConsistentHashExchange):
        exchange.restore_ring(ring)
        if exchange.ring.state() != ring:
            state.records.note_ring(exchange)
