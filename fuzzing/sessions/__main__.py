"""Searches for differences between JumpMQ and RabbitMQ.

    python -m fuzzing.sessions --minutes 60
    python -m fuzzing.sessions --sessions 500 --seed 7      the same sessions again
    python -m fuzzing.sessions --minutes 60 --workers 3     JumpMQ with its queues spread over processes, or --nodes

Both brokers run on free ports with temporary directories. A difference is printed with the shortest session that
reproduces it, and then ignored, to find further differences. The exit status is 1 after a difference.
"""

import argparse
import random
import sys
import time

from tests.several_processes import running

from fuzzing.sessions import differences
from fuzzing.sessions.pair import Difference, Pair
from fuzzing.sessions.run import hold
from jumpmq.testing import RabbitMQ


def _difference_in(error: Exception) -> Difference:
    """The difference itself, also of an exception group: hypothesis wraps a flaky failure."""
    if isinstance(error, Difference):
        return error
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            return _difference_in(inner)
    raise error


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold random sessions with RabbitMQ and JumpMQ, and compare.")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--sessions", type=int, default=500, help="how many with one seed")
    parser.add_argument("--whole", action="store_true", help="show the first session that shows a difference as it is")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--workers", type=int, default=1, help="processes of JumpMQ")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of JumpMQ")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    found = 0
    with RabbitMQ() as reference, running(arguments.workers, arguments.nodes) as ours:
        pair = Pair(reference, ours)
        seed = arguments.seed
        while time.monotonic() < end:
            try:
                hold(pair, arguments.sessions, seed, shorten=not arguments.whole)
                print(seed, pair.sessions, pair.steps, dict(pair.ended), flush=True)
            except (Difference, ExceptionGroup) as error:
                difference = _difference_in(error)
                found += 1
                signature = differences.signature(difference)
                differences.passed_over.add(signature)
                print(f"\n--- {found}: seed {seed} ---")
                print(*getattr(difference, "__notes__", []), sep="\n")
                print(difference, flush=True)
            seed += 1
        print(f"{pair.sessions} sessions, {pair.steps} steps, {found} differences; ended early: {dict(pair.ended)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
