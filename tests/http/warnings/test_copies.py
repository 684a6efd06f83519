"""Warnings of a cluster with missing copies."""

from dataclasses import replace

from jumpmq.broker.copies import CopyChanges, CopyState, HomeCopies
from jumpmq.http.warnings.copies import of_copies
from jumpmq.http.warnings.warning import Warning

NODES = ["one", "two", "three", "four", "five"]


def home(number: int, states: dict[str, CopyState], least: int = 2) -> HomeCopies:
    """A home with copies at its node and at the two following nodes."""
    members = [NODES[(number - 1 + step) % 5] for step in range(3)]
    found: dict[str, CopyState] = {node: states.get(node, "in set") for node in members}
    leader = next(node for node in members if found[node] == "in set")
    found[leader] = "leader"
    return HomeCopies(
        home=number,
        seat=members[0],
        leader=leader,
        epoch=1,
        copies=3,
        min=least,
        members=found,
        wanted_copies=3,
        wanted_min=least,
        wanted_members=tuple(members),
        wanted_leader="",
        lag_octets={},
        racks={},
        troubles={},
        damaged=frozenset(),
        lag_seconds={},
        lease_left=None,
        changes=CopyChanges(),
    )


def test_a_lost_node_is_one_warning_that_names_the_node() -> None:
    (told,) = of_copies([home(number, {"one": "away"}) for number in range(1, 6)])
    assert (told.kind, told.severity, told.name) == ("copies-missing", "warning", "one")
    counts = ", ".join(f"home {number} has 2 of 3 copies" for number in (1, 4, 5))
    assert told.text == f"one is away: {counts}."
    assert told.advice.startswith("Start one.")
    assert (
        "`jumpmqctl drain --node one` and `jumpmqctl forget_cluster_node one` end its home, `jumpmqctl grow"
        in told.advice
    )
    (told,) = of_copies([home(number, {"one": "joining"}) for number in range(1, 6)])
    assert told.text == f"one fetches missing data: {counts}." and "Start" not in told.advice


def test_damage_of_all_complete_copies_has_other_advice_than_damage_of_one() -> None:
    def damaged(*nodes: str) -> list[Warning]:
        troubles = dict.fromkeys(nodes, "the copy is damaged")
        return [*of_copies([replace(home(1, {}), troubles=troubles, damaged=frozenset(nodes))])]

    (told,) = damaged("two")
    assert (told.kind, told.name, told.text) == ("copy-damaged", "two", "Copy of home 1: the copy is damaged.")
    assert told.advice.startswith("The copy is made again from another one")
    found = damaged("one", "two", "three")
    assert [one.name for one in found] == ["one", "two", "three"]
    assert "`jumpmqctl check_copies 1`" in found[0].advice


def test_homes_below_min_name_the_nodes_to_start() -> None:
    (told,) = of_copies([home(1, {"one": "away", "two": "eligible"})])
    assert (told.kind, told.severity, told.name) == ("copies-below-min", "alarm", "one")
    assert told.text == "Nothing is confirmed at home 1: 1 of at least 2 copies are there."
    assert told.advice.startswith("Start the missing nodes: one is away, two is behind. ")
    assert "`jumpmqctl set_copies 3 --home 1 --min 1` asks" in told.advice
    damaged = replace(home(1, {"one": "away", "two": "eligible"}), damaged=frozenset({"two"}))
    (told,) = of_copies([damaged])
    assert told.advice.startswith("Start the missing nodes: one is away, two has a damaged copy. ")
    (told,) = of_copies([home(1, {"one": "away", "two": "eligible"})], {1})
    assert told.text.endswith(": 1 of at least 2 copies are there, and no node serves the home.")


def test_a_running_node_whose_home_another_node_serves_is_named_with_the_way_to_return() -> None:
    returning = replace(home(2, {}), leader="three", members={"two": "in set", "three": "leader", "four": "in set"})
    (told,) = of_copies([home(1, {}), returning])
    assert (told.kind, told.severity, told.name) == ("served-elsewhere", "warning", "two")
    assert told.text == "two runs, and waits with its ports closed: home 2 is served by three."
    assert told.advice.endswith("At once: `jumpmqctl transfer_leadership 2 two`.")
    assert not [*of_copies([replace(returning, wanted_leader="three")])]
    members: dict[str, CopyState] = {"two": "away", "three": "leader", "four": "in set"}
    assert [one.kind for one in of_copies([replace(returning, members=members)])] == ["copies-missing"]
