"""Schedules of simulations: what the scheduler may choose, for hypothesis and for a plain generator of numbers."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Choice = tuple[Any, ...]
"""A possible step: name, and the possible values of each argument."""

Step = tuple[Any, ...]
"""A step: name and arguments."""

Schedule = Sequence[Step]


def steps_of(choices: Sequence[Choice]) -> st.SearchStrategy[Step]:
    """Hypothesis's strategy for one of the possible steps."""
    return st.one_of(*(st.tuples(st.just(name), *map(st.sampled_from, of)) for name, *of in choices))


def drawn(choices: Sequence[Choice], most: int, seed: int) -> list[Step]:
    """A schedule of so many steps at most, the same for the same seed: a hundred times as fast as hypothesis's."""
    choose = random.Random(seed)
    steps = []
    for _ in range(choose.randint(1, most)):
        name, *of = choices[int(choose.random() * len(choices))]
        steps.append((name, *(one[int(choose.random() * len(one))] for one in of)))
    return steps


def shortest(fails: Callable[[Schedule], bool], steps: Schedule) -> Schedule:
    """What is left of a schedule that fails, if all is left out without which it still fails."""
    size = max(1, len(steps) // 2)
    while True:
        place = 0
        while place < len(steps):
            fewer = [*steps[:place], *steps[place + size :]]
            if fails(fewer):
                steps = fewer
            else:
                place += size
        if size == 1:
            return steps
        size //= 2
