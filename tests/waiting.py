"""Waiting for what a broker does in its own time."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 20.0
"""Seconds in which it must be done, on a machine that is busy with other things."""

T = TypeVar("T")


def until(look: Callable[[], T]) -> T:
    """What a function finds, once it finds something that is true.

    Raises:
        AssertionError: it does not in time.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found
