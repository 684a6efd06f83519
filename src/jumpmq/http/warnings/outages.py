"""Sudden ends of traffic: publishing fell to zero, or most clients left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumpmq.broker.timing import BrokerTiming
from jumpmq.http.warnings.warning import Warning

if TYPE_CHECKING:
    from jumpmq.http.rates import Rates

FAST = 10.0
"""Minimum rate before a stop, in messages per second. At lower rates a stop is nothing unusual."""

CLIENTS = 5
"""Minimum number of connections before the loss."""

LEFT = 0.2
"""Maximum share of connections that remain."""

WITHIN = 10.0
"""Maximum duration, in seconds, of the loss of the connections."""

TOLD = 600.0
"""Maximum duration of the warning, in seconds."""

APART = 1.0


@dataclass(frozen=True)
class _Point:
    at: float
    published: int
    connections: int


@dataclass(frozen=True)
class _Outage:
    at: float
    """Start, by the monotonic clock."""
    wall: float
    """Start, in seconds since the epoch."""
    before: float
    """Value before the outage: messages per second, or connections."""
    published: int = 0
    """Number of messages published before the outage."""


class Outages:
    """Detects sudden ends of traffic. Call :meth:`note` after each reading of the metrics.

    Args:
        timing: the times ``outage`` and ``before_outage``.
    """

    def __init__(self, timing: BrokerTiming) -> None:
        self._silent, self._before = timing.outage, timing.before_outage
        self._points: deque[_Point] = deque()
        self._publishing: _Outage | None = None
        self._clients: _Outage | None = None

    def note(self, rates: Rates, now: float | None = None) -> None:
        """Update from the last reading.

        Args:
            now: current time by the monotonic clock; read from the clock by default.
        """
        self.add(rates.moved[0], len(rates.latest.connections), time.monotonic() if now is None else now)

    def add(self, published: int, connections: int, now: float) -> None:
        """Note the number of messages published so far, and of open connections."""
        if self._points and now - self._points[-1].at < APART:
            return
        self._points.append(_Point(now, published, connections))
        while now - self._points[0].at > self._silent + self._before:
            self._points.popleft()
        self._publishing = self._publishing_at(now)
        self._clients = self._clients_at(now)

    def _publishing_at(self, now: float) -> _Outage | None:
        last, known = self._points[-1], self._publishing
        if known is not None:
            return None if last.published > known.published or now - known.at > TOLD else known
        moved = [one for one in self._points if one.published < last.published]
        if not moved or now - moved[-1].at < self._silent or moved[-1].at - moved[0].at < self._before * 0.5:
            return None
        counts = [one.published for one in moved]
        step = max(1, len(counts) // 6)
        paused = any(later <= earlier for earlier, later in zip(counts[::step], counts[step::step], strict=False))
        rate = (counts[-1] - counts[0]) / (moved[-1].at - moved[0].at)
        return (
            None
            if paused or rate < FAST
            else _Outage(moved[-1].at, time.time() - (now - moved[-1].at), rate, last.published)
        )

    def _clients_at(self, now: float) -> _Outage | None:
        open_now, known = self._points[-1].connections, self._clients
        if known is not None:
            return None if open_now * 2 >= known.before or now - known.at > TOLD else known
        recent = [one for one in self._points if now - one.at <= WITHIN]
        most = max(recent, key=lambda one: one.connections)
        if most.connections < CLIENTS or open_now > LEFT * most.connections:
            return None
        fell = next(one for one in recent if one.at >= most.at and one.connections <= LEFT * most.connections)
        return _Outage(fell.at, time.time() - (now - fell.at), most.connections)

    def warnings(self) -> Iterator[Warning]:
        """Yield warnings of recent outages."""
        publishing, clients = self._publishing, self._clients
        if clients is not None:
            fell = "" if publishing is None else f" Publishing fell from {publishing.before:,.0f}/s to 0."
            gone = f"{clients.before - self._points[-1].connections:,.0f} of {clients.before:,.0f} connections closed"
            yield Warning(
                "clients-gone",
                "warning",
                "broker",
                "",
                "clients",
                f"{gone} at once, at {_clock(clients.wall)}.{fell}",
                "Check the clients, the network and the balancer: the log has each closed connection, with the "
                "reason. The messages stay in their queues.",
            )
        elif publishing is not None:
            yield Warning(
                "publishing-stopped",
                "warning",
                "broker",
                "",
                "publishers",
                f"Publishing fell from {publishing.before:,.0f}/s to 0 at {_clock(publishing.wall)}, though clients "
                "are connected.",
                "Check the publishers. The broker is the cause only if another warning here says so, such as an "
                "alarm that blocks publishers.",
            )


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
