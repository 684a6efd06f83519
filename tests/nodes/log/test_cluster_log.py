"""The log of a cluster: under simulated etcd, links, disks and crashes, and at its limits."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from tests.generating import examples
from tests.nodes.log.schedules import Schedule
from tests.nodes.log.simulated_nodes import NODES, STEPS, first_records, play

from jumpmq.amqp.errors import MetadataTimeout, PreconditionFailed
from jumpmq.nodes.log.cluster_log import MOST_OCTETS, STALLED, ClusterLog
from jumpmq.topology import (
    ForgetNode,
    PutUser,
    Topology,
)


@given(STEPS)
@example([("ask", 1, 0), ("send", 1), ("send", 1), ("land", 0), ("land", 0)])  # sent again, and both arrive
@example([("ask", 1, 0), ("ask", 2, 0), ("send", 1), ("send", 2), ("land", 0), ("land", 0)])  # the second is too late
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_breaks_the_homes_agree(steps: Schedule) -> None:
    play(steps)


def alone(on_forgotten: Callable[[str], None] = print) -> tuple[ClusterLog, Topology]:
    """Return a home without peers."""
    topology = Topology(NODES[1], home=1, shared=True)
    topology.restore(first_records())
    log = ClusterLog(topology, 1, "boot", lambda: (), on_forgotten=on_forgotten)
    topology.order_by(log)
    return log, topology


def test_what_is_asked_for_together_is_one_entry() -> None:
    log, topology = alone()
    asked = [topology.propose(PutUser(f"user{number}", "", ())) for number in range(1500)]
    first = log.to_append()
    assert first is not None
    assert (len(first["changes"]), log.to_append()) == (1023, first)
    log.receive(1, first)
    assert [pending.decided for pending in asked].index(False) == 1023
    second = log.to_append()
    assert second is not None
    log.receive(2, second)
    assert all(pending.decided for pending in asked)
    assert (topology.applied, log.to_append()) == (2 << 10, None)


def test_a_home_that_restarts_goes_on_within_an_entry() -> None:
    log, topology = alone()
    for number in range(3):
        topology.propose(PutUser(f"user{number}", str(number), ()))
    entry = log.to_append()
    assert entry is not None
    again = Topology(NODES[1], home=1, shared=True)
    again.restore(first_records())
    again.applied = 2  # of entry 1
    resumed = ClusterLog(again, 1, "again", lambda: ())
    again.order_by(resumed)
    resumed.receive(1, entry)
    assert (list(again.users), again.applied) == (["user2"], 1 << 10)


def test_a_change_that_no_entry_can_hold_is_refused() -> None:
    _, topology = alone()
    pending = topology.propose(PutUser("ann", "x" * MOST_OCTETS, ()))
    try:
        pending.result()
    except PreconditionFailed as error:
        assert "1048576 at most" in error.text
    else:
        raise AssertionError("it was taken")


def test_who_waits_for_a_limited_time_is_refused_and_what_they_asked_for_is_kept() -> None:
    log, topology = alone()
    limited = topology.propose(PutUser("ann", "", ()), limited=True)
    patient = topology.propose(PutUser("bob", "", ()))
    log.stall(STALLED)
    assert (limited.decided, patient.decided) == (True, False)
    at_once = topology.propose(PutUser("cy", "", ()), limited=True)
    for pending in (limited, at_once):
        try:
            pending.result()
        except MetadataTimeout:
            continue
        raise AssertionError("it was not refused")
    entry = log.to_append()
    assert entry is not None
    log.receive(1, entry)
    assert list(topology.users) == ["ann", "bob"]


def test_a_node_that_is_forgotten_is_told_and_applies_nothing_more() -> None:
    told: list[str] = []
    log, topology = alone(told.append)
    topology.homes |= {1: NODES[1], 2: NODES[2]}
    pending = topology.propose(ForgetNode(NODES[1]))
    assert pending.decided  # a change of the home's own is refused at once
    forget = {"change": "ForgetNode", "node": NODES[1]}
    principal = {"user": "", "connection": "", "address": ""}
    log.receive(1, {"id": "x.1", "home": 2, "changes": [[forget, principal]]})
    assert "was forgotten by its cluster; its data is kept" in told[0]
    assert NODES[1] in topology.nodes
    log.receive(2, {"id": "x.2", "home": 2, "changes": [[PutUser("ann", "", ()).to_json(), principal]]})
    assert (topology.applied, list(topology.users)) == (0, [])


def test_an_entry_that_cannot_be_read_is_not_passed_over() -> None:
    log, topology = alone()
    principal = {"user": "", "connection": "", "address": ""}
    known = [PutUser("ann", "", ()).to_json(), principal]
    for unreadable in ([{"change": "OfALaterRelease"}, principal], [known[0], {"tenant": ""}]):
        with pytest.raises((ValueError, LookupError, TypeError)):
            log.receive(1, {"id": "x.1", "home": 2, "changes": [known, unreadable]})
        assert (log.entry, list(topology.users)) == (0, [])
    log.receive(1, {"id": "x.1", "home": 2, "changes": [known]})
    assert list(topology.users) == ["ann"]
