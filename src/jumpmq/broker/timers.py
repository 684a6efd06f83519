"""Timed work: heartbeats, overdue acknowledgements, and commits for acknowledgements alone."""

import asyncio
import logging
import time
from collections.abc import Callable

from jumpmq.broker.channel.group_consumer import evicted
from jumpmq.broker.channel.overdue import Overdue
from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.watchdog import Watchdog
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.services import Services
from jumpmq.broker.dead_letters.dead_lettering import DeadLetters
from jumpmq.broker.memory.paging import Paging
from jumpmq.queues import clock

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between ticks."""

PATIENCE = 0.7
"""Seconds without a check of the clock after which the process counts as suspended: peers get a little longer."""

LINGER_INTERVAL = 0.2
"""Seconds between commits for publishes without confirms: messages consumed earlier are not written."""

SETTLE_INTERVAL = 0.5
"""Seconds between commits for acknowledgements alone."""


class Timers:
    """The clock of a broker, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        services: Services,
        connections: set[Connection],
        commits: Commits,
        watchdog: Watchdog,
        paging: Paging,
        dead_letters: DeadLetters,
    ) -> None:
        self._services = services  # shared by all connections
        self._connections = connections
        self._commits = commits
        self._watchdog = watchdog
        self._paging = paging
        self._dead_letters = dead_letters
        self._loop = asyncio.get_running_loop()  # source of timers
        self._tick: asyncio.TimerHandle | None = None  # the next tick
        self._settled_at = self._flushed_at = 0.0
        self._overdue = Overdue(services.config.consumer_timeout)  # finds overdue deliveries
        self._looked_at = 0.0  # last search for overdue deliveries, by the monotonic clock
        self._failed: set[str] = set()  # steps whose failure is in the log

    def start(self) -> None:
        self._services.alarms.look()
        self._set_tick()

    def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()

    def _set_tick(self) -> None:
        self._tick = self._loop.call_later(clock.until_tick(TICK, self._loop.time()), self._on_tick)

    def _on_tick(self) -> None:
        self._set_tick()
        self._watchdog.look()
        now = time.monotonic()
        self._services.pause.tick(PATIENCE)
        self._services.upkeep.look()
        with self._services.turns.turn():
            for connection in list(self._connections):
                self._take("the clock of a connection", connection.tick, now)
            self._take("the look for overdue acknowledgements", self._look_for_overdue, now)
            self._take("paging", self._paging.look)
            self._take("the look at dead letters", self._dead_letters.look)
            self._take("the look at fences", self._services.topology.fences.look, now)
            self._take("the record of losses", self._commits.keep_losses)
            self._take("the index of definitions", self._commits.index_definitions)
            self._take("the look for alarms", self._services.alarms.look)
            settlements = now - self._settled_at >= SETTLE_INTERVAL
            if settlements:
                self._settled_at = now
                clock.stamps.look()
            if settlements or now - self._flushed_at >= LINGER_INTERVAL:
                self._flushed_at = now
                self._commits.flush(settlements=settlements)

    def _take(self, subject: str, step: Callable[..., object], *arguments: object) -> None:
        """Take a step. If the step raises, remaining steps are taken all the same, and the next tick retries."""
        try:
            step(*arguments)
        except Exception:
            if subject not in self._failed:
                self._failed.add(subject)
                log.exception("%s failed; retry every %.1f s", subject, TICK)

    def _look_for_overdue(self, now: float) -> None:
        overdue = self._overdue
        if now - self._looked_at < overdue.interval:
            return
        self._looked_at = now
        for connection in list(self._connections):
            for channel in list(connection.channels.values()):
                if (found := overdue.look(channel, now)) is not None and not evicted(found[0]):
                    connection.close_channel(channel, found[1])
