"""Tasks for migrations of queues between homes, with their wait states; stalled migrations are reported."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from jumpmq.broker.peers import MoveFigures
from jumpmq.queues import Queue
from jumpmq.topology.declared import DeclaredQueue

log = logging.getLogger(__name__)


@dataclass
class _Wait:
    """Wait state of a moving queue, since a time of the monotonic clock; ``step`` changes after progress."""

    queue: DeclaredQueue | Queue
    what: str
    step: int
    since: float

    def figures(self, seconds: float, stalled: float) -> MoveFigures:
        """Return the statistics of the wait, so many seconds after the last progress."""
        queue, leaves = self.queue, isinstance(self.queue, DeclaredQueue)
        return MoveFigures(queue.vhost, queue.name, leaves, self.what, seconds, seconds >= stalled)


class MoveTasks:
    """Migration tasks of a home, by the ids of queues.

    Args:
        stalled: see :class:`~jumpmq.nodes.timing.Timing`.
    """

    def __init__(self, stalled: float) -> None:
        self._stalled = stalled
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, _Wait] = {}  # awaited events

    def run(self, queue: DeclaredQueue | Queue, steps: Coroutine[Any, Any, None]) -> None:
        """Start the migration of a queue with the given steps."""

        async def run() -> None:
            watching = asyncio.get_running_loop().create_task(self._watch(queue))
            try:
                await steps
            except Exception:
                log.exception("%r stands still on its way from home to home, until this process starts again", queue)
                self.wait(queue, "its home to start again, after an error that is in the log")
            else:
                self._waiting.pop(queue.id, None)
            finally:
                watching.cancel()
            if self._tasks.get(queue.id) is asyncio.current_task():
                del self._tasks[queue.id]

        self.wait(queue, "a change of definitions")
        self._tasks[queue.id] = asyncio.get_running_loop().create_task(run())

    def end(self, number: int) -> None:
        """End the migration of the queue with the given id, if any."""
        self._waiting.pop(number, None)
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def stop(self) -> None:
        """Go on in the next run."""
        for task in self._tasks.values():
            task.cancel()

    def wait(self, queue: DeclaredQueue | Queue, what: str, step: int = 0) -> None:
        """Record the reason for a queue's wait; an unchanged reason keeps the earlier time."""
        found = self._waiting.get(queue.id)
        if found is None or (found.what, found.step) != (what, step):
            self._waiting[queue.id] = _Wait(queue, what, step, time.monotonic())

    async def _watch(self, queue: DeclaredQueue | Queue) -> None:
        """Log a lack of progress."""
        while True:
            await asyncio.sleep(self._stalled)
            wait = self._waiting.get(queue.id)
            seconds = 0.0 if wait is None else time.monotonic() - wait.since
            if wait is not None and seconds >= self._stalled:
                log.warning(
                    "%r is on its way from home to home, and waits for %s since %d s", queue, wait.what, seconds
                )

    def figures(self) -> list[MoveFigures]:
        """Return the queues in migration from and to the local home."""
        now = time.monotonic()
        return [one.figures(now - one.since, self._stalled) for one in self._waiting.values()]
