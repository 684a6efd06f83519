"""The previewed moves of a change are the moves of the change."""

from typing import Any

import pytest

from jumpmq.hashing import HashRing, murmur2
from jumpmq.topology.what_if import Step, least, modulus_outcomes, ring_outcomes, weights_after


def ring(removal: Any = "minimal", function: Any = "phash2", **weights: Any) -> HashRing:
    made = HashRing(removal, function)
    for name, weight in weights.items():
        made.add(name, weight)
    return made


def test_unbinding_moves_one_destinations_keys_or_nearly_all() -> None:
    found = ring_outcomes(ring(**{f"q{number}": 1 for number in range(10)}).state(), [Step("q0", 0)])
    assert found["minimal"].moved == pytest.approx(0.1, abs=0.005)
    assert {move.source for move in found["minimal"].moves} == {"q0"}
    assert found["shift"].moved > 0.9


def test_binding_moves_keys_to_the_new_destination_alone() -> None:
    for outcome in ring_outcomes(ring("shift", q0=1, q1=1).state(), [Step("q2", 2)]).values():
        assert outcome.moved == pytest.approx(0.5, abs=0.01)
        assert {move.target for move in outcome.moves} == {"q2"}


def test_the_ring_itself_stays_as_it_is() -> None:
    whole = ring(q0=1, q1=2)
    before = whole.state()
    ring_outcomes(before, [Step("q0", 0)])
    assert whole.state() == before


def test_what_is_foretold_is_what_comes() -> None:
    whole, keys = ring(a=3, b=2, c=1), [b"%d" % number for number in range(20_000)]
    foretold = ring_outcomes(whole.state(), [Step("b", 5)])["minimal"]
    before = [whole.route(key) for key in keys]
    whole.remove("b")
    whole.add("b", 5)
    moved = sum(1 for was, key in zip(before, keys, strict=True) if whole.route(key) != was)
    assert moved / len(keys) == pytest.approx(foretold.moved, abs=0.02)


@pytest.mark.parametrize("function", ["phash2", "xxh64", "murmur2"])
def test_the_other_way_of_removing_is_foretold_with_the_same_hash(function: str) -> None:
    given = {f"q{number}": 1 for number in range(10)}
    state = ring("minimal", function, **given).state()
    expected = ring_outcomes(ring("shift", function, **given).state(), [Step("q3", 0)])["shift"]
    assert ring_outcomes(state, [Step("q3", 0)])["shift"] == expected


def test_a_modulus_is_foretold_with_its_hash() -> None:
    before, after = ["q0", "q1", "q2"], ["q0", "q1", "q2", "q3"]
    found = [modulus_outcomes(before, after, function)["modulus"] for function in ("phash2", "murmur2", "murmur3")]
    assert len({one.moved for one in found}) == 3
    keys = [b"%d" % number for number in range(1 << 17)]
    moved = sum(murmur2(key) % 3 != murmur2(key) % 4 for key in keys) / len(keys)
    assert found[1].moved == pytest.approx(moved)


def test_least_is_what_the_shares_demand() -> None:
    assert least({"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 2}) == pytest.approx(0.5)
    assert least({"a": 1, "b": 1}, {"a": 3, "b": 1}) == pytest.approx(0.25)
    assert least({"a": 1}, {}) == 0


def test_a_remainder_moves_nearly_all() -> None:
    found = modulus_outcomes(["a", "b", "c", "d"], ["a", "b", "c", "d", "e"])
    assert found["modulus"].moved == pytest.approx(0.8, abs=0.01)


def test_steps_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(ValueError, match="not bound"):
        weights_after({"a": 1}, [Step("b", 0)])
    with pytest.raises(ValueError, match="weight"):
        weights_after({"a": 1}, [Step("a", 10_001)])
