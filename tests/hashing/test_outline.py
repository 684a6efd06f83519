"""An outline of a ring changes, and places keys, as the ring."""

from functools import partial
from random import Random
from types import ModuleType

import pyarrow as pa
import pytest

from jumpmq.hashing import HashFunction, HashRing
from jumpmq.hashing import _kernel as kernel
from jumpmq.hashing import _reference as reference
from jumpmq.hashing.outline import RingOutline
from jumpmq.hashing.ring import RingRemoval

KEYS = pa.array([f"key {number}" for number in range(3000)] + [None])


@pytest.mark.parametrize("removal", ["minimal", "shift"])
@pytest.mark.parametrize("function", ["phash2", "xxh64", "murmur3"])
@pytest.mark.parametrize("seed", range(4))
def test_it_decides_as_the_ring_after_any_changes(removal: RingRemoval, function: HashFunction, seed: int) -> None:
    random = Random(seed)
    ring, outline = HashRing(removal, function), RingOutline(removal, function)
    for step in range(60):
        if len(ring) and random.random() < 0.45:
            name = random.choice(ring.names)
            ring.remove(name)
            outline.remove(name)
        else:
            weight = random.choice([1, 1, 2, 30])
            ring.add(f"q{step}", weight)
            outline.add(f"q{step}", weight)
        assert outline.state() == ring.state()
        if step % 6 == 0:
            assert outline.route_array(KEYS).equals(ring.route_array(KEYS))
            assert RingOutline.restore(ring.state()).route_array(KEYS).equals(ring.route_array(KEYS))


@pytest.mark.parametrize("module", [kernel, reference])
@pytest.mark.parametrize("runs", [[(1, 2, 0, -1)], [(0, 2, 0, -1), (3, 1, 1, -1)], [(0, 0, 0, -1)]])
def test_runs_with_gaps_are_refused(module: ModuleType, runs: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValueError, match="without gaps"):
        module.RunBuckets(runs)


@pytest.mark.parametrize("function", range(4))
def test_the_kernel_decides_as_its_reference(function: int) -> None:
    from jumpmq.hashing.arrow import int32_array, key_buffers

    keys = key_buffers(KEYS)
    for runs in ([(0, 5, 0, -1)], [(0, 2, 3, -1), (2, 3, -1, 6), (5, 4, 1, -1)], []):
        made = [module.RunBuckets(runs, function) for module in (kernel, reference)]
        one, other = (int32_array(len(KEYS), partial(one.owners_of_arrow, keys=keys)) for one in made)
        assert one.equals(other)
