"""Schedules of simulations: the scheduler's choices, for hypothesis and for a plain generator of numbers."""

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
    """Return hypothesis's strategy for one of the possible steps."""
    return st.one_of(*(st.tuples(st.just(name), *map(st.sampled_from, of)) for name, *of in choices))


def drawn(choices: Sequence[Choice], most: int, seed: int) -> list[Step]:
    """Return a schedule of at most so many steps, fixed by the seed: a hundred times as fast as hypothesis's."""
    choose = random.Random(seed)
    steps = []
    for _ in range(choose.randint(1, most)):
        name, *of = choices[int(choose.random() * len(choices))]
        steps.append((name, *(one[int(choose.random() * len(one))] for one in of)))
    return steps


def shortest(fails: Callable[[Schedule], bool], steps: Schedule) -> Schedule:
    """Return a failing schedule without all steps unnecessary for the failure."""
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
