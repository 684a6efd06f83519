"""Minimum number of messages of a micro-batch: ``minMessagesPerTrigger`` and ``maxTriggerDelay``."""

from __future__ import annotations

import time

from jumpmq.spark.options import SourceOptions


class Minimum:
    """Decides between planning a micro-batch and waiting for more messages, like Kafka's source.

    A query does not wait for the first micro-batch of a run, nor after ``maxTriggerDelay`` since the last one.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.messages = options.min_messages or 0  # minimum number of messages of a micro-batch
        self._delay = options.max_trigger_delay  # seconds after the last micro-batch until fewer messages are enough
        self._planned_at: float | None = None  # when the last micro-batch was planned; None before the first

    def waits(self, available: int) -> bool:
        """Return True if the query is to wait; otherwise note the micro-batch's time, if messages are available."""
        now = time.monotonic()
        if available < self.messages and self._planned_at is not None and now < self._planned_at + self._delay:
            return True
        if available:
            self._planned_at = now
        return False
