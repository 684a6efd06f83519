"""Continuous observation of a broker, for later requests."""

from __future__ import annotations

from jumpmq.broker import Broker
from jumpmq.http.history import History
from jumpmq.http.rates import Rates
from jumpmq.http.recent_log import RecentLog
from jumpmq.http.warnings.watch import Watch


class Observed:
    """Rates, history, warnings, and the last lines of the log.

    Attributes:
        rates: current rates of all counters.
        history: samples over time.
        watch: the warnings.
        recent_log: last lines of the log.
    """

    def __init__(self, broker: Broker) -> None:
        self.rates = Rates(broker)
        self.history = History(broker, self.rates)
        self.watch = Watch(broker, self.rates)
        self.recent_log = RecentLog()

    def start(self) -> None:
        """Begin the observation."""
        self.rates.start()
        self.recent_log.start()

    async def stop(self) -> None:
        """End the observation."""
        self.recent_log.stop()
        await self.rates.stop()
