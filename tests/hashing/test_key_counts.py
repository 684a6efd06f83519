"""Keys are counted in a bounded space: about how many different ones there are, and surely which are frequent."""

import random

import pytest

from jumpmq.hashing import _reference, kernel
from jumpmq.topology.exchanges.traffic import STANDARD_ERROR, distinct


def stream(count, hot=0.0, seed=1):
    chosen = random.Random(seed)
    return [b"hot" if chosen.random() < hot else b"key-%d" % chosen.randrange(count) for _ in range(count)]


MISSING = object()


def test_the_kernel_counts_as_its_plain_twin():
    keys = [
        *stream(40_000, hot=0.2),
        *[b"short key"[:size] for size in range(10)],
        b"x" * 1000,
        7,
        -7,
        1 << 70,
        *[MISSING] * 7,
    ]
    owners = [number % 3 for number in range(len(keys))]
    counted, plain = kernel.KeyCounts(4), _reference.KeyCounts(4)
    for one in (counted, plain):
        one.note(keys, owners, MISSING)
    for one, other in ((counted, plain), (counted.merged(counted), plain.merged(plain))):
        assert one.messages() == other.messages()
        assert one.noted == other.noted
        assert [one.ranks(owner) for owner in range(-1, 4)] == [other.ranks(owner) for owner in range(-1, 4)]
        assert sorted(one.frequent()) == sorted(other.frequent())


@pytest.mark.parametrize("count", [1, 10, 500, 3_000, 100_000])
def test_different_keys_are_estimated(count):
    counted = kernel.KeyCounts(1)
    for _ in range(2):
        counted.note([b"order-%d" % number for number in range(count)], [0] * count)
    assert distinct(counted.ranks()) == pytest.approx(count, rel=4 * STANDARD_ERROR, abs=1)


def test_no_key_is_no_key():
    assert distinct(kernel.KeyCounts(3).ranks()) == 0


def test_a_frequent_key_is_found_with_its_share():
    keys = stream(200_000, hot=0.1)
    counted = kernel.KeyCounts(1)
    counted.note(keys, [0] * len(keys))
    key, owner, count, error = max(counted.frequent(), key=lambda one: one[2] - one[3])
    assert (key, owner) == (b"hot", 0)
    assert count - error == pytest.approx(keys.count(b"hot"), rel=0.1)


def test_a_few_messages_are_counted_exactly():
    counted = kernel.KeyCounts(2)
    counted.note([b"a", b"b", b"a"], [0, 1, 0])
    assert sorted(counted.frequent()) == [(b"a", 0, 2, 0), (b"b", 1, 1, 0)]


def test_what_is_not_a_key_or_an_owner_is_refused():
    counted = kernel.KeyCounts(2)
    with pytest.raises(TypeError):
        counted.note(["text"], [0])
    with pytest.raises(IndexError):
        counted.note([b"key"], [2])
    with pytest.raises(ValueError):
        counted.note([b"key"], [])
    with pytest.raises(ValueError):
        counted.merged(kernel.KeyCounts(3))
