"""Detection of warnings, with the time of their first detection."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jumpmq.broker.figures.values import QueueFigures
from jumpmq.http.rates import PAUSE, Rates
from jumpmq.http.warnings.absences import Absences
from jumpmq.http.warnings.copies import of_copies
from jumpmq.http.warnings.incidents import by_cause
from jumpmq.http.warnings.moves import stalled_moves, warning_of_move
from jumpmq.http.warnings.nodes import of_nodes
from jumpmq.http.warnings.outages import Outages
from jumpmq.http.warnings.queues import QueueState, warnings_of_queue
from jumpmq.http.warnings.rings import rings_with_traffic, warnings_of_ring
from jumpmq.http.warnings.served import ServedQueues
from jumpmq.http.warnings.shards import sharded_exchanges, warnings_of_shards
from jumpmq.http.warnings.trends import Trends
from jumpmq.http.warnings.warning import Warning
from jumpmq.topology.definitions import QueueDefinition

if TYPE_CHECKING:
    from jumpmq.broker import Broker

LOOK_EVERY = 5.0
"""Minimum interval of checks without a request, in seconds. These checks detect the start of a warning."""


@dataclass
class _Known:
    """A detected warning: current text, first and last detection (seconds since the epoch)."""

    warning: Warning
    since: float
    last: float


class Watch:
    """The current warnings, with the time of their first detection. The order is stable: alarms first, then by age.

    A warning remains for ``timing.held_warning`` seconds after its last detection, so that a value near a limit does
    not make the warning flicker. Checks run after some readings of :class:`~jumpmq.http.rates.Rates`, and at each
    request.

    Attributes:
        absences: the homes that do not answer.
    """

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        self._known: dict[tuple[str, str, str, str], _Known] = {}
        self._next = 0.0  # time of the next check without a request, by the monotonic clock
        self.absences = Absences(broker, rates)
        self._trends = Trends()
        self._outages = Outages(broker.config.timing)
        rates.on_look.append(self._look)

    async def shown(self) -> list[dict[str, Any]]:
        """Return all warnings, with ``since`` (seconds since the epoch)."""
        return [one.shown() | {"since": round(since, 3)} for one, since in await self._current()]

    async def incidents(self) -> list[dict[str, Any]]:
        """Return the warnings grouped by cause."""
        return [one.shown() for one in by_cause(await self._current())]

    async def _look(self) -> None:
        began, worked = time.monotonic(), time.thread_time()
        await self.absences.note()
        self._outages.note(self._rates)
        if began >= self._next:
            await self._current()
            self._next = time.monotonic() + max(LOOK_EVERY, PAUSE * (time.thread_time() - worked))

    async def _current(self) -> list[tuple[Warning, float]]:
        found = [*await find(self._broker, self._rates, self.absences, self._trends), *self._outages.warnings()]
        now = time.time()
        for one in found:
            known = self._known.setdefault(one.identity, _Known(one, now, now))
            known.warning, known.last = one, now
        self._known = {key: one for key, one in self._known.items() if abs(now - one.last) <= self._held(one.warning)}
        ordered = sorted(self._known.items(), key=lambda item: (item[1].warning.severity, item[1].since, item[0]))
        return [(one.warning, one.since) for _, one in ordered]

    def _held(self, warning: Warning) -> float:
        """Return the seconds that a warning stays after its last detection: 0 for absent processes, whose state does
        not flicker.
        """
        return 0.0 if warning.kind in ("node-down", "worker-down") else self._broker.config.timing.held_warning


async def find(broker: Broker, rates: Rates, absences: Absences, trends: Trends) -> list[Warning]:
    """Return all warnings, alarms first."""
    down, slices = broker.topology.homes.keys() - broker.running_homes, broker.slices
    found = [*of_nodes(broker, absences), *of_copies(broker.copies.listed(), down)]
    found += map(warning_of_move, stalled_moves(broker.figures.states()))
    async for exchange, parts in slices.through(await rings_with_traffic(broker)):
        found += [one async for one in warnings_of_ring(broker, exchange, parts)]
    sharded, fullest = sharded_exchanges(broker), await _fullest(broker, rates)
    readers = await broker.figures.readers() if sharded or fullest else []
    read = {(one.vhost, one.queue) for one in readers}
    async for host, name in slices.through(sharded):
        found += [one async for one in warnings_of_shards(broker, rates, read, host, name)]
    served = ServedQueues(broker, rates)
    trends.note((queue.id, figures.ready) for queue, figures in fullest)
    for queue, figures in fullest:
        if not figures.consumers:
            await served.learn(queue.vhost)
        if _is_there(broker, queue):
            state = QueueState(rates, trends, queue, figures)
            found += [one async for one in warnings_of_queue(broker, served, state, (queue.vhost, queue.name) in read)]
        await slices.next()
    return sorted(found, key=lambda one: one.severity)


async def _fullest(broker: Broker, rates: Rates) -> list[tuple[QueueDefinition, QueueFigures]]:
    """Return the fullest queues of the last reading that still exist, with current metrics."""
    vhosts, found = broker.topology.vhosts, list[QueueDefinition]()
    for one in rates.latest.fullest:
        definition = vhosts[one.vhost].queue_definition(one.name) if one.vhost in vhosts else None
        if definition is not None and definition.id == one.id:
            found.append(definition)
    pairs = zip(found, await broker.figures.queues(found), strict=True)
    return [(definition, figures) for definition, figures in pairs if figures is not None]


def _is_there(broker: Broker, queue: QueueDefinition) -> bool:
    host = broker.topology.vhosts.get(queue.vhost)
    return host is not None and host.queue_definition(queue.name) is queue
