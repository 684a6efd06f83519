"""Arrow arrays of keys: any layout hashes as the single keys, and damaged buffers are refused."""

import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumpmq.hashing import HashFunction, HashRing, _kernel, _reference, modulus, modulus_array, terms
from jumpmq.hashing.arrow import KeyBuffers, key_buffers
from jumpmq.hashing.functions import NAMES, NUMBERS
from jumpmq.hashing.ring import RingRemoval

BINARY = [pa.binary(), pa.large_binary()]
STRING = [pa.string(), pa.large_string()]
KEYS = st.none() | st.binary(max_size=40)
TEXTS = st.none() | st.text(max_size=20)


def ring_of(destinations: int = 10, function: HashFunction = "phash2") -> HashRing:
    ring = HashRing(function=function)
    for i in range(destinations):
        ring.add(f"q{i}", 1 + i % 3)
    return ring


@st.composite
def arrays(draw: st.DrawFn) -> pa.Array:
    """Arrays of every key type, with nulls, sliced anywhere."""
    kind = draw(st.sampled_from(BINARY + STRING))
    array = pa.array(draw(st.lists(KEYS if kind in BINARY else TEXTS, max_size=30)), kind)
    start = draw(st.integers(0, len(array)))
    return array.slice(start, draw(st.integers(0, len(array) - start)))


def one_by_one(array: pa.Array) -> list[bytes | int]:
    keys = [key.encode() if isinstance(key, str) else key for key in array.to_pylist()]
    return [terms.MISSING if key is None else key for key in keys]


@given(arrays(), st.sampled_from(NAMES))
def test_an_array_routes_as_its_keys_one_by_one(array: pa.Array, function: HashFunction) -> None:
    ring = ring_of(function=function)
    assert ring.route_array(array).to_pylist() == [ring.route(key) for key in one_by_one(array)]


@given(arrays(), st.sampled_from(list(NUMBERS.values())))
def test_both_kernels_read_arrays_alike(array: pa.Array, function: int) -> None:
    outs = []
    for kernel in (_kernel, _reference):
        buckets = kernel.Buckets(function)
        buckets.append(7, 0)
        buckets.assign(3, 4, 1)
        buckets.retire(1, 3)
        owners, remainders = bytearray(4 * len(array)), bytearray(4 * len(array))
        buckets.owners_of_arrow(owners, key_buffers(array))
        kernel.modulus_of_arrow(remainders, 1000, key_buffers(array), function)
        outs.append((owners, remainders))
    assert outs[0] == outs[1]


@given(arrays(), st.integers(1, 1000))
def test_the_modulus_of_an_array_is_that_of_its_keys_one_by_one(array: pa.Array, n: int) -> None:
    undefined = 7682534  # erlang:phash2([undefined])
    expected = [undefined % n if isinstance(key, int) else modulus([key], n) for key in one_by_one(array)]
    assert modulus_array(array, n).to_pylist() == expected
    for function in NAMES[1:]:
        found = [modulus([b"a" if isinstance(key, int) else key], n, function) for key in one_by_one(array)]
        given = array.cast(array.type).fill_null("a" if pa.types.is_unicode(array.type) else b"a")
        assert modulus_array(given, n, function).to_pylist() == found


@pytest.mark.parametrize("function", NAMES)
def test_a_long_array_decides_the_same_when_its_decisions_are_remembered(function: HashFunction) -> None:
    ring = ring_of(function=function)
    keys = [b"%d" % i for i in range(100_000)]
    array = pa.array(keys, pa.binary())
    expected = ring.route_index(keys)
    for _ in range(3):
        assert ring.route_array(array).indices.to_pylist() == expected


@pytest.mark.parametrize("removal", ["minimal", "shift"])
def test_remembered_decisions_are_forgotten_when_the_ring_changes(removal: RingRemoval) -> None:
    ring = HashRing(removal)
    keys = [b"%d" % i for i in range(100_000)]
    array = pa.array(keys, pa.binary())
    for name, weight in [("a", 3), ("b", 2), ("c", 5), ("a", None), ("d", 1), ("c", None)]:
        if weight:
            ring.add(name, weight)
        else:
            ring.remove(name)
        assert ring.route_array(array).indices.to_pylist() == ring.route_index(keys)


def test_many_destinations_are_told_apart_in_long_arrays() -> None:
    ring = ring_of(66_000)
    keys = [b"%d" % i for i in range(200_000)]
    array = pa.array(keys, pa.binary())
    for _ in range(2):
        assert ring.route_array(array).indices.to_pylist() == ring.route_index(keys)


def test_a_batch_under_way_finishes_on_the_ring_as_it_was_when_the_ring_changes() -> None:
    array = pa.array([b"%d" % i for i in range(3_000_000)], pa.binary())
    before = ring_of().route_array(array)
    ring = ring_of()
    begun = threading.Event()

    def route() -> pa.DictionaryArray:
        begun.set()
        return ring.route_array(array)

    with ThreadPoolExecutor(1) as thread:
        routed = thread.submit(route)
        begun.wait()
        time.sleep(0.05)  # a third of the batch's duration
        ring.add("new", 10_000)
        ring.remove("q0")
        assert routed.result() == before
    assert "q0" not in ring.route_array(array).dictionary.to_pylist()


def test_chunks_stay_chunks() -> None:
    ring = ring_of()
    chunked = pa.chunked_array([["a", "b"], [], [None, "c"]], pa.string())
    routed = ring.route_array(chunked)
    assert [len(chunk) for chunk in routed.chunks] == [2, 0, 2]
    assert routed.to_pylist() == [ring.route(key) for key in (b"a", b"b", terms.MISSING, b"c")]
    assert ring.route_array(pa.chunked_array([], pa.string())).to_pylist() == []


def test_dictionary_keys_are_the_values_they_stand_for() -> None:
    ring = ring_of()
    keys = pa.array(["a", "b", "a", None])
    assert ring.route_array(keys.dictionary_encode()) == ring.route_array(keys)


def test_an_empty_ring_routes_an_array_to_nothing() -> None:
    assert HashRing().route_array(pa.array(["a", None])).to_pylist() == [None, None]


@pytest.mark.parametrize("array", [pa.array([1, 2]), pa.array(["a"], pa.string_view()), pa.nulls(3)])
def test_an_array_of_another_type_is_refused(array: pa.Array) -> None:
    with pytest.raises(TypeError, match=r"keys are binary or string, not .*: cast them first"):
        ring_of().route_array(array)
    with pytest.raises(TypeError, match=r"keys are binary or string, not .*: cast them first"):
        modulus_array(array, 3)


def offsets(*values: int) -> bytes:
    return struct.pack(f"={len(values)}i", *values)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (KeyBuffers(False, None, offsets(0, 9), b"abc", 0, 1), "points outside its octets"),
        (KeyBuffers(False, None, offsets(-1, 2), b"abc", 0, 1), "points outside its octets"),
        (KeyBuffers(False, None, offsets(2, 1), b"abc", 0, 1), "points outside its octets"),
        (KeyBuffers(False, None, offsets(0, 1), None, 0, 1), "points outside its octets"),
        (KeyBuffers(True, None, offsets(0, 1), b"abc", 0, 1), "too small"),
        (KeyBuffers(False, None, offsets(0, 1), b"abc", 1, 1), "too small"),
        (KeyBuffers(False, None, None, b"abc", 0, 1), "too small"),
        (KeyBuffers(False, b"", offsets(0, 1), b"abc", 0, 1), "too small"),
        (KeyBuffers(False, None, offsets(0, 1), b"abc", -1, 1), "negative"),
        (KeyBuffers(False, None, offsets(0, 1), b"abc", 0, -1), "negative"),
    ],
)
def test_damaged_buffers_are_refused(kernel: ModuleType, keys: KeyBuffers, reason: str) -> None:
    buckets = kernel.Buckets()
    buckets.append(2, 0)
    with pytest.raises(ValueError, match=reason):
        buckets.owners_of_arrow(bytearray(8), keys)
    with pytest.raises(ValueError, match=reason):
        kernel.modulus_of_arrow(bytearray(8), 2, keys)


def test_room_for_too_few_answers_is_refused(kernel: ModuleType) -> None:
    buckets = kernel.Buckets()
    buckets.append(2, 0)
    with pytest.raises(ValueError, match="a buffer of 7 octets is too small: 8 are needed"):
        buckets.owners_of_arrow(bytearray(7), key_buffers(pa.array(["a", "b"])))


def test_a_modulus_of_nothing_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="a modulus is 1 or more, not 0"):
        kernel.modulus_of_arrow(bytearray(4), 0, key_buffers(pa.array(["a"])))
