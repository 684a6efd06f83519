"""An event loop for simulations: runs ready callbacks on request, with a manual clock."""

import asyncio
import heapq
from typing import Any, Self


class SimulatedLoop(asyncio.BaseEventLoop):
    """The running loop within ``with``, though callbacks run in :meth:`turn` only; closed afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0  # the time by its clock, in seconds

    def __enter__(self) -> Self:
        asyncio._set_running_loop(self)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio._set_running_loop(None)
        self.close()

    def time(self) -> float:
        return self._now

    def wait(self, seconds: float) -> None:
        """Advance the clock, and make due callbacks ready."""
        self._now += seconds
        scheduled: Any = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].when() <= self._now:
            self._ready.append(heapq.heappop(scheduled))  # type: ignore[attr-defined]

    def turn(self) -> bool:
        """Run the ready callbacks, without newly ready ones. Return true if there was any."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        for _ in range(count := len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        return count > 0
