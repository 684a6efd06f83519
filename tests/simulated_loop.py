"""An event loop for simulations: it does what is ready when it is told to, and its clock is set by hand."""

import asyncio
import heapq
from typing import Any, Self


class SimulatedLoop(asyncio.BaseEventLoop):
    """Within ``with`` it is the running loop, though nothing runs but in :meth:`turn`; afterwards it is closed."""

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
        """Time passes: what was to be done by then is ready."""
        self._now += seconds
        scheduled: Any = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].when() <= self._now:
            self._ready.append(heapq.heappop(scheduled))  # type: ignore[attr-defined]

    def turn(self) -> bool:
        """Run what is ready now, not what that makes ready; returns whether there was anything."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        for _ in range(count := len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        return count > 0
