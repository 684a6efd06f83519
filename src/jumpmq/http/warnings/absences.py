"""Homes that do not answer, with the begin of their absence and the last known number of messages in their queues."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.http.rates import Look, Rates
from jumpmq.topology.exchanges import HASH_EXCHANGES

if TYPE_CHECKING:
    from jumpmq.broker import Broker

UNLINKED_FOR = 5.0
"""Seconds without a link between two answering homes before a warning: at a start, links are made one after another."""


@dataclass(frozen=True)
class Absence:
    """A home that does not answer.

    Attributes:
        since: time of detection, in seconds since the epoch.
        queues: number of queues at the home.
        messages: number of messages of the queues; 0 if unknown.
        rings: exchanges with destinations at the home: virtual host, name, destinations at the home, all destinations.
    """

    home: int
    since: float
    queues: int
    messages: int
    rings: list[tuple[str, str, int, int]] = field(default_factory=list)


class Absences:
    """Keeps track of absent homes. :meth:`note` must be called after every reading of the metrics.

    Attributes:
        of: the homes that do not answer, by number.
    """

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        self._unlinked: dict[tuple[int, int], float] = {}  # start of each missing link between two homes
        self.of: dict[int, Absence] = {}

    async def note(self) -> None:
        """Update the record of absent homes."""
        broker = self._broker
        down = [home for home in broker.figures.down() if not self._has_left(home)]
        self.of = {home: self.of[home] if home in self.of else await self._absence(home) for home in down}
        self._note_links(self._rates.latest)

    def unlinked(self) -> list[tuple[int, int]]:
        """Return pairs of answering homes where the first has had no link to the second for :data:`UNLINKED_FOR`."""
        now = time.monotonic()
        return [pair for pair, since in self._unlinked.items() if now - since >= UNLINKED_FOR]

    def _has_left(self, home: int) -> bool:
        """Return True if a home was removed for good, by a reduction of the workers: all its queues have moved."""
        topology = self._broker.topology
        return home in topology.left and not topology.holdings.queues_by_home[home]

    async def _absence(self, home: int) -> Absence:
        broker, since = self._broker, time.time()
        queues, messages, rings = 0, 0, []
        for host in list(broker.topology.vhosts.values()):
            there = host.queues_of(home)
            queues += len(there)
            messages += sum([self._rates.last_known(one.definition.id) async for one in broker.slices.through(there)])
            names = {one.name for one in there}
            async for exchange in broker.slices.through(list(host.exchanges.values()) if names else []):
                if isinstance(exchange, HASH_EXCHANGES) or host.in_force.sharding(exchange) is not None:
                    bound = {one.destination for one in exchange.bindings if one.kind == "queue"}
                    if gone := len(bound & names):
                        rings.append((host.name, exchange.name, gone, len(bound)))
        return Absence(home, since, queues, messages, sorted(rings, key=lambda ring: -ring[2]))

    def _note_links(self, look: Look) -> None:
        homes = look.cpu.keys()
        missing = [(one, other) for one in homes for other in homes if one != other and (one, other) not in look.links]
        now = time.monotonic()
        self._unlinked = {pair: self._unlinked.get(pair, now) for pair in missing}
