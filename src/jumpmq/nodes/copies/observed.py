"""Observations of homes' copies over time: the lag of followers in seconds, and changes of set and leader."""

import dataclasses
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping

from jumpmq.broker.copies import CopyChanges
from jumpmq.replication.configuration import Configuration, ReplicaId

SAMPLES = 7200
"""Maximum number of recorded ends of the log, half a second apart. These cover an hour, which is the highest reported
lag.
"""


class ObservedCopies:
    """Observations of a home.

    Attributes:
        changes: number of changes of set or leader since the start of the process.
        lag_seconds: for a home that this process leads, the age of the oldest octets that each follower has not stored.
    """

    def __init__(self) -> None:
        self.changes = CopyChanges()
        self.lag_seconds: dict[ReplicaId, float] = {}
        # Ends of the log, with the times of their first observation.
        self._ends: deque[tuple[int, float]] = deque(maxlen=SAMPLES)

    def on_configuration(self, before: Configuration, after: Configuration) -> None:
        """Count the differences between a configuration and the next one."""
        if after.v <= before.v:
            return
        changes = self.changes
        joined, left = len({*after.set} - {*before.set}), len({*before.set} - {*after.set})
        hands_over = after.leader != before.leader and before.leader in after.set
        self.changes = dataclasses.replace(
            changes,
            joined=changes.joined + joined,
            left=changes.left + left,
            handovers=changes.handovers + hands_over,
            failovers=changes.failovers + (after.epoch > before.epoch and not hands_over),
        )

    def on_stored(self, end: int, stored: Mapping[ReplicaId, int], now: float) -> None:
        """Record the end of the log, and the positions stored by followers.

        Args:
            now: time by a monotonic clock, in seconds.
        """
        if not self._ends or end > self._ends[-1][0]:
            self._ends.append((end, now))
        self.lag_seconds = {one: self._age(position, now) for one, position in stored.items()}

    def _age(self, stored: int, now: float) -> float:
        """Return the seconds since the log was first longer than a position; 0 if the log is not longer."""
        at = bisect_right(self._ends, stored, key=lambda one: one[0])
        return now - self._ends[at][1] if at < len(self._ends) else 0.0
