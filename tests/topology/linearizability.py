"""Whether what several clients saw of one thing could have come from one copy of it, used by one after the other.

Wing and Gong, "Testing and verifying concurrent objects" (1993), with Lowe's memory of what was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

Does = Callable[[Any], tuple[Hashable, Any]]
"""Of a state: the next one, and what is answered."""


@dataclass(eq=False)
class Operation:
    """What a client has asked for.

    Attributes:
        name: tells it in a failure.
        does: to the one copy.
        began: when it was asked for.
        ended: when it was answered; None while it is not, and then it may have taken effect or not.
        answer: what it was answered.
    """

    name: str
    does: Does
    began: int
    ended: int | None = None
    answer: Any = None

    def __repr__(self) -> str:
        return f"{self.name} [{self.began}, {self.ended}] {self.answer}"


def is_linearizable(history: list[Operation], state: Hashable) -> bool:
    """Whether there is an order of all that was answered, and some that was not, which keeps to the times and gives
    these answers."""
    tried: set[tuple[frozenset[Operation], Hashable]] = set()
    waiting: list[tuple[frozenset[Operation], Hashable]] = [(frozenset(history), state)]
    while waiting:
        left, state = waiting.pop()
        ends = [one.ended for one in left if one.ended is not None]
        if not ends:
            return True
        if (left, state) in tried:
            continue
        tried.add((left, state))
        for one in left:
            if one.began < min(ends):
                after, answer = one.does(state)
                if one.ended is None or answer == one.answer:
                    waiting.append((left - {one}, after))
    return False
