"""Simulations of workers and nodes under many schedules; ``python -m fuzzing.schedules`` plays more."""

import re
import shlex
from collections.abc import Sequence

import pytest
from fuzzing.schedules import Simulation, main, run
from tests.nodes.log.schedules import Step, drawn, shortest

SEEDS = [piece * 1_000_000 for piece in range(1, 9)]
"""First seed of every piece; a piece uses consecutive seeds."""

PIECE = 3_000
"""Number of schedules in a piece; a schedule has 30 choices on average."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong_after_any_of_many_schedules(seed: int) -> None:
    """No check fails in many schedules; ``python -m fuzzing.schedules`` draws new ones."""
    found = run(seed, count=PIECE)
    print(f"{found.schedules} schedules, {found.choices} choices of the scheduler")
    assert not found.problems, "\n".join(found.problems)
    assert found.schedules == PIECE
    assert 29 < found.choices / PIECE < 32


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    choices = [("a", range(3)), ("b", (True, False), range(2))]
    assert drawn(choices, 50, 7) == drawn(choices, 50, 7) != drawn(choices, 50, 8)
    assert {step[0] for step in drawn(choices, 50, 7)} == {"a", "b"}


def test_a_schedule_that_fails_is_told_with_its_seed_and_played_again_by_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(steps: Sequence[Step]) -> None:
        if ("kill", 2) in steps:
            raise AssertionError("2 is dead")

    simulations = [Simulation(name, [("kill", range(40))], play) for name in ("workers", "nodes")]
    monkeypatch.setattr("fuzzing.schedules.SIMULATIONS", simulations)
    (problem, *_) = run(70).problems
    again = re.search(r"python -m fuzzing.schedules (.*)\n", problem)
    assert again is not None
    monkeypatch.setattr("sys.argv", ["schedules", *shlex.split(again[1])])
    assert main() == 1
    assert f"{problem}\n1 schedules" in capsys.readouterr().out
    assert problem.endswith("AssertionError('2 is dead')\nafter [('kill', 2)]")


def test_of_a_schedule_that_fails_the_fewest_steps_are_told() -> None:
    def fails(steps: Sequence[Step]) -> bool:
        return ("cut", 1) in steps and ("kill", 2) in steps

    steps = [("ask", number) for number in range(40)]
    steps[17], steps[33] = ("cut", 1), ("kill", 2)
    assert shortest(fails, steps) == [("cut", 1), ("kill", 2)]
