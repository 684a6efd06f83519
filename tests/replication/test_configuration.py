"""The configuration of a home: its swaps, and the values allowed in etcd."""

import json
from dataclasses import replace
from itertools import combinations

import pytest

from jumpmq.replication.configuration import Configuration, ConfigurationError, default_min, node_of

THREE = Configuration(7, "log", "a", 3, 2, ("a", "b", "c"), 4, "a.1", ("a.1", "b.1", "c.1"))
GOLDEN = (
    b'{"v":7,"log":"log","seat":"a","copies":3,"min":2,"members":["a","b","c"],"epoch":4,"leader":"a.1",'
    b'"set":["a.1","b.1","c.1"],"eligible":[]}'
)


def test_etcds_octets_are_the_same_for_the_same_configuration() -> None:
    assert THREE.to_json() == GOLDEN
    assert Configuration.from_json(GOLDEN) == THREE


def test_a_new_home_has_one_copy() -> None:
    first = Configuration.first("log", "a.1")
    assert (first.members, first.set, first.min, first.epoch, first.problem()) == (("a",), ("a.1",), 1, 1, "")


@pytest.mark.parametrize(("copies", "least"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_min_by_default_is_half_of_the_copies_rounded_up(copies: int, least: int) -> None:
    assert default_min(copies) == least


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"v": 0}, "begin at 1"),
        ({"min": 4}, "from 1 to copies"),
        ({"min": 0}, "from 1 to copies"),
        ({"leader": "d.1"}, "not in the set"),
        ({"set": ["a.1", "b.1", "b.1"]}, "named twice"),
        ({"eligible": ["c.1"]}, "named twice"),
        ({"set": ["a.1", "b.1"], "eligible": ["c.1"]}, "yet others are eligible"),
        ({"members": ["a", "b"]}, "c.1 is not of a member"),
        ({"members": ["a", "b", "b", "c"]}, "a member is named twice"),
        ({"v": True}, "v of a home's configuration is not of its type: True"),
        ({"set": "a.1"}, "set of a home's configuration is not of its type"),
        ({"set": [1]}, "set of a home's configuration is not of its type"),
        ({"leader": None}, "leader of a home's configuration is not of its type"),
        ({"epoch": 1.5}, "epoch of a home's configuration is not of its type"),
    ],
)
def test_a_value_that_contradicts_itself_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Configuration.from_json(json.dumps(json.loads(GOLDEN) | changes))


@pytest.mark.parametrize("octets", [b"", b"{", b"[]", b"null", b"{}", b"\xff", GOLDEN.replace(b'"v"', b'"w"')])
def test_octets_that_are_no_configuration_are_refused(octets: bytes) -> None:
    with pytest.raises(ConfigurationError, match="a home's configuration"):
        Configuration.from_json(octets)


def test_who_leaves_a_set_that_stays_large_enough_is_not_eligible() -> None:
    value = THREE.without(["b.1"])
    assert (value.v, value.epoch, value.set, value.eligible) == (8, 4, ("a.1", "c.1"), ())


def test_who_leaves_a_set_that_falls_below_min_stays_eligible_unless_its_disk_lost_octets() -> None:
    value = THREE.without(["b.1", "c.1"])
    assert (value.set, value.eligible, value.short) == (("a.1",), ("b.1", "c.1"), True)
    assert THREE.without(["b.1"], lost=["c.1"]).eligible == ("b.1",)
    assert value.without([], lost=["b.1"]).eligible == ("c.1",)


def test_who_joins_empties_the_eligible_when_the_set_is_large_enough() -> None:
    alone = THREE.without(["b.1", "c.1"])
    value = alone.having(["c.1"])
    assert (value.set, value.eligible, value.short) == (("a.1", "c.1"), (), False)
    five = replace(alone, copies=5, min=3)
    assert five.having(["c.1"]).eligible == ("b.1",)


def test_min_that_is_lowered_empties_the_eligible_in_the_same_swap() -> None:
    alone = THREE.without(["b.1", "c.1"])
    assert alone.resized(1, 1).eligible == ()
    raised = THREE.without(["c.1"]).resized(3, 3)
    assert (raised.short, raised.eligible) == (True, ())


def test_the_leader_does_not_leave_by_a_swap_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="does not leave"):
        THREE.without(["a.1"])


def test_a_stranger_does_not_join() -> None:
    with pytest.raises(ConfigurationError, match=r"d\.1 is not of a member"):
        THREE.having(["d.1"])


def test_a_claimer_of_the_set_leads_without_the_old_leader() -> None:
    value = THREE.claimed("b.1")
    assert (value.epoch, value.leader, value.set, value.eligible) == (5, "b.1", ("b.1", "c.1"), ())


def test_the_old_leader_stays_eligible_where_the_set_is_too_small_without_it() -> None:
    value = THREE.without(["c.1"]).claimed("b.1")
    assert (value.set, value.eligible) == (("b.1",), ("a.1",))


def test_a_claimer_that_was_eligible_is_alone_in_the_set() -> None:
    value = THREE.without(["b.1", "c.1"]).claimed("c.1")
    assert (value.leader, value.set, value.eligible) == ("c.1", ("c.1",), ("a.1", "b.1"))


def test_a_leader_that_starts_again_keeps_its_set() -> None:
    value = THREE.claimed("a.1")
    assert (value.epoch, value.set) == (5, THREE.set)


@pytest.mark.parametrize("stranger", ["b.2", "d.1"])
def test_who_may_lack_what_is_complete_does_not_claim(stranger: str) -> None:
    with pytest.raises(ConfigurationError, match="neither in the set nor eligible"):
        THREE.claimed(stranger)
    with pytest.raises(ConfigurationError, match="neither in the set nor eligible"):
        THREE.without(["b.1"]).claimed("b.1")


def test_any_member_leads_by_force_and_alone() -> None:
    for me in ("b.1", "b.9"):
        value = THREE.without(["b.1", "c.1"]).forced(me)
        assert (value.v, value.epoch, value.leader) == (THREE.v + 2, 5, me)
        assert (value.set, value.eligible, value.min) == ((me,), (), 1)
        assert not value.problem()
    with pytest.raises(ConfigurationError, match="d is not a member: a, b, c are"):
        THREE.forced("d.1")


def test_leadership_is_handed_within_the_set() -> None:
    value = THREE.handed("b.1")
    assert (value.epoch, value.leader, value.set) == (5, "b.1", THREE.set)
    for target in ("a.1", "d.1"):
        with pytest.raises(ConfigurationError, match="not a follower in the set"):
            THREE.handed(target)


def test_members_change_one_at_a_time_and_keep_min_replicas_in_the_set() -> None:
    more = THREE.with_member("d")
    assert (more.members, more.set) == (("a", "b", "c", "d"), THREE.set)
    less = more.without_member("b")
    assert (less.members, less.set) == (("a", "c", "d"), ("a.1", "c.1"))
    for node, reason in (("a", "leads"), ("e", "not a member"), ("c", "would have 1 of at least 2")):
        with pytest.raises(ConfigurationError, match=reason):
            less.without_member(node)
    with pytest.raises(ConfigurationError, match="would be 1 of at least 2 members"):
        THREE.without(["b.1", "c.1"]).without_member("c").without_member("b")
    with pytest.raises(ConfigurationError, match="a member already"):
        THREE.with_member("b")


def test_min_is_never_above_the_copies() -> None:
    with pytest.raises(ConfigurationError, match="not 3"):
        THREE.resized(2, 3)


def test_every_swap_has_the_next_version_and_leads_to_a_value_that_is_read_again() -> None:
    """Every swap of three replicas increments the version, and its value is decoded from JSON unchanged."""
    seen, todo = {THREE}, [THREE]
    while todo:
        value = todo.pop()
        others = [one for one in THREE.set if one != value.leader]
        swaps = [value.renewed(), *(value.without(gone) for n in (1, 2) for gone in combinations(others, n))]
        swaps += [value.having([one]) for one in others]
        swaps += [value.claimed(one) for one in value.electable]
        swaps += [value.resized(3, least) for least in (1, 2, 3)]
        swaps += [value.handed(one) for one in value.set if one != value.leader]
        for swap in swaps:
            assert swap.v == value.v + 1
            assert Configuration.from_json(swap.to_json()) == swap
            # By a swap, only a replica that joins or stays may become electable.
            assert {*swap.electable} <= {*value.electable, *others}
            like = replace(swap, v=THREE.v, epoch=THREE.epoch)
            if like not in seen:
                seen.add(like)
                todo.append(like)
    assert len(seen) > 50


def test_the_node_of_a_replica() -> None:
    assert node_of("a.b@host.1f2e3d4c") == "a.b@host"
