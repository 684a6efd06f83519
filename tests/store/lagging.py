"""Completions with a delay behind the disk, as in a store with copies."""

import threading
from random import Random

from jumpmq.store.completion import CompleteCommit, Completion


class Lagging(Completion):
    """Commits complete some time after they are stored, in order, several at once or one by one.

    Args:
        chance: source of the random delays.
        most: the longest delay, in seconds.
    """

    def __init__(self, chance: Random, most: float = 0.004) -> None:
        super().__init__()
        self._chance, self._most = chance, most

    def stored(self, number: int, position: int) -> None:
        if self._chance.random() < 0.2:
            super().stored(number, position)
            return
        timer = threading.Timer(self._chance.uniform(0, self._most), self._reach, (number,))
        timer.daemon = True
        timer.start()

    def _reach(self, number: int) -> None:
        self._complete = max(self._complete, number)
        self._wake()


class Held(Completion):
    """No commit completes between :meth:`hold` and :meth:`release`."""

    def __init__(self) -> None:
        super().__init__()
        self._is_held, self._stored = False, 0

    def begin(self, number: int) -> None:
        self._stored = number
        super().begin(number)

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        super().stored(self._stored, 0)
        self._wake()

    def stored(self, number: int, position: int) -> None:
        self._stored = number
        if not self._is_held:
            super().stored(number, position)

    def of(self, number: int) -> CompleteCommit | None:
        return super().of(number)
