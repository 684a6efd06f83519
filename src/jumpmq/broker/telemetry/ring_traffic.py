"""Counting of keys on all hash rings, if enabled."""

from __future__ import annotations

from collections.abc import Iterator

from jumpmq.topology import Change, ChangePrincipal, ConsistentHashExchange, DeclareExchange, Topology


class RingTraffic:
    """Makes the hash exchanges of a topology count keys, existing and future exchanges alike."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._on = False

    def start(self) -> None:
        """Start counting."""
        self._on = True
        for exchange in self.exchanges():
            exchange.count_traffic()
        self._topology.listeners.append(self._follow)

    def turn(self, now: float) -> None:
        """End due windows; see :meth:`Traffic.turn`."""
        for exchange in self.exchanges() if self._on else ():
            if exchange.traffic is not None:
                exchange.traffic.turn(now)

    def exchanges(self) -> Iterator[ConsistentHashExchange]:
        """Yield all consistent hash exchanges."""
        for vhost in list(self._topology.vhosts.values()):
            for exchange in list(vhost.exchanges.values()):
                if isinstance(exchange, ConsistentHashExchange):
                    yield exchange

    def _follow(self, change: Change, principal: ChangePrincipal) -> None:
        if isinstance(change, DeclareExchange):
            exchange = self._topology.vhosts[change.definition.vhost].exchanges.get(change.definition.name)
            if isinstance(exchange, ConsistentHashExchange):
                exchange.count_traffic()
