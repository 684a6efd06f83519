"""A failed import or ring change is undone: the definitions are as before."""

from typing import Any

import pytest
from tests.topology.state import state_of

from jumpmq.topology import (
    AddVirtualHost,
    Bind,
    Binding,
    Change,
    DeclareExchange,
    DeclareQueue,
    ExchangeDefinition,
    PutUser,
    QueueDefinition,
    SetGlobalParameter,
    SetOperatorPolicy,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    SetUserLimit,
    SetVirtualHostLimit,
    Topology,
    Unbind,
)
from jumpmq.topology.changes.undoing import inverse, inverse_of_effects

BINDING = Binding("e", "queue", "q", b"1")
PRESENT: list[Change] = [
    AddVirtualHost("/", "classic", "words", ("a",)),
    PutUser("ann", "hash", ("monitoring",)),
    SetPermissions("ann", "/", "a", "b", "c"),
    SetTopicPermissions("ann", "/", "amq.topic", "a", "b"),
    SetUserLimit("ann", "max-connections", 3),
    SetVirtualHostLimit("/", "max-connections", 3),
    SetGlobalParameter("cluster_name", "a"),
    DeclareExchange(ExchangeDefinition("/", "e", "x-consistent-hash")),
    DeclareExchange(ExchangeDefinition("/", "passing", auto_delete=True)),
    DeclareQueue(QueueDefinition("/", "q")),
    Bind("/", BINDING, user="ann"),
    SetPolicy("/", "p", "^e", {"alternate-exchange": "passing"}, 1, "exchanges"),
    SetOperatorPolicy("/", "p", "^q", {"max-length": 7}),
]
NEW: list[Change] = [
    AddVirtualHost("/", "quorum", "other words", ("b", "c")),
    AddVirtualHost("shop"),
    PutUser("ann", "another hash"),
    PutUser("bo", "hash"),
    SetPermissions("ann", "/", "", "", ""),
    SetTopicPermissions("ann", "/", "amq.topic", "", ""),
    SetTopicPermissions("ann", "/", "e", "", ""),
    SetUserLimit("ann", "max-connections", 4),
    SetUserLimit("ann", "max-queues", 4),
    SetVirtualHostLimit("/", "max-connections", 4),
    SetVirtualHostLimit("/", "max-queues", 4),
    SetGlobalParameter("cluster_name", "b"),
    SetGlobalParameter("other", [1]),
    DeclareExchange(ExchangeDefinition("/", "new")),
    DeclareQueue(QueueDefinition("/", "new")),
    Bind("/", Binding("e", "queue", "q", b"2")),
    Bind("/", Binding("passing", "queue", "q", b"")),
    Unbind("/", BINDING),
    SetPolicy("/", "p", "^e", {"shards-per-node": 2}),
    SetPolicy("/", "other", "^q", {"max-length": 2}),
    SetOperatorPolicy("/", "p", "^q", {"max-length": 8}),
    SetOperatorPolicy("/", "other", "^q", {"max-length": 8}),
]


def state(topology: Topology) -> dict[str, Any]:
    """Return the definitions. Numbers of queues are not used again, and shards outlive the policy that made them."""
    found = state_of(topology)
    del found["counters"]
    for host in found["vhosts"].values():
        for name in ("queues", "in force for queues", "bindings to"):
            del host[name]
        host["exchanges"] = [(one, alternate, bound) for one, alternate, bound in host["exchanges"] if one.name]
    return found


@pytest.mark.parametrize("change", [*PRESENT, *NEW], ids=lambda change: type(change).__name__)
def test_the_inverse_of_a_change_restores_the_definitions(change: Change) -> None:
    """The inverse of a change restores the definitions, also for an equal change read from a log."""
    topology = Topology("one@host")
    for present in PRESENT:
        topology.apply(present)
    before = state(topology)
    undo = inverse(topology, change)
    effects = topology.apply(Change.from_json(change.to_json()))
    assert isinstance(change, Unbind) or change.changes_nothing(topology)
    for back in reversed([*undo, *inverse_of_effects(effects)]):
        topology.apply(back)
    assert state(topology) == before
    assert topology.vhost("/").declared.keys() <= {"q", "sharding: e - one@host - 0", "sharding: e - one@host - 1"}
