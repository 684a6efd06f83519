"""Shares follow weights within one unit; an assignment moves no more units than any such division needs."""

from collections import Counter
from itertools import islice, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jumpmq.broker.consumer_groups.assignment import Shares, counting, divide, seats, targets


def _divided(
    weights: dict[Any, int], units: list[int], owners: dict[int, Any], holders: dict[int, Any] | None, *, moving: bool
) -> dict[int, Any]:
    """Return the owners of the units after a division, interrupted after each assigned unit."""
    found = {unit: owners[unit] for unit in units if owners.get(unit) in weights}
    for _ in range(len(units) + 1):
        owned: dict[Any, list[int]] = {}
        for unit in units:
            if unit in found:
                owned.setdefault(found[unit], []).append(unit)
        wanted = Shares[Any]().of(weights, owned, len(units), None)
        assert wanted is not None
        unowned = [unit for unit in units if unit not in found]
        given = next(divide(wanted, owned, unowned, holders or {}, moving=moving), None)
        if given is None:
            break
        found[given[0]] = given[1]
    return {unit: found[unit] for unit in units if unit in found}


def assign(
    weights: dict[Any, int], units: list[int], owners: dict[int, Any], holders: dict[int, Any] | None = None
) -> dict[int, Any]:
    """Owners of the units after a division."""
    return _divided(weights, units, owners, holders, moving=True)


def assign_unowned(weights: dict[Any, int], units: list[int], owners: dict[int, Any]) -> dict[int, Any]:
    """Like :func:`assign`, without moving owned units."""
    return _divided(weights, units, owners, None, moving=False)


def targets_at(weights: dict[int, int], first: int, units: int) -> dict[int, int]:
    """Return each member's number of units of one home, computed with pauses."""
    steps = counting(weights, first, units, lambda: False)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return dict(end.value)


members = st.dictionaries(st.integers(0, 200), st.integers(1, 10_000), min_size=1, max_size=64)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[int, int], list[int], dict[int, int]]:
    """Draw members with weights, units, and their previous owners; some owners are gone."""
    weights = draw(members)
    units = list(range(draw(st.integers(0, 200))))
    owner = st.sampled_from([*weights, -1, -2])
    owners = draw(st.dictionaries(st.sampled_from(units), owner)) if units else {}
    return weights, units, owners


def _moves(before: dict[int, int], after: dict[int, int], weights: dict[int, int]) -> int:
    return sum(after[unit] != owner for unit, owner in before.items() if owner in weights)


@given(groups())
def test_every_unit_has_a_member_within_one_unit_of_its_share(
    group: tuple[dict[int, int], list[int], dict[int, int]],
) -> None:
    weights, units, owners = group
    found = assign(weights, units, owners)
    assert list(found) == units
    for member, weight in weights.items():
        count = sum(one == member for one in found.values())
        assert abs(count * sum(weights.values()) - len(units) * weight) < sum(weights.values())


@given(groups())
def test_what_is_right_already_stays(group: tuple[dict[int, int], list[int], dict[int, int]]) -> None:
    weights, units, owners = group
    found = assign(weights, units, owners)
    assert assign(weights, units, found) == found
    assert assign_unowned(weights, units, found) == found


@given(groups())
def test_what_members_have_stays_until_it_may_move(group: tuple[dict[int, int], list[int], dict[int, int]]) -> None:
    weights, units, owners = group
    found = assign_unowned(weights, units, owners)
    assert _moves(owners, found, weights) == 0
    assert list(found) == units


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_no_division_within_one_unit_moves_less(given_weights: list[int], data: st.DataObject) -> None:
    """No other division within one unit moves fewer units: every division is tried."""
    weights = dict(enumerate(given_weights))
    units = list(range(data.draw(st.integers(0, 6))))
    owners = {unit: data.draw(st.sampled_from([*weights, -1])) for unit in units}
    total, best = sum(given_weights), len(units)
    for tried in product(weights, repeat=len(units)):
        counts = [tried.count(member) for member in weights]
        even = all(abs(counts[one] * total - len(units) * weights[one]) < total for one in weights)
        if even:
            best = min(best, _moves(owners, dict(zip(units, tried, strict=True)), weights))
    assert _moves(owners, assign(weights, units, owners), weights) == best


@given(members, st.integers(0, 200))
def test_equal_members_differ_by_one(found: dict[int, int], units: int) -> None:
    counts = targets(dict.fromkeys(found, 7), {}, units).values()
    assert sum(counts) == units
    assert max(counts) - min(counts) <= 1


def test_a_join_moves_only_the_new_members_share() -> None:
    weights: dict[int, int] = {}
    found: dict[int, int] = {}
    units = list(range(1024))
    for member in range(64):
        weights[member] = 1
        before, found = found, assign(weights, units, found)
        assert _moves(before, found, weights) == (len(units) // (member + 1) if member else 0)


def test_a_leave_moves_only_what_the_member_had() -> None:
    weights = dict.fromkeys(range(64), 1)
    units = list(range(1024))
    found = assign(weights, units, {})
    while len(weights) > 1:
        del weights[next(iter(weights))]
        before, found = found, assign(weights, units, found)
        assert _moves(before, found, weights) == 0


def test_members_beyond_the_units_stand_by_and_the_first_are_served() -> None:
    assert targets(dict.fromkeys("abc", 1), {}, 2) == {"a": 1, "b": 1, "c": 0}
    assert targets(dict.fromkeys("abc", 1), {"c": 1}, 2) == {"a": 1, "b": 0, "c": 1}


def test_a_unit_in_handover_comes_back_to_its_holder() -> None:
    weights, units = {"a": 1, "b": 1}, [1, 2, 3, 4]
    owners = {1: "a", 2: "a", 3: "gone", 4: "gone"}
    assert assign(weights, units, owners, {3: "a", 4: "b"}) == {1: "a", 2: "a", 3: "b", 4: "b"}
    owners = {1: "a", 2: "gone", 3: "gone", 4: "b"}
    assert assign(weights, units, owners, {3: "a", 2: "b"}) == {1: "a", 2: "b", 3: "a", 4: "b"}


@given(members, st.lists(st.integers(0, 100), max_size=5))
def test_shares_over_homes_are_those_of_one(weights: dict[int, int], homes: list[int]) -> None:
    """For any number of units per home, a member's total is within one unit of its share."""
    counted, total = Counter[int](), sum(weights.values())
    for place, units in enumerate(homes):
        found = targets_at(weights, sum(homes[:place]), units)
        assert sum(found.values()) == units and min(found.values()) >= 0
        counted += Counter(found)
    for member, weight in weights.items():
        assert abs(counted[member] * total - sum(homes) * weight) < total


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 20), min_size=1, max_size=10), st.integers(0, 300))
def test_the_sequence_of_seats_repeats_itself(weights: dict[int, int], first: int) -> None:
    """The sequence of seats is periodic, so that a home computes only its own part."""
    part = Counter(islice(seats(weights), first, first + 40))
    assert Counter(targets_at(weights, first, 40)) == part
