"""A topology's whole state, as immutable values for comparison."""

import copy
from typing import Any

from jumpmq.topology import ConsistentHashExchange, Topology, VirtualHost


def state_of(topology: Topology) -> dict[str, Any]:
    """Return every definition, in order, with the policies in force and the positions on hash rings."""
    return {
        "homes": list(topology.homes.items()),  # in the order of shards
        "forgotten": dict(topology.forgotten),
        "counters": dict(topology.counters),
        "users": [copy.deepcopy(user) for user in topology.users.values()],
        "vhosts": {name: _state_of_host(host) for name, host in topology.vhosts.items()},
    }


def _state_of_host(host: VirtualHost) -> dict[str, Any]:
    exchanges = host.exchanges.values()
    return {
        "exchanges": [(one.definition, one.alternate, list(one.bindings)) for one in exchanges],
        "rings": {one.name: one.ring.state() for one in exchanges if isinstance(one, ConsistentHashExchange)},
        "queues": [queue.definition for queue in host.declared.values()],
        "bindings to": {queue.name: host.bindings_to(queue.destination) for queue in host.declared.values()},
        "limits": (dict(host.limits), host.binding_count),
        "policies": [(one, operator) for operator in (False, True) for one in host.policies.all(operator)],
        "in force": {one.name: host.in_force.of(one) for one in exchanges},
        "in force for queues": {one.name: host.in_force.of(one.destination) for one in host.declared.values()},
        "described": (host.default_queue_type, host.description, host.tags, host.tracing),
    }
