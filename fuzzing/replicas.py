"""Walks through simulated worlds of replicas: networks, disks, clocks and etcd fail, and each invariant is looked at.

    python -m fuzzing.replicas --seconds 600
    python -m fuzzing.replicas --timed --seed 17 --count 1

The replicas are the classes of ``jumpmq.replication``; ``tests/replication/world.py`` is what surrounds them. A walk
that is wrong is told with its seed, which walks it again. ``python -m tests.replication.search`` tries each history of
a few commits and failures instead. The exit status is 1 where something is wrong.
"""

import argparse
import sys
import time

from tests.replication.walks import Found, walk

STEPS, TIMED_STEPS = 1000, 2000
"""Of a walk, before all is mended."""


def walks_of(
    seed: int, count: int | None, *, timed: bool, steps: int | None = None, seconds: float = float("inf")
) -> Found:
    """So many walks, or as many as the time allows, up to the first that is wrong."""
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
