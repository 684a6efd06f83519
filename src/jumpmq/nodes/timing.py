"""Intervals and bounds of a node in a cluster, as one value: tests pass shorter ones."""

from dataclasses import dataclass

LEASE = 10
"""Seconds after which etcd takes a process without a sign of life for dead."""


@dataclass(frozen=True)
class Timing:
    """Intervals and bounds of a node in a cluster; times in seconds.

    Attributes:
        alive_interval: time between two signs of life.
        linked_look: maximum time between two looks at the log while all homes are linked.
        unlinked_look: the same while a link is down.
        grace: time without a sign of life of a home before queues not outliving the home's process are gone.
        patience: time without a change in etcd before clients are told that definitions cannot be changed.
        compact_every: number of entries behind the snapshot before a new snapshot is made.
        compact_interval: time between two looks at the length of the log.
    """

    alive_interval: float = LEASE / 4
    linked_look: float = 2.5
    unlinked_look: float = 0.25
    grace: float = 60.0
    patience: float = 10.0
    compact_every: int = 5000
    compact_interval: float = 10.0


TIMING = Timing()
"""The timing of every node outside of tests."""
