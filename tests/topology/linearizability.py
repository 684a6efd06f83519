"""Linearizability of histories: sequential use of a single copy explains all answers.

Wing and Gong, "Testing and verifying concurrent objects" (1993), with Lowe's memory of tried states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

Does = Callable[[Any], tuple[Hashable, Any]]
"""Function of a state: the next state, and the answer."""


@dataclass(eq=False)
class Operation:
    """An operation requested by a client.

    Attributes:
        name: for the text of a failure.
        does: effect on the one copy; operations with the same effect are equal.
        began: time of the request.
        ended: time of the answer; None without an answer: then the operation may have taken effect or not.
        answer: the answer received.
        changes: True if the operation may have changed the state, with the given answer.
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
    """Return True if an order of all answered and some unanswered operations fits the times and gives the answers."""
    operations = sorted(history, key=lambda one: math.inf if one.ended is None else one.ended)
    tried: set[tuple[int, Hashable]] = set()
    waiting: list[tuple[int, Hashable]] = [((1 << len(operations)) - 1, state)]  # a bit for each remaining operation
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
    """Return remaining operations and state after every possible next operation; input is sorted by end.

    Of read-only operations one may come first, as a read takes nothing from the others. Of operations with
    the same effect the first to end may come first, as any could stand in for it later.
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
