"""Snapshot of all definitions as records, from which :mod:`jumpmq.topology.restoring` restores a new process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jumpmq.store.kinds import RING
from jumpmq.topology.digest import Digest
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.records import Records
from jumpmq.topology.vhost import PREDECLARED

if TYPE_CHECKING:
    from jumpmq.store.changes import Definitions
    from jumpmq.topology.state import State
    from jumpmq.topology.vhost import VirtualHost


class _Collected:
    """Collects records in place of a journal."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Any] = {}

    def put(self, kind: str, key: str, value: Any) -> None:
        self.records[kind, key] = value

    def put_text(self, kind: str, key: str, value: str) -> None:
        self.records[kind, key] = json.loads(value)

    def delete(self, kind: str, key: str) -> None:
        self.records.pop((kind, key), None)

    def change(self, definitions: Definitions) -> None:
        for key in definitions.removed:
            self.records.pop(key, None)
        self.records.update({key: json.loads(text) for key, text in definitions.put.items()})


def digest_of(state: State, *leaves_out: str) -> Digest:
    """Return the digest of shared definitions, without some kinds of records."""
    digest = Digest(*leaves_out)
    for kind, key, value in records_of(state):
        digest.put(kind, key, json.dumps(value, separators=(",", ":")))
    return digest


def followed_digest(state: State) -> Callable[[], int]:
    """Return a function for the current digest of definitions. Rings are left out: they follow from the bindings,
    and are long.
    """
    digest = state.records.maintain(digest_of(state, RING))
    return lambda: digest.value


def records_of(state: State) -> list[tuple[str, str, Any]]:
    """Return all records of shared definitions, transient ones included: kind, key and value."""
    collected = _Collected()
    records = Records(collected, shared=True)
    for home, node in state.homes.items():
        records.put_home(home, node, home in state.left)
    for home, node in state.forgotten.items():
        records.put_forgotten_home(home, node)
    for name, value in state.global_parameters.items():
        records.put_global_parameter(name, value)
    for host in state.vhosts.values():
        _put_virtual_host(records, host)
    for user in state.users.values():
        records.put_user(user)
        records.put_user_limits(user.name, user.limits)
        for vhost in user.permissions:
            records.put_permissions(user, vhost)
        for (vhost, exchange), granted in user.topic_permissions.items():
            records.put_topic_permissions(user.name, vhost, exchange, granted)
    for home, number in state.counters.items():  # after the queues, whose records imply lower numbers
        records.put_counter(home, number)
    records.flush_rings()
    records.put_applied(state.applied)
    return [(kind, key, value) for (kind, key), value in collected.records.items()]


def _put_virtual_host(records: Records, host: VirtualHost) -> None:
    records.put_virtual_host(host)
    records.put_virtual_host_limits(host.name, host.limits)
    records.put_tracing(host.name, host.tracing)
    for operator in (False, True):
        for policy in host.policies.all(operator):
            records.put_policy(policy, operator)
    for exchange in host.exchanges.values():
        if exchange.name not in PREDECLARED:
            records.put_exchange(exchange.definition)
    for declared in host.declared.values():
        records.put_queue(declared.definition)
    for exchange in host.exchanges.values():
        if exchange.name:  # the default exchange binds on its own
            for binding, destination in exchange.bindings.items():
                records.put_binding(exchange, binding, destination, host.binder(exchange, binding))
            if isinstance(exchange, ConsistentHashExchange):
                records.note_ring(exchange)
