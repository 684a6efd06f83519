"""Work of the store in the background: a thread of its own, which hands its results back to the store's."""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Work = tuple[Callable[[], Any], Callable[[Any], None]]


class Background:
    """Runs one piece of work after the other.

    Args:
        name: of the thread.
        wake: called in the thread when a result is there to be fetched.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._results: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._thread: threading.Thread | None = None
        self._given = self._done = 0

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have ``work()`` done; ``then`` gets its result, or the exception it raised, in the store's thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._given += 1
        self._work.put((work, then))

    @property
    def is_working(self) -> bool:
        """Whether some of the work is not done."""
        return self._given > self._done and self._thread is not None and self._thread.is_alive()

    def deliver(self) -> None:
        """Hand over results. In the store's thread."""
        while self._results:
            then, result = self._results.popleft()
            then(result)

    def close(self, *, deliver: bool = True) -> None:
        """Wait for all that was asked for, and hand it over unless it is not wanted any more."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
        if deliver:
            self.deliver()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, then = item
            try:
                result = work()
            except Exception as error:
                result = error
            self._results.append((then, result))
            self._done += 1
            del item, work, then, result
            self._wake()
