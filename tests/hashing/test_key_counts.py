"""Keys are counted in bounded space: approximate numbers of distinct keys, and certain frequent keys."""

import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from jumpmq.hashing import _reference, kernel
from jumpmq.topology.exchanges.traffic import STANDARD_ERROR, distinct

MISSING = 180132084 & 0x7FFFFFF
IMPLEMENTATIONS = [kernel, _reference]


def stream(count: int, hot: float = 0.0) -> list[bytes]:
    chosen = random.Random(1)
    return [b"hot" if chosen.random() < hot else b"key-%d" % chosen.randrange(count) for _ in range(count)]


def counted(
    keys: Sequence[object],
    module: ModuleType = kernel,
    owners: int = 1,
    missing: int | None = None,
    function: int = 0,
    afterwards: bool = False,
) -> Any:
    """Counts of keys routed to owners of one bucket each: counted at once, or afterwards."""
    buckets, counts = module.Buckets(function), module.KeyCounts(owners)
    for owner in range(owners):
        buckets.append(1, owner)
    found = buckets.owners(keys)
    if afterwards:
        buckets.count(keys, found, counts, missing)
    else:
        assert buckets.owners(keys, counts, missing) == found
    return counts


@pytest.mark.parametrize("function", [0, 1, 3])
def test_the_kernel_counts_as_its_reference(function: int) -> None:
    keys = [*stream(40_000, hot=0.2), b"", b"x" * 1000, 7, -7, 1 << 70, *[MISSING] * 7]
    ours, plain = (counted(keys, module, 4, MISSING, function) for module in IMPLEMENTATIONS)
    later = counted(keys, kernel, 4, MISSING, function, afterwards=True)
    assert ours.noted == len(keys) - 7
    assert sum(ours.messages()) == len(keys)
    for one, other in ((ours, plain), (later, plain), (ours.merged(ours), plain.merged(plain))):
        assert (one.noted, one.messages()) == (other.noted, other.messages())
        assert [one.ranks(owner) for owner in range(-1, 4)] == [other.ranks(owner) for owner in range(-1, 4)]
        assert [one.registers(owner) for owner in range(-1, 4)] == [other.registers(owner) for owner in range(-1, 4)]
        assert sorted(one.frequent()) == sorted(other.frequent())


@pytest.mark.parametrize("count", [1, 10, 500, 3_000, 100_000])
def test_different_keys_are_estimated(count: int) -> None:
    counts = counted([b"order-%d" % number for number in range(count)] * 2)
    assert distinct(counts.ranks()) == pytest.approx(count, rel=4 * STANDARD_ERROR, abs=1)


def test_no_key_is_no_key() -> None:
    assert distinct(kernel.KeyCounts(3).ranks()) == 0


def test_a_frequent_key_is_found_with_its_share() -> None:
    keys = stream(200_000, hot=0.1)
    key, owner, count, error = max(counted(keys).frequent(), key=lambda one: one[2] - one[3])
    assert (key, owner) == (b"hot", 0)
    assert count - error == pytest.approx(keys.count(b"hot"), rel=0.1)


def test_a_few_messages_are_counted_exactly() -> None:
    assert sorted(counted([b"a", b"b", b"a", 7]).frequent()) == [(b"7", 0, 1, 0), (b"a", 0, 2, 0), (b"b", 0, 1, 0)]


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_what_is_not_a_key_or_an_owner_is_refused(module: ModuleType) -> None:
    with pytest.raises(TypeError):
        counted(["text"], module)
    buckets = module.Buckets()
    buckets.append(1, 5)
    with pytest.raises(IndexError):
        buckets.owners([b"key"], module.KeyCounts(2))
    with pytest.raises(IndexError):
        buckets.count([b"key"], [5], module.KeyCounts(2))
    with pytest.raises(ValueError):
        buckets.count([b"key"], [], module.KeyCounts(2))
    with pytest.raises(ValueError):
        module.KeyCounts(2).merged(module.KeyCounts(3))
