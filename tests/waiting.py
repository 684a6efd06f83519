"""Waiting for what a broker does in its own time, and trials that a machine which stops for a while does not spoil."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

PATIENCE = 60.0
"""Seconds in which it must be done, on a machine that is busy with other things."""

TRIALS = 10

T = TypeVar("T")


def until(look: Callable[[], T | Literal[False] | None]) -> T:
    """What a function finds, once it finds something that is true.

    Raises:
        AssertionError: it does not in time.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def punctually(seconds: float, trial: Callable[[], None]) -> None:
    """Make a trial of something that is promised for a time; it is made anew where it failed and took too long.

    Args:
        seconds: how long the trial takes, and may take beyond, so that nothing excuses its failure.
        trial: begins afresh each time, with names and channels of its own.
    """
    for number in range(1, TRIALS + 1):
        began = time.monotonic()
        try:
            trial()
        except Exception:
            if time.monotonic() - began < seconds or number == TRIALS:
                raise
        else:
            return
