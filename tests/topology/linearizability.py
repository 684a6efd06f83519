"""Whether what several clients saw of one thing could have come from one copy of it, used by one after the other.

Wing and Gong, "Testing and verifying concurrent objects" (1993), with Lowe's memory of what was tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

Does = Callable[[Any], tuple[Hashable, Any]]
"""Of a state: the next one, and what is answered."""


@dataclass(eq=False)
class Operation:
    """What a client has asked for.

    Attributes:
        name: tells it in a failure.
        does: to the one copy; those that do the same are equal.
        began: when it was asked for.
        ended: when it was answered; None while it is not, and then it may have taken effect or not.
        answer: what it was answered.
        changes: whether it may have changed anything, with that answer.
    """

    name: str
    does: Does
    began: int
    ended: int | None = None
    answer: Any = None
    changes: bool = True

    def __repr__(self) -> str:
        return f"{self.name} [{self.began}, {self.ended}] {self.answer}"


def is_linearizable(history: list[Operation], state: Hashable) -> bool:
    """Whether there is an order of all that was answered, and some that was not, which keeps to the times and gives
    these answers."""
    operations = sorted(history, key=lambda one: math.inf if one.ended is None else one.ended)
    tried: set[tuple[int, Hashable]] = set()
    waiting: list[tuple[int, Hashable]] = [((1 << len(operations)) - 1, state)]  # a bit for each that is left
    while waiting:
        left, state = waiting.pop()
        first = operations[(left & -left).bit_length() - 1] if left else None
        if first is None or first.ended is None:
            return True
        if (left, state) in tried:
            continue
        tried.add((left, state))
        next_ones = [place for place, one in enumerate(operations) if left >> place & 1 and one.began < first.ended]
        waiting += reversed(list(_options(operations, next_ones, left, state)))
    return False


def _options(
    operations: list[Operation], next_ones: list[int], left: int, state: Hashable
) -> Iterator[tuple[int, Hashable]]:
    """What may be left, and the state, after one of the operations that may come next; they are in order of their ends.

    Of those that only look one may come first, as it takes nothing from the others; and of those that do the same the
    one that ended first, as any could stand in for it later.
    """
    same: set[tuple[Does, Any]] = set()
    for place in next_ones:
        one = operations[place]
        if not one.changes and one.ended is not None and one.does(state)[1] == one.answer:
            yield left & ~(1 << place), state
            return
    for place in next_ones:
        one = operations[place]
        after, answer = one.does(state)
        is_right = answer == one.answer if one.ended is not None else after != state
        kind = one.does, one.answer
        if is_right and kind not in same:
            same.add(kind)
            yield left & ~(1 << place), after
