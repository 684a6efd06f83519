"""Nodes that join a cluster or are forgotten."""

from collections import Counter
from typing import Any

import pytest
from tests.topology.built import Built
from tests.topology.state import state_of

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Change,
    ConsistentHashExchange,
    DeclareQueue,
    ForgetNode,
    SetPolicy,
    Topology,
)
from jumpmq.topology.snapshot import records_of

NODES = "one@host", "two@host", "three@host"


@pytest.fixture
def topology() -> Topology:
    """Three nodes, as the first node knows them, and a sharded exchange."""
    topology = Topology(NODES[0])
    for change in (*(AddHome(home, node) for home, node in enumerate(NODES, 1)), AddVirtualHost("/")):
        topology.apply(change)
    Built(topology).exchange("x", "x-consistent-hash")
    topology.apply(SetPolicy("/", "p", "^x$", {"shards-per-node": 2, "routing-key": "20"}))
    return topology


def where(topology: Topology) -> list[str]:
    """Return the queues of many keys."""
    host = topology.vhosts["/"]
    exchange = host.exchanges["x"]
    assert isinstance(exchange, ConsistentHashExchange)
    return [str(exchange.ring.route(f"key-{number}".encode())) for number in range(3000)]


def names(topology: Topology) -> list[str]:
    return list(topology.vhosts["/"].declared)


def test_the_queues_of_a_node_that_is_forgotten_are_gone_and_others_keep_their_keys(topology: Topology) -> None:
    for home in (1, 2, 3):
        topology.apply(DeclareQueue(topology.define_queue("/", f"q{home}", durable=True, home=home)))
    before = where(topology)
    topology.apply(ForgetNode("two@host"))
    after = where(topology)
    assert names(topology) == [
        *(f"sharding: x - {node} - {number}" for node in ("one@host", "three@host") for number in (0, 1)),
        "q1",
        "q3",
    ]
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert moved and all("two@host" in old for old, _ in moved)
    assert len(Counter(new for _, new in moved)) == 4
    assert topology.nodes == {"one@host": [1], "three@host": [3]}


def test_the_number_of_a_home_that_is_forgotten_is_not_used_again(topology: Topology) -> None:
    topology.apply(ForgetNode("three@host"))
    assert topology.next_home == 4
    with pytest.raises(PreconditionFailed, match="home 3 was forgotten with node 'three@host'"):
        topology.apply(AddHome(3, "other@host"))
    topology.apply(AddHome(4, "three@host"))
    assert [name for name in names(topology) if "three" in name] == [
        "sharding: x - three@host - 0",
        "sharding: x - three@host - 1",
    ]
    assert topology.vhosts["/"].declared["sharding: x - three@host - 0"].definition.home == 4


def test_a_node_that_is_not_there_and_the_only_one_are_not_forgotten(topology: Topology) -> None:
    with pytest.raises(NotFound, match="node 'four@host' is not in the cluster"):
        topology.apply(ForgetNode("four@host"))
    topology.apply(ForgetNode("two@host"))
    topology.apply(ForgetNode("three@host"))
    with pytest.raises(PreconditionFailed, match="node 'one@host' is the only one of the cluster"):
        topology.apply(ForgetNode("one@host"))


def test_nodes_that_start_at_once_have_one_order() -> None:
    """Nodes that start at once have one order, by which copies are placed at a start and on request."""
    for homes in ([2, 3, 1], [3, 1, 2]):
        topology = Topology(NODES[0])
        for home in homes:
            topology.apply(AddHome(home, NODES[home - 1]))
        topology.apply(AddHome(4, NODES[0]))
        assert topology.nodes_by_home == [*NODES]


def test_a_node_that_joins_gets_its_shards_behind_those_that_are_there(topology: Topology) -> None:
    before, there = where(topology), names(topology)
    topology.apply(AddHome(4, "four@host"))
    made = ["sharding: x - four@host - 0", "sharding: x - four@host - 1"]
    assert names(topology) == [*there, *made]
    moved = {new for old, new in zip(before, where(topology), strict=True) if old != new}
    assert moved == set(made)


def test_what_is_forgotten_is_kept(topology: Topology) -> None:
    topology.apply(Change.from_json(ForgetNode("two@host").to_json()))
    restored: Any = Topology(NODES[2], home=3)
    restored.restore(records_of(topology))
    assert state_of(restored) == state_of(topology)
    assert restored.forgotten == {2: "two@host"}
    with pytest.raises(PreconditionFailed):
        restored.apply(AddHome(2, "two@host"))
