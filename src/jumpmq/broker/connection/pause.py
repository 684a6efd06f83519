"""Pausing of all clients: no data of clients is processed while a reason exists.

A node of a cluster may have been stopped (a suspended machine, a debugger). Other nodes have not waited for this node,
so that the node must learn their decisions before it processes requests of clients. The node detects such a stop
itself: a read, or a tick of the clock, long after the last tick is the first after the stop. The clock includes the
time of a machine's suspension (:func:`~jumpmq.queues.clock.boot_time`).
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
        active: True if there is a reason.
        late_at: a read after this time follows a stop; infinite for brokers without this check.
    """

    def __init__(self) -> None:
        self.active = False
        self.late_at = math.inf
        self._on_late: Callable[[], None] | None = None  # called after a stop; None without this check
        self._reasons: set[str] = set()
        self._held: list[Callable[[], None]] = []  # callbacks at the end of the pause

    def listen(self, on_late: Callable[[], None]) -> None:
        """Check for stops from now on.

        Args:
            on_late: called after a stop; must later call :meth:`end` with the reason ``STOPPED``.
        """
        self._on_late = on_late

    def tick(self, patience: float) -> None:
        """Handle a tick of the clock: a read, or the next tick, after more than ``patience`` seconds is late."""
        now = clock.boot_time()
        if now > self.late_at:
            self._late()
        elif self._on_late is not None:
            self.late_at = now + patience

    def look(self) -> None:
        """Check at a read if the process was stopped before. To be called only with a finite ``late_at``."""
        if clock.boot_time() > self.late_at:
            self._late()

    def _late(self) -> None:
        self.late_at = math.inf
        if self._on_late is not None:
            self.begin(STOPPED)
            self._on_late()

    def begin(self, reason: str) -> None:
        """Add a reason: clients wait from now on."""
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
        """Wait until there is no reason to pause."""
        while self.active:
            ended = asyncio.Event()
            self.hold(ended.set)
            await ended.wait()

    def hold(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` at the end of the pause."""
        self._held.append(go_on)
