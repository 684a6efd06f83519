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
        wake: called in the background thread when a result waits for :meth:`deliver`.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._work: SimpleQueue[Work | None] = SimpleQueue()  # scheduled tasks; None ends the thread
        self._results: deque[tuple[Callable[[Any], None], Any]] = deque()  # results to deliver, with their receivers
        self._thread: threading.Thread | None = None  # started with the first task
        self._given = self._done = 0  # numbers of scheduled and of finished tasks
        self._is_closed = False  # True after close(): new tasks are ignored

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Schedule ``work()``; ``then`` gets the result, or the raised exception, in the store's thread.

        If the thread cannot be started, ``then`` gets the RuntimeError. A dead thread is replaced. After :meth:`close`
        the work is ignored.
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
        """Pass the results to their receivers. Call in the store's thread only."""
        while self._results:
            then, result = self._results.popleft()
            then(result)

    def close(self, *, deliver: bool = True) -> None:
        """Wait for all scheduled work, and deliver the results unless no longer wanted."""
        self._is_closed = True
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            if not self._work.empty():  # the thread died earlier: finish its tasks here
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
            except BaseException as error:  # the thread must survive for later tasks
                result = RuntimeError(repr(error))
            self._results.append((then, result))
            self._done += 1
            # References in this frame would keep the result alive until the next task.
            del item, work, then, result
            try:
                self._wake()
            except Exception:
                log.exception("%s: cannot report completed work; the next report includes it", self._name)
