"""Waiting for a minimum of messages before a micro-batch: ``minMessagesPerTrigger`` and ``maxTriggerDelay``."""

from __future__ import annotations

import time

from jumpmq.spark.options import SourceOptions


class Minimum:
    """Decides whether a query plans a micro-batch, or waits for more messages, like Kafka's source.

    The first micro-batch of a run is planned at once, and so is one that ``maxTriggerDelay`` has passed for.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.messages = options.min_messages or 0  # messages of a micro-batch, at least
        self._delay = options.max_trigger_delay  # seconds without a micro-batch after which fewer are enough
        self._planned_at: float | None = None  # when the last micro-batch was planned; None before the first

    def waits(self, available: int) -> bool:
        """Return True if the query waits; note a micro-batch if not, and messages are available."""
        now = time.monotonic()
        if available < self.messages and self._planned_at is not None and now < self._planned_at + self._delay:
            return True
        if available:
            self._planned_at = now
        return False
