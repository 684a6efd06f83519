"""Speed of hashing a key to its queue, on one core: one key, a list (as the broker), an Arrow array (as Spark).

    python -m benchmarks.hashing

Each figure is the best of five runs, in processor time, so that other load matters little. Keys are random and
distinct; repeated keys use the caches better. A ring caches decisions on long arrays in a table: "fresh" is a ring with
an empty table, "warm" a ring with a full one.
"""

import random
import time
from collections.abc import Callable

import pyarrow as pa

from jumpmq.hashing import COMPILED, HashRing, moduli, modulus, modulus_array

ROUNDS = 5
RNG = random.Random(20240607)
KEYS = [RNG.randbytes(16) for _ in range(100_000)]
BURSTS = [KEYS[i : i + 50] for i in range(0, len(KEYS), 50)]
ARRAY = pa.array([RNG.randbytes(16) for _ in range(4_000_000)], pa.binary())
SLICES = [ARRAY.slice(i, 10_000) for i in range(0, len(ARRAY), 10_000)]


def ring_of(destinations: int, *, weight: int = 1, removal: str = "minimal") -> HashRing:
    """A ring without removed destinations."""
    ring = HashRing(removal)
    for i in range(destinations):
        ring.add(f"q{i}", weight)
    return ring


def ring_that_lost_half() -> HashRing:
    """A ring of two hundred buckets, of which a hundred were removed."""
    ring = ring_of(200)
    for i in range(0, 200, 2):
        ring.remove(f"q{i}")
    return ring


def report(subject: str, count: int, run: Callable[[HashRing], object], ring: Callable[[], HashRing]) -> None:
    """Print the shortest run per item and as a rate. Each run has a new ring."""
    seconds = []
    for _ in range(ROUNDS):
        fresh = ring()
        begin = time.process_time()
        run(fresh)
        seconds.append(time.process_time() - begin)
    print(f"{subject:<62} {min(seconds) / count * 1e6:>8.3f} µs {count / min(seconds):>12,.0f} /s")


def one_by_one(ring: HashRing) -> None:
    for key in KEYS:
        ring.route(key)


def churn(ring: HashRing, weight: int = 1000) -> None:
    for i in range(100):
        ring.add(f"new{i}", weight)
        ring.remove(f"q{i % 20}")
        ring.add(f"q{i % 20}", weight)
        ring.remove(f"new{i}")


def report_routing(name: str, ring: Callable[[], HashRing]) -> None:
    warm = ring()
    warm.route_array(ARRAY)
    report(f"route, {name}", len(KEYS), one_by_one, ring)
    report(f"route_index, lists of 50, {name}", len(KEYS), lambda r: [r.route_index(keys) for keys in BURSTS], ring)
    report(f"route_array of 10,000, fresh, {name}", 10_000, lambda r: r.route_array(SLICES[0]), ring)
    report(f"route_array of 4,000,000, fresh, {name}", len(ARRAY), lambda r: r.route_array(ARRAY), ring)
    report(f"route_array of 10,000, warm, {name}", len(ARRAY), lambda r: [*map(r.route_array, SLICES)], lambda: warm)


def main() -> None:
    print(f"16-byte keys, {'compiled kernel' if COMPILED else 'plain Python: the kernel is not compiled'}\n")
    for n in (4, 100, 1000):
        report_routing(f"{n} buckets", lambda n=n: ring_of(n))
    report_routing("100 buckets left of 200", ring_that_lost_half)
    report("modulus, 100 destinations", len(KEYS), lambda _: [modulus([key], 100) for key in KEYS], HashRing)
    report("moduli, a list of 100,000", len(KEYS), lambda _: moduli(KEYS, 100), HashRing)
    report("modulus_array of 4,000,000", len(ARRAY), lambda _: modulus_array(ARRAY, 100), HashRing)
    for removal in ("minimal", "shift"):
        name = f"add or remove weight 1000 in 20,000 buckets, {removal}"
        report(name, 400, churn, lambda removal=removal: ring_of(20, weight=1000, removal=removal))


if __name__ == "__main__":
    main()
