"""Pausing of all clients: no data of clients is processed while a reason exists.

A node of a cluster may have been stopped (a suspended machine, a debugger). What the others have decided meanwhile was
not waited for here, so that it has to learn of that before it acts on what clients ask. It finds out by itself: a read
or a look at the clock that comes long after the last look is the first after such a stop. The clock counts time in
which the machine is suspended (:func:`~jumpmq.queues.clock.boot_time`).
"""

import asyncio
import math
from collections.abc import Callable

from jumpmq.queues import clock

STOPPED = "the process was stopped"
"""Reason to wait until the node knows the decisions made while it was stopped."""

LEASE = "another node may lead the home"
"""Reason to wait while the replica of a home with copies has no lease."""


class Pause:
    """Reasons, and waiting clients.

    Attributes:
        active: whether there is a reason.
        late_at: a read later than this comes after a stop; infinite where that does not matter.
        on_late: called at such a read; has to :meth:`end` the reason ``STOPPED``. None where it does not matter.
    """

    def __init__(self) -> None:
        self.active = False
        self.late_at = math.inf
        self.on_late: Callable[[], None] | None = None
        self._reasons: set[str] = set()
        self._held: list[Callable[[], None]] = []  # what is to be gone on with

    def tick(self, patience: float) -> None:
        """The clock is looked at; a read, or the next look, is late after so many seconds."""
        now = clock.boot_time()
        if now > self.late_at:
            self._late()
        elif self.on_late is not None:
            self.late_at = now + patience

    def look(self) -> None:
        """Find out at a read whether the process was stopped before. For a ``late_at`` that is not infinite."""
        if clock.boot_time() > self.late_at:
            self._late()

    def _late(self) -> None:
        self.late_at = math.inf
        if self.on_late is not None:
            self.begin(STOPPED)
            self.on_late()

    def begin(self, reason: str) -> None:
        """Clients wait from now on."""
        self._reasons.add(reason)
        self.active = True

    def end(self, reason: str) -> None:
        """Remove a reason."""
        self._reasons.discard(reason)
        self.active = bool(self._reasons)
        if not self.active:
            held, self._held = self._held, []
            for go_on in held:
                asyncio.get_running_loop().call_soon(go_on)

    async def over(self) -> None:
        """Wait until no reason to pause is left."""
        while self.active:
            ended = asyncio.Event()
            self.hold(ended.set)
            await ended.wait()

    def hold(self, go_on: Callable[[], None]) -> None:
        """Someone waits."""
        self._held.append(go_on)
