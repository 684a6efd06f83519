"""Tasks for moves of queues between homes, with their wait states; stalled moves are reported."""

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
    """The current wait of a moving queue.

    Attributes:
        what: the awaited event, as a phrase after "waits for".
        step: any number that changes with progress.
        since: monotonic time of the last progress.
    """

    queue: DeclaredQueue | Queue
    what: str
    step: int
    since: float

    def figures(self, seconds: float, stalled: float) -> MoveFigures:
        """Return the statistics of the wait, the given seconds after the last progress."""
        queue, leaves = self.queue, isinstance(self.queue, DeclaredQueue)
        return MoveFigures(queue.vhost, queue.name, leaves, self.what, seconds, seconds >= stalled)


class MoveTasks:
    """Tasks for moves of a home's queues, by the ids of queues.

    Args:
        stalled: see :class:`~jumpmq.nodes.timing.Timing`.
    """

    def __init__(self, stalled: float) -> None:
        self._stalled = stalled
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, _Wait] = {}  # current waits

    def run(self, queue: DeclaredQueue | Queue, steps: Coroutine[Any, Any, None]) -> None:
        """Run the steps of a queue's move as a task."""

        async def run() -> None:
            watching = asyncio.get_running_loop().create_task(self._watch(queue))
            try:
                await steps
            except Exception:
                log.exception("the move of %r has failed, and continues after a restart of this process", queue)
                self.wait(queue, "a restart of its home, after an error in the log")
            else:
                self._waiting.pop(queue.id, None)
            finally:
                watching.cancel()
            if self._tasks.get(queue.id) is asyncio.current_task():
                del self._tasks[queue.id]

        self.wait(queue, "a change of definitions")
        self._tasks[queue.id] = asyncio.get_running_loop().create_task(run())

    def end(self, number: int) -> None:
        """Cancel the move of the queue with the given id, if any."""
        self._waiting.pop(number, None)
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def stop(self) -> None:
        """Cancel all tasks; the next run of the process continues the moves."""
        for task in self._tasks.values():
            task.cancel()

    def wait(self, queue: DeclaredQueue | Queue, what: str, step: int = 0) -> None:
        """Record the reason for a wait. If reason and step are those of the last call, the move has made no progress
        since then, and the time of its last progress is kept.
        """
        found = self._waiting.get(queue.id)
        if found is None or (found.what, found.step) != (what, step):
            self._waiting[queue.id] = _Wait(queue, what, step, time.monotonic())

    async def _watch(self, queue: DeclaredQueue | Queue) -> None:
        """Log a move without progress."""
        while True:
            await asyncio.sleep(self._stalled)
            wait = self._waiting.get(queue.id)
            seconds = 0.0 if wait is None else time.monotonic() - wait.since
            if wait is not None and seconds >= self._stalled:
                log.warning("the move of %r has made no progress for %d s: it waits for %s", queue, seconds, wait.what)

    def figures(self) -> list[MoveFigures]:
        """Return statistics of the moves from and to the local home."""
        now = time.monotonic()
        return [one.figures(now - one.since, self._stalled) for one in self._waiting.values()]
