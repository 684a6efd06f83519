"""Walks through simulated worlds of replicas with failing networks, disks, clocks and etcd, and checks all invariants.

    python -m fuzzing.replicas --seconds 600
    python -m fuzzing.replicas --timed --seed 17 --count 1

The replicas are the classes of ``jumpmq.replication``; ``tests/replication/world.py`` is their environment. A failing
walk is printed with its seed, which reproduces it. ``python -m tests.replication.search`` searches all histories of a
few commits and failures instead. The exit status is 1 after a failure.
"""

import argparse
import sys
import time

from tests.replication.walks import Found, walk

STEPS, TIMED_STEPS = 1000, 2000
"""Steps of a walk, before all failures end."""


def walks_of(
    seed: int, count: int | None, *, timed: bool, steps: int | None = None, seconds: float = float("inf")
) -> Found:
    """Walk the given number of times, or until the time is over, up to the first failure."""
    return walk(seed, count, steps=steps or (TIMED_STEPS if timed else STEPS), timed=timed, seconds=seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, help="at most; a minute, unless --count is given")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 40), help="of the first walk")
    parser.add_argument("--count", type=int, help="walks at most")
    parser.add_argument("--steps", type=int, help="of a walk, before all is mended")
    parser.add_argument("--timed", action="store_true", help="with clocks: leases, and how long everything takes")
    options = parser.parse_args()
    seconds = options.seconds or (60.0 if options.count is None else float("inf"))
    began = time.monotonic()
    found = walks_of(options.seed, options.count, timed=options.timed, steps=options.steps, seconds=seconds)
    rate = found.steps / (time.monotonic() - began)
    timed = " --timed" if options.timed else ""
    for seed, step, text in found.wrong:
        print(f"python -m fuzzing.replicas{timed} --seed {seed} --count 1\nstep {step}: {text}")
    print(f"{found.walks} walks, {found.steps} steps ({rate:.0f}/s), {found.commits} commits, {found.epochs} epochs")
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
