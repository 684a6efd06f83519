"""The compiled kernel and its reference implementation agree with RabbitMQ."""

import subprocess
import sys
import textwrap
from types import ModuleType

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from tests.hashing.conftest import Vectors

from jumpmq.hashing import HashRing, _kernel, _reference
from jumpmq.hashing._reference import Atom

KEYS = st.binary(max_size=80)
LONG_KEYS = st.builds(lambda octets, times: octets * times, st.binary(max_size=40), st.integers(0, 5000))


def test_every_golden_binary(kernel: ModuleType, vectors: Vectors) -> None:
    lines = [line for line in vectors("phash2") if "binary" in line["term"]]
    assert len(lines) == 225
    assert [line for line in lines if kernel.phash2(bytes.fromhex(line["term"]["binary"])) != line["phash2"]] == []


def test_every_golden_list_of_binaries(kernel: ModuleType, vectors: Vectors) -> None:
    terms = [(line["term"]["list"], line["phash2"]) for line in vectors("phash2") if "list" in line["term"]]
    lists = [(term, hash_) for term, hash_ in terms if all("binary" in element for element in term)]
    assert len(lists) > 100
    for term, hash_ in lists:
        assert kernel.phash2_list([bytes.fromhex(element["binary"]) for element in term]) == hash_


def test_every_golden_bucket(kernel: ModuleType, vectors: Vectors) -> None:
    lines = vectors("jump")
    assert len(lines) == 615
    for line in lines:
        assert {n: kernel.jump(line["key"], int(n)) for n in line["buckets"]} == line["buckets"]


def test_every_golden_routing_key(kernel: ModuleType, vectors: Vectors) -> None:
    lines = vectors("routing_keys")
    assert len(lines) == 501
    for line in lines:
        key = line["routing_key"].encode()
        hash_ = kernel.phash2(key)
        assert {n: kernel.jump(hash_, int(n)) for n in line["consistent_hash"]} == line["consistent_hash"]
        assert {n: kernel.moduli([key], int(n))[0] for n in line["modulus_hash"]} == line["modulus_hash"]


def test_every_golden_key_of_kafka_and_super_streams(kernel: ModuleType, vectors: Vectors) -> None:
    """All golden keys hash as in kafka-python 2.2 and mmh3 5.2."""
    lines = vectors("murmur")
    assert len(lines) == 63
    for line in lines:
        key = bytes.fromhex(line["key"])
        assert kernel.murmur2(key) == line["kafka"]
        assert kernel.murmur3(key) == line["super_stream"]
        for function, name in ((2, "kafka"), (3, "super_stream")):
            assert kernel.moduli([key, b""], 12, function)[0] == line[name] % 12
            buckets = kernel.Buckets(function)
            for owner in range(12):
                buckets.append(1, owner)
            assert buckets.owner(key) == kernel.jump64(line[name], 12)


@pytest.mark.parametrize(
    ("key", "hash_"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_own_tests_without_its_sign(kernel: ModuleType, key: bytes, hash_: int) -> None:
    assert kernel.murmur2(key) == hash_ & 0x7FFFFFFF


def test_murmur3_is_that_of_the_tests_of_rabbitmqs_java_client(kernel: ModuleType) -> None:
    words = (b"hello", b"brave", b"new", b"world")
    assert [kernel.murmur3(word) for word in words] == [1321743225, 3825276426, 2970740106, 2453398188]
    partitions = [kernel.moduli([b"hello%d" % number], 3, 3)[0] for number in range(1, 11)]
    assert partitions == [1, 0, 1, 2, 0, 2, 0, 1, 0, 2]


@given(KEYS | LONG_KEYS)
def test_the_kernels_murmur_alike(key: bytes) -> None:
    assert _kernel.murmur2(key) == _reference.murmur2(key)
    assert _kernel.murmur3(key) == _reference.murmur3(key)


def test_missing_is_the_atom_undefined(kernel: ModuleType) -> None:
    assert _reference.phash2(Atom("undefined")) == kernel.MISSING


@given(KEYS | LONG_KEYS)
def test_the_kernels_hash_alike(key: bytes) -> None:
    assert _kernel.phash2(key) == _reference.phash2(key)


@given(st.lists(KEYS, max_size=5))
def test_the_kernels_hash_lists_alike(keys: list[bytes]) -> None:
    assert _kernel.phash2_list(keys) == _reference.phash2_list(keys)


@given(st.lists(KEYS, max_size=5), st.integers(1, 2**31 - 1))
def test_the_kernels_take_the_same_modulus(keys: list[bytes], n: int) -> None:
    assert _kernel.moduli(keys, n) == _reference.moduli(keys, n)


@given(st.integers(-(2**70), 2**70), st.integers(1, 20_000) | st.integers(1, 2**31 - 1))
def test_the_kernels_jump_alike(key: int, buckets: int) -> None:
    assert _kernel.jump(key, buckets) == _reference.jump(key, buckets)


@given(st.integers(), st.integers(1, 20_000))
def test_a_new_bucket_takes_keys_and_moves_no_other(key: int, buckets: int) -> None:
    assert _kernel.jump(key, buckets + 1) in (_kernel.jump(key, buckets), buckets)


@given(st.integers(), st.integers(-3, 3), st.integers(1, 20_000))
def test_keys_that_agree_in_their_low_21_bits_share_a_bucket(key: int, times: int, buckets: int) -> None:
    assert _kernel.jump(key, buckets) == _kernel.jump(key + times * 2**21, buckets)


@pytest.mark.parametrize("buckets", [0, -1, 2**31, 2**80])
def test_an_impossible_number_of_buckets_is_refused(kernel: ModuleType, buckets: int) -> None:
    for jump in (kernel.jump, kernel.jump64):
        with pytest.raises(ValueError, match="among 1 to 2147483647 buckets, not"):
            jump(1, buckets)


@pytest.mark.parametrize(
    ("key", "hash_"), [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)]
)
def test_xxh64_of_its_specification(kernel: ModuleType, key: bytes, hash_: int) -> None:
    assert kernel.xxh64(key) == hash_


@given(KEYS | LONG_KEYS)
def test_xxh64_is_that_of_the_package(key: bytes) -> None:
    assert _kernel.xxh64(key) == xxhash.xxh64_intdigest(key)


@given(st.integers(0, 2**64 - 1), st.integers(1, 20_000) | st.integers(1, 2**31 - 1))
def test_wide_keys_jump_alike(key: int, buckets: int) -> None:
    assert _kernel.jump64(key, buckets) == _reference.jump64(key, buckets)


@given(st.integers(0, 2**64 - 1), st.integers(1, 20_000))
def test_a_new_bucket_takes_wide_keys_and_moves_no_other(key: int, buckets: int) -> None:
    assert _kernel.jump64(key, buckets + 1) in (_kernel.jump64(key, buckets), buckets)


@given(st.lists(KEYS | st.integers(-(2**63), 2**64 - 1), max_size=8), st.integers(0, 3))
def test_keys_of_both_kinds_find_their_owners_alike(keys: list[bytes | int], function: int) -> None:
    found = []
    for kernel in (_kernel, _reference):
        buckets = kernel.Buckets(function)
        buckets.append(9, 0)
        buckets.assign(3, 4, 1)
        buckets.retire(1, 3)
        found.append(buckets.owners(keys))
        assert found[-1] == [buckets.owner(key) for key in keys]
    assert found[0] == found[1]


def test_a_modulus_of_nothing_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="a modulus is 1 or more, not 0"):
        kernel.moduli([b"a"], 0)


@pytest.mark.parametrize("key", ["text", None, 1.5, bytearray(b"a")])
def test_a_key_of_another_type_is_refused(kernel: ModuleType, key: object) -> None:
    buckets = kernel.Buckets()
    buckets.append(3, 0)
    with pytest.raises(TypeError, match=f"a key is bytes, not {type(key).__name__}"):
        buckets.owner(key)
    with pytest.raises(TypeError, match=f"a key is bytes, not {type(key).__name__}"):
        buckets.owners([b"fine", key])


def python(program: str) -> str:
    """The output of a program in a new interpreter."""
    result = subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout + result.stderr


def test_without_the_compiled_kernel_there_is_one_warning_and_the_same_decision() -> None:
    ring = HashRing()
    for queue, weight in [("q1", 1), ("q2", 1), ("q3", 2), ("q4", 2)]:
        ring.add(queue, weight)
    expected = [ring.route(key) for key in [b"0", b"1", b"2", b"3"]]
    output = python(
        """
        import sys
        sys.modules["jumpmq.hashing._kernel"] = None
        from jumpmq.hashing import COMPILED, HashRing
        ring = HashRing()
        for queue, weight in [("q1", 1), ("q2", 1), ("q3", 2), ("q4", 2)]:
            ring.add(queue, weight)
        print(COMPILED, [ring.names[i] for i in ring.route_index([b"0", b"1", b"2", b"3"])])
        """
    )
    assert f"False {expected}" in output
    assert output.count("RuntimeWarning: jumpmq's hash kernel is not compiled") == 1


def test_a_broker_can_route_without_loading_pyarrow() -> None:
    output = python(
        """
        import sys
        from jumpmq.hashing import HashRing, modulus
        ring = HashRing()
        ring.add("q1", 1)
        print(ring.route(b"a"), modulus([b"a"], 1), "pyarrow" in sys.modules)
        """
    )
    assert output.strip() == "q1 0 False"
