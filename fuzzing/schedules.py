"""Simulates workers and nodes under many random schedules: the logs of definitions, links, disks, kills and clients.

    python -m fuzzing.schedules --seconds 600
    python -m fuzzing.schedules --only nodes --seed 17 --count 1

The broker's own logs of changes run over simulated links, disks and an etcd; a scheduler chooses the next event. Four
simulations take turns: with workers and with nodes, the homes agree under all failures, and the clients' answers are
possible answers of a single broker. A failing schedule is printed with its seed, which replays it, and with the fewest
failing steps. The exit status is then 1.
"""

import argparse
import gc
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.nodes.log import simulated_clients as clients
from tests.nodes.log import simulated_nodes as nodes
from tests.nodes.log import simulated_workers as workers
from tests.nodes.log.schedules import Choice, Schedule, drawn, shortest

MOST = 60
"""Steps of a schedule."""


class Simulation(NamedTuple):
    """A simulation: the scheduler's choices, and the function that plays a schedule."""

    name: str
    choices: Sequence[Choice]
    play: Callable[[Schedule], None]

    def problem(self, steps: Schedule) -> str:
        """The failure after the given steps, or an empty string."""
        try:
            self.play(steps)
        except Exception as error:
            return repr(error)
        return ""


class Found(NamedTuple):
    """Number of played schedules and choices, and the failures."""

    schedules: int
    choices: int
    problems: list[str]


SIMULATIONS = [
    Simulation("workers", workers.CHOICES, workers.play),
    Simulation("nodes", nodes.CHOICES, nodes.play),
    Simulation("clients of workers", clients.WORKERS_CHOICES, clients.play_workers),
    Simulation("clients of nodes", clients.NODES_CHOICES, clients.play_nodes),
]


def run(seed: int, count: int | None = None, seconds: float = float("inf"), only: str | None = None) -> Found:
    """Play schedules of all simulations in turn, until the third failure.

    Args:
        seed: of the first schedule; the next schedule has the next number.
        count: number of schedules; by default limited by the time.
        only: name of a simulation; by default all.
    """
    simulations = [one for one in SIMULATIONS if only in (None, one.name)]
    until, played, choices, problems = time.monotonic() + seconds, 0, 0, list[str]()
    gc.freeze()  # collections of permanent objects would take a tenth of the time
    logging.disable()  # homes often log lost links
    while played != count and time.monotonic() < until and len(problems) < 3:
        simulation, number = simulations[played % len(simulations)], seed + played
        steps = drawn(simulation.choices, MOST, number)
        played, choices = played + 1, choices + len(steps)
        if problem := simulation.problem(steps):
            fewest = shortest(lambda steps, of=simulation: bool(of.problem(steps)), steps)  # type: ignore[misc]
            again = f'python -m fuzzing.schedules --only "{simulation.name}" --seed {number} --count 1'
            problems.append(f"{again}\n{problem[:500]}\nafter {fewest!r}")
    logging.disable(logging.NOTSET)
    gc.unfreeze()
    return Found(played, choices, problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, help="at most; a minute, unless --count is given")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the first schedule")
    parser.add_argument("--count", type=int, help="schedules at most")
    parser.add_argument("--only", choices=[one.name for one in SIMULATIONS], help="the simulation")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    seconds = options.seconds or (60.0 if options.count is None else float("inf"))
    found = run(options.seed, options.count, seconds, options.only)
    print(*found.problems, sep="\n")
    print(f"{found.schedules} schedules, {found.choices} choices of the scheduler, {len(found.problems)} problems")
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main())
