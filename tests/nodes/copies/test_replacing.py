"""Racks of nodes, and long absences of nodes: replacement nodes get the copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd import etcd, needs_etcd
from tests.nodes.copies.copied_nodes import Nodes, published, served, taken, until

from jumpmq.management import ManagementClient
from jumpmq.replication.configuration import Configuration, node_of
from jumpmq.replication.wanted import Wanted

NODES = ["a", "b", "c", "d", "e"]
RACKS = {"a": "left", "b": "left", "c": "right", "d": "right"}


def configured(*members: str, leader: str = "a", set: str = "") -> Configuration:
    """Return a configuration whose set has the nodes named by letters, by default all members."""
    replicas = tuple(f"{one}.disk" for one in set or members)
    return Configuration(
        v=1, log="log", seat="a", copies=3, min=2, members=members, epoch=1, leader=f"{leader}.disk", set=replicas
    )


@pytest.mark.parametrize(
    ("seat", "copies", "members"),
    [("a", 2, "ac"), ("a", 3, "ace"), ("b", 3, "bce"), ("d", 4, "deab"), ("c", 5, "ceadb"), ("e", 1, "e")],
)
def test_copies_are_in_different_racks_first(seat: str, copies: int, members: str) -> None:
    assert "".join(Wanted.of(seat, NODES, copies, racks=RACKS).members) == members


def test_without_racks_copies_are_at_the_next_nodes() -> None:
    assert Wanted.of("d", NODES, 3).members == ("d", "e", "a")
    assert Wanted.of("gone", NODES, 3).members == ("gone", "a", "b")


def test_another_node_takes_the_place_of_one_that_is_gone() -> None:
    wanted = Wanted(3, 2, ("a", "c", "e"), leader="c")
    known = configured("a", "c", "e")
    assert wanted.replaced(known, "abde", {"c"}, RACKS) == Wanted(3, 2, ("a", "d", "e"))
    assert wanted.replaced(known, "abcde", set(), RACKS) is None
    assert wanted.replaced(known, "ae", {"c"}, RACKS) is None, "there is no other node"
    assert wanted.replaced(configured("a", "c"), "abde", {"c"}, RACKS) is None, "the last change is not over"
    assert wanted.replaced(known, "abd", {"c", "e"}, RACKS) == Wanted(3, 2, ("a", "d", "e")), "one at a time"


def test_the_seat_keeps_its_place_and_another_node_stands_in() -> None:
    wanted = Wanted(3, 2, ("a", "c", "e"))
    more = wanted.replaced(configured("a", "c", "e", leader="c", set="ce"), "bcde", {"a"}, RACKS)
    assert more == Wanted(3, 2, ("a", "c", "e", "b"))
    away = configured("a", "c", "e", "b", leader="c", set="ceb")
    assert more.replaced(away, "bcde", {"a"}, RACKS) is None
    assert more.replaced(away, "bde", {"a", "c"}, RACKS) == Wanted(3, 2, ("a", "d", "e", "b"))
    assert more.replaced(away, "abcde", set(), RACKS) is None, "it is not in the set yet"
    assert more.replaced(configured("a", "c", "e", "b", leader="c"), "abcde", set(), RACKS) == wanted


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Nodes]:
    """Four nodes in two racks; every home has two copies."""
    racks = {"n1@host": "left", "n2@host": "left", "n3@host": "right", "n4@host": "right"}
    options = {name: ("--replace-after", "2", "--return-after", "1", "--rack", rack) for name, rack in racks.items()}
    with etcd(tmp_path) as members, Nodes(tmp_path, members[0].url, options) as nodes:
        yield nodes


def members(nodes: Nodes) -> set[str]:
    return {one[:2] for one in nodes.configuration().members}


def are_copied_to(nodes: Nodes, *wanted: str) -> bool:
    return {node_of(one)[:2] for one in nodes.configuration().set} == members(nodes) == {*wanted}


@needs_etcd
@pytest.mark.several
@pytest.mark.slow
def test_lost_nodes_are_replaced_and_a_seat_that_returns_gets_its_home_back(four: Nodes) -> None:
    one, two, three, _ = four.all
    published(one, "q", range(50))
    client = ManagementClient(f"http://guest:guest@127.0.0.1:{two.http_port}", 60.0)
    client.put("copies", "1", body={"copies": 2})
    until(lambda: are_copied_to(four, "n1", "n3"))
    assert [member.get("rack") for member in client.get("copies", "1")["members"]] == ["left", "right"]
    three.kill()
    until(lambda: are_copied_to(four, "n1", "n4"))
    published(two, "q", range(50, 80))
    one.kill()
    until(lambda: members(four) == {"n1", "n4", "n2"} and len(four.configuration().set) == 2)
    assert served(two, "q") == 80
    one.start()
    until(lambda: are_copied_to(four, "n1", "n4"))
    assert taken(one, "q") == list(range(80))


@needs_etcd
@pytest.mark.several
@pytest.mark.slow
def test_a_home_below_min_goes_on_with_a_copy_at_another_node(four: Nodes) -> None:
    """A home below `min` confirms and serves nothing until its last copy has filled a second one."""
    one, two, three, last = four.all
    published(one, "q", range(50))
    client = ManagementClient(f"http://guest:guest@127.0.0.1:{last.http_port}", 60.0)
    client.put("copies", "1", body={"copies": 3})
    until(lambda: are_copied_to(four, "n1", "n2", "n3"))
    published(last, "q", range(50, 100))
    one.kill()
    three.kill()
    until(lambda: {node_of(one)[:2] for one in four.configuration().set} == {"n2", "n4"})
    value = four.configuration()
    assert (node_of(value.leader)[:2], value.min) == ("n2", 2)
    assert served(last, "q") == 100
    published(last, "q", range(100, 120))
    two.kill()
    one.start()
    assert taken(last, "q") == [*range(120)]
