"""Background work of the store: a separate thread, with results handed back to the store's thread."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

log = logging.getLogger(__name__)

Work = tuple[Callable[[], Any], Callable[[Any], None]]


class Background:
    """Runs tasks in sequence.

    Args:
        name: of the thread.
        wake: called in the thread when a result is there to be fetched.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._work: SimpleQueue[Work | None] = SimpleQueue()  # what is to be done; None ends the thread
        self._results: deque[tuple[Callable[[Any], None], Any]] = deque()  # what is to be handed over
        self._thread: threading.Thread | None = None  # made when there is work
        self._given = self._done = 0  # how much work there was, and how much of it is done
        self._is_closed = False  # whether nothing more is to be done

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Schedule ``work()``; ``then`` gets the result, or the raised exception, in the store's thread.

        Where the system gives no thread, ``then`` gets the RuntimeError that says so. A dead thread is replaced. Once
        closed, nothing is done any more.
        """
        if self._is_closed:
            return
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._results.append((then, error))
                self._wake()
                return
            self._thread = thread
        self._given += 1
        self._work.put((work, then))

    @property
    def is_working(self) -> bool:
        """Return True if some work is unfinished."""
        return self._given > self._done and self._thread is not None and self._thread.is_alive()

    def deliver(self) -> None:
        """Hand over results. In the store's thread."""
        while self._results:
            then, result = self._results.popleft()
            then(result)

    def close(self, *, deliver: bool = True) -> None:
        """Wait for all scheduled work, and deliver the results unless no longer wanted."""
        self._is_closed = True
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            if not self._work.empty():  # the thread had died
                self._run()
        if deliver:
            self.deliver()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, then = item
            try:
                result = work()
            except Exception as error:
                result = error
            except BaseException as error:  # the thread has more to do
                result = RuntimeError(repr(error))
            self._results.append((then, result))
            self._done += 1
            del item, work, then, result
            try:
                self._wake()
            except Exception:
                log.exception("%s: cannot report completed work; the next report includes it", self._name)
