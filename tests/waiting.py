"""Waiting for asynchronous effects, and trials that are repeated if the machine was paused."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

PATIENCE = 60.0
"""Timeout in seconds, for a busy machine."""

TRIALS = 10

T = TypeVar("T")


def until(look: Callable[[], T | Literal[False] | None]) -> T:
    """Return the first true result of a function.

    Raises:
        AssertionError: no true result in time.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def punctually(seconds: float, trial: Callable[[], None]) -> None:
    """Run a trial with a time limit; repeat it if it failed and took too long.

    Args:
        seconds: maximum duration of a trial whose failure counts.
        trial: a function without state from earlier calls, with names and channels of its own.
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
