"""Simulations of workers and nodes under ten thousand schedules; ``python -m fuzzing.schedules`` plays more."""

from collections.abc import Sequence

import pytest
from fuzzing.schedules import run
from tests.topology.schedules import Step, drawn, shortest

SEED = 1


@pytest.mark.slow
def test_nothing_is_wrong_after_any_of_many_schedules() -> None:
    """Most of a minute; ``python -m fuzzing.schedules`` draws others each time."""
    found = run(SEED, count=10_000)
    print(f"{found.schedules} schedules, {found.choices} choices of the scheduler")
    assert not found.problems, "\n".join(found.problems)
    assert found.choices > 250_000


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    choices = [("a", range(3)), ("b", (True, False), range(2))]
    assert drawn(choices, 50, 7) == drawn(choices, 50, 7) != drawn(choices, 50, 8)
    assert {step[0] for step in drawn(choices, 50, 7)} == {"a", "b"}


def test_of_a_schedule_that_fails_the_fewest_steps_are_told() -> None:
    def fails(steps: Sequence[Step]) -> bool:
        return ("cut", 1) in steps and ("kill", 2) in steps

    steps = [("ask", number) for number in range(40)]
    steps[17], steps[33] = ("cut", 1), ("kill", 2)
    assert shortest(fails, steps) == [("cut", 1), ("kill", 2)]
