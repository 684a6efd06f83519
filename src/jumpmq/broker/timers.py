"""What happens by the clock: heartbeats, expiry, and commits that are made for acknowledgements alone."""

import asyncio
import time

from jumpmq.broker.commits import Commits
from jumpmq.broker.services import Services
from jumpmq.queues import Queue
from jumpmq.topology.changes import DeleteQueue

TICK = 0.1
"""Seconds between looks at the clock."""

QUEUES_A_TICK = 1000
"""Queues that are looked at in a tick; 10,000 would hold up deliveries for 6 ms."""

SETTLE_INTERVAL = 0.5
"""Seconds between commits that are made for acknowledgements alone."""


class Timers:
    """The clock of a broker, from :meth:`start` to :meth:`stop`."""

    def __init__(self, services: Services, commits: Commits) -> None:
        self._services = services
        self._commits = commits
        self._loop = asyncio.get_running_loop()
        self._tick: asyncio.TimerHandle | None = None
        self._settled_at = 0.0
        self._next_queue = 0

    def start(self) -> None:
        self._tick = self._loop.call_later(TICK, self._on_tick)

    def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()

    def _on_tick(self) -> None:
        self._tick = self._loop.call_later(TICK, self._on_tick)
        with self._services.turns.turn():
            monotonic = time.monotonic()
            for connection in list(self._services.connections):
                connection.check_heartbeat(monotonic)
            self._expire(time.time())
            if monotonic - self._settled_at >= SETTLE_INTERVAL:
                self._settled_at = monotonic
                self._commits.flush(settlements=True)

    def _expire(self, now: float) -> None:
        """Let go of what has expired in the next queues in turn, and of queues that have."""
        queues = self._queues()
        first = self._next_queue if self._next_queue < len(queues) else 0
        self._next_queue = first + QUEUES_A_TICK
        for queue in queues[first : self._next_queue]:
            if queue.expiring:
                queue.trim(now)
            expires = queue.limits.expires
            if expires is not None and not queue.consumers and now - queue.last_used > expires / 1000:
                self._services.topology.apply(DeleteQueue(queue.vhost, queue.name, queue.id))

    def _queues(self) -> list[Queue]:
        return [queue for vhost in self._services.topology.vhosts.values() for queue in vhost.queues.values()]
