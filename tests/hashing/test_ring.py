"""Keys moved by a change of the ring; a stored ring routes as before."""

import copy
import json
import math
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.generating import examples
from tests.hashing.conftest import Vectors

from jumpmq.hashing import HashFunction, HashRing, _kernel, _reference
from jumpmq.hashing import ring as ring_module
from jumpmq.hashing.functions import NAMES as FUNCTIONS
from jumpmq.hashing.ring import RingRemoval

NAMES = [f"q{i}" for i in range(8)]
WEIGHTS = st.integers(1, 12) | st.sampled_from([100, 1000, 10_000])
KEYS = [b"key %d" % i for i in range(1000)]


def ring_of(
    weights: Iterable[tuple[str, int]], removal: RingRemoval = "minimal", function: HashFunction = "phash2"
) -> HashRing:
    ring = HashRing(removal, function)
    for destination, weight in weights:
        ring.add(destination, weight)
    return ring


def places(ring: HashRing, keys: list[bytes] = KEYS) -> list[str | None]:
    return [ring.names[i] if i >= 0 else None for i in ring.route_index(keys)]


def chi_squared(ring: HashRing, counts: Counter[str | None]) -> float:
    """Pearson's statistic of the keys per destination, against the weights."""
    share = sum(counts.values()) / sum(ring.destinations.values())
    return sum((counts[name] - weight * share) ** 2 / (weight * share) for name, weight in ring.destinations.items())


# As RabbitMQ.


@pytest.mark.parametrize("removal", ["minimal", "shift"])
def test_a_ring_decides_as_rabbitmq_on_every_golden_routing_key(vectors: Vectors, removal: RingRemoval) -> None:
    lines = vectors("routing_keys")
    keys = [line["routing_key"].encode() for line in lines]
    for n in lines[0]["consistent_hash"]:
        ring = ring_of(((str(i), 1) for i in range(int(n))), removal)
        assert places(ring, keys) == [str(line["consistent_hash"][n]) for line in lines]


def test_the_documented_example_places_keys_as_rabbitmq_counts_them() -> None:
    ring = ring_of([("q1", 1), ("q2", 1), ("q3", 2), ("q4", 2)])
    counts = Counter(places(ring, [b"%d" % i for i in range(100_000)]))
    assert counts == {"q1": 16638, "q2": 16631, "q3": 33441, "q4": 33290}


@pytest.mark.parametrize("removal", ["minimal", "shift"])
def test_the_steps_of_a_removal_do_not_grow_with_the_ring(removal: RingRemoval) -> None:
    """A removal takes as many steps in a large ring as in a small one, so that 10,000 removals take linear time."""

    def steps(size: int) -> int:
        ring, count = ring_of(((f"q{number}", 1) for number in range(size)), removal), 0

        def trace(frame: FrameType, event: str, argument: object) -> Callable[[FrameType, str, object], Any]:
            nonlocal count
            count += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            ring.remove("q0")
        finally:
            sys.settrace(before)
        return count

    assert steps(1000) == steps(10)


def test_shift_moves_the_buckets_above_down_as_rabbitmq_does() -> None:
    ring = ring_of([("a", 3), ("b", 2), ("c", 4), ("d", 1)], "shift")
    ring.remove("b")
    assert places(ring) == places(ring_of([("a", 3), ("c", 4), ("d", 1)]))
    ring.remove("d")
    ring.add("e", 2)
    assert places(ring) == places(ring_of([("a", 3), ("c", 4), ("e", 2)]))


def test_removing_the_last_added_leaves_the_ring_as_it_was_before() -> None:
    ring = ring_of([("a", 3), ("b", 2)])
    ring.add("c", 5)
    ring.remove("c")
    assert ring.state() == ring_of([("a", 3), ("b", 2)]).state()


def test_a_removed_destination_that_comes_back_gets_its_keys_back() -> None:
    ring = ring_of([("a", 3), ("b", 2), ("c", 4)])
    before = places(ring)
    ring.remove("a")
    ring.add("a", 3)
    assert places(ring) == before


# Promise: only as many keys move as must.


class Changes(RuleBasedStateMachine):
    """Any sequence of additions and removals, by the compiled kernel and by the plain one."""

    function: HashFunction = "phash2"

    def __init__(self) -> None:
        super().__init__()
        self.ring = HashRing(function=self.function)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ring_module, "Buckets", _reference.Buckets)
            self.twin = HashRing(function=self.function)
        self.places = places(self.ring)

    def change(self, name: str, *arguments: object) -> list[tuple[str | None, str | None]]:
        """Change the ring. Return the moved keys' old and new destinations."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ring_module, "Buckets", _kernel.Buckets)
            getattr(self.ring, name)(*arguments)
            patch.setattr(ring_module, "Buckets", _reference.Buckets)
            getattr(self.twin, name)(*arguments)
        before, self.places = self.places, places(self.ring)
        return [(old, new) for old, new in zip(before, self.places, strict=True) if old != new]

    @rule(name=st.sampled_from(NAMES), weight=WEIGHTS)
    def add(self, name: str, weight: int) -> None:
        if name in self.ring:
            with pytest.raises(ValueError, match="is on the ring already"):
                self.ring.add(name, weight)
            return
        moves = self.change("add", name, weight)
        assert all(new == name for _, new in moves), "an addition moved a key to another destination than the new one"

    @precondition(lambda self: self.ring.names)
    @rule(choice=st.randoms(use_true_random=False))
    def remove(self, choice: random.Random) -> None:
        name = choice.choice(self.ring.names)
        moves = self.change("remove", name)
        assert all(old == name for old, _ in moves), "a removal moved a key of another destination than the removed one"

    @rule()
    def store_and_restore(self) -> None:
        state = self.ring.state()
        self.ring = HashRing.restore(json.loads(json.dumps(state)))
        assert self.ring.state() == state

    @invariant()
    def every_key_has_a_place_on_the_ring(self) -> None:
        assert self.places == places(self.ring)
        owners: set[str | None] = {*self.ring.names} or {None}
        assert set(self.places) <= owners

    @invariant()
    def both_kernels_decide_alike(self) -> None:
        assert places(self.twin, KEYS[:30]) == self.places[:30]
        assert [self.ring.route(key) for key in KEYS[:30]] == self.places[:30]

    @invariant()
    def names_and_weights_are_in_order_of_addition(self) -> None:
        assert self.ring.names == list(self.ring.destinations)
        assert self.ring.buckets == sum(self.ring.destinations.values())


class WideChanges(Changes):
    """Changes with 64-bit keys."""

    function: HashFunction = "xxh64"


TestChanges = Changes.TestCase
TestWideChanges = WideChanges.TestCase
TestChanges.settings = TestWideChanges.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None
)


def test_removing_each_of_ten_moves_its_keys_only() -> None:
    for removed in range(10):
        ring = ring_of((f"q{i}", 1) for i in range(10))
        before = places(ring)
        ring.remove(f"q{removed}")
        moved = {old for old, new in zip(before, places(ring), strict=True) if old != new}
        assert moved == {f"q{removed}"}


# Balance. The keys have fixed seeds: a statistic beyond the 0.999 quantile would occur in every run. 200,000
# keys are few relative to the 2**21 values distinguished by a ring.


def quantile(degrees_of_freedom: int) -> float:
    """The 0.999 quantile of a chi-squared statistic (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * degrees_of_freedom)
    return degrees_of_freedom * (1 - spread + 3.0902 * math.sqrt(spread)) ** 3


def shares(ring: HashRing) -> Counter[str | None]:
    """Number of 200,000 random keys per destination."""
    rng = random.Random(20240607)
    return Counter(places(ring, [rng.randbytes(12) for _ in range(200_000)]))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "removed",
    [["q0"], ["q5"], ["q0", "q1", "q2"], ["q9", "q0", "q8"], ["q3", "q7", "q1", "q5", "q2", "q6"]],
    ids=lambda removed: "-".join(removed),
)
def test_keys_stay_balanced_by_weight_after_removals(removed: list[str], function: HashFunction) -> None:
    ring = ring_of(((f"q{i}", 1 + i % 4) for i in range(10)), function=function)
    for name in removed:
        ring.remove(name)
    assert chi_squared(ring, shares(ring)) < quantile(len(ring) - 1)


def test_the_keys_of_a_removed_destination_spread_by_weight_over_the_rest() -> None:
    ring = ring_of([("gone", 5), ("a", 1), ("b", 2), ("c", 3), ("d", 4)])
    rng = random.Random(7)
    keys = [rng.randbytes(12) for _ in range(200_000)]
    orphans = [key for key, place in zip(keys, places(ring, keys), strict=True) if place == "gone"]
    ring.remove("gone")
    assert len(orphans) > 60_000
    assert chi_squared(ring, Counter(places(ring, orphans))) < quantile(3)


def test_keys_stay_balanced_over_a_long_life_of_changes() -> None:
    rng = random.Random(3)
    ring = ring_of((f"q{i}", rng.randint(1, 9)) for i in range(20))
    for i in range(20, 500):
        ring.remove(rng.choice(ring.names))
        ring.add(f"q{i}", rng.randint(1, 9))
    assert chi_squared(ring, shares(ring)) < quantile(19)


# State.


def test_state_is_runs_not_buckets() -> None:
    ring = ring_of([("a", 10_000), ("b", 5_000), ("c", 1)])
    ring.remove("a")
    ring.add("d", 2_000)
    assert ring.state() == {
        "removal": "minimal",
        "function": "phash2",
        "destinations": [["b", [[10_000, 5_000]]], ["c", [[15_000, 1]]], ["d", [[0, 2_000]]]],
        "retired": [[2_000, 8_000]],
    }


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES), WEIGHTS), max_size=30),
    st.sampled_from(["minimal", "shift"]),
    st.sampled_from(FUNCTIONS),
)
def test_a_restored_ring_decides_and_goes_on_as_the_stored_one(
    changes: list[tuple[bool, str, int]], removal: RingRemoval, function: HashFunction
) -> None:
    ring = HashRing(removal, function)
    for add, name, weight in changes:
        if add and name not in ring:
            ring.add(name, weight)
        elif not add and name in ring:
            ring.remove(name)
    assert ring.state_text() == json.dumps(ring.state(), separators=(",", ":"))
    restored = HashRing.restore(json.loads(ring.state_text()))
    for each in (ring, restored):
        each.add("another", 3)
        each.remove(each.names[0])
    assert restored.state() == ring.state()
    assert restored.destinations == ring.destinations
    assert (restored.removal, restored.function) == (removal, function)
    assert places(restored) == places(ring)


def test_a_ring_can_be_pickled_and_copied() -> None:
    ring = ring_of([("a", 3), ("b", 2), ("c", 4)])
    ring.remove("a")
    for twin in (pickle.loads(pickle.dumps(ring)), copy.deepcopy(ring)):
        assert twin.state() == ring.state()
        twin.remove("b")
    assert list(ring.destinations) == ["b", "c"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"function": "md5"}, "unknown hash function md5; expected phash2, xxh64, murmur2 or murmur3"),
        ({"removal": "magic"}, "a ring's removal is minimal or shift, not 'magic'"),
        ({"retired": [[0, 1]]}, "bucket 0 is there twice or not at all"),
        ({"retired": [[9, 1]]}, "bucket 3 is there twice or not at all"),
        ({"retired": [[3, 0]]}, "run"),
        ({"retired": 7}, "int"),
        ({"destinations": [["a", [[0, 3]]], ["a", [[3, 1]]]]}, "destination 'a'"),
        ({"destinations": [["a", [[0, 10_001]]]]}, "destination 'a' of weight 10001"),
        ({"destinations": [["a", []]]}, "destination 'a' of weight 0"),
        ({"removal": "shift", "destinations": [["b", [[1, 2]]], ["a", [[0, 1]]]]}, "in order of addition"),
        ({"removal": "shift", "destinations": [["a", [[0, 1]]]], "retired": [[1, 2]]}, "one run a destination"),
        ({"destinations": [], "retired": [[0, 1]]}, "retired buckets, and no destination"),
    ],
)
def test_what_is_no_state_of_a_ring_is_refused(change: dict[str, Any], reason: str) -> None:
    state = ring_of([("a", 1), ("b", 2)]).state() | change
    with pytest.raises(ValueError, match=f"not the state of a hash ring: .*{reason}"):
        HashRing.restore(state)


def test_a_state_without_a_function_is_one_of_phash2() -> None:
    state = ring_of([("a", 3), ("b", 2)]).state()
    del state["function"]
    assert places(HashRing.restore(state)) == places(ring_of([("a", 3), ("b", 2)]))


@pytest.mark.parametrize("missing", ["removal", "destinations", "retired"])
def test_a_state_that_lacks_a_part_is_refused(missing: str) -> None:
    state = ring_of([("a", 1)]).state()
    del state[missing]
    with pytest.raises(ValueError, match=f"not the state of a hash ring: '{missing}'"):
        HashRing.restore(state)


# The edges.


def test_an_empty_ring_routes_to_nothing() -> None:
    ring = HashRing()
    assert ring.route(b"a") is None
    assert ring.route_index([b"a", b"b"]) == [-1, -1]
    assert ring.route_index([]) == []


def test_a_ring_that_lost_all_begins_anew() -> None:
    ring = ring_of([("a", 3), ("b", 2)])
    ring.remove("a")
    ring.remove("b")
    assert ring.route(b"a") is None
    ring.add("c", 2)
    assert ring.state() == ring_of([("c", 2)]).state()


@pytest.mark.parametrize("weight", [0, -1, 10_001, 1.0, "1", True, None])
def test_a_weight_is_an_integer_from_1_to_10000(weight: object) -> None:
    ring = ring_of([("a", 1)])
    with pytest.raises(ValueError, match=f"a weight is an integer from 1 to 10000, not {weight!r}"):
        ring.add("b", weight)  # type: ignore[arg-type]
    assert ring.destinations == {"a": 1}


def test_a_destination_is_on_the_ring_once() -> None:
    ring = ring_of([("a", 1)])
    with pytest.raises(ValueError, match="'a' is on the ring already, with weight 1"):
        ring.add("a", 2)
    assert ring.buckets == 1


def test_removing_what_is_not_on_the_ring_is_refused() -> None:
    with pytest.raises(KeyError, match="'b' is not on the ring"):
        ring_of([("a", 1)]).remove("b")


def test_an_unknown_hash_function_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown hash function md5; expected phash2, xxh64, murmur2 or murmur3"):
        HashRing(function="md5")  # type: ignore[arg-type]


def test_an_unknown_removal_is_refused() -> None:
    with pytest.raises(ValueError, match="a ring's removal is minimal or shift, not 'maximal'"):
        HashRing("maximal")  # type: ignore[arg-type]
