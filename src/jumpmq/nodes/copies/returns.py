"""When leadership of a home may return to its seat: soon, or hourly at most where the seat loses it again and again."""

from collections import deque

from jumpmq.replication.configuration import Configuration, node_of

QUIET = 30.0
"""Seconds for which a home has to be led in peace before leadership returns to its seat."""

DAMPED = 3600.0
"""Seconds after a takeover until leadership returns, once :data:`MOST_TAKEOVERS` have come within such a time."""

MOST_TAKEOVERS = 3
"""Takeovers within :data:`DAMPED` seconds from which on returns are damped."""


class Returns:
    """Changes of a home's leader, as a node has seen them since it started.

    Returns are damped from the third takeover within an hour on, until the seat has led for an hour.
    """

    def __init__(self) -> None:
        self._takeovers: deque[float] = deque(maxlen=MOST_TAKEOVERS)  # when another node than the seat came to lead
        self._since = 0.0  # when the seat came to lead
        self._is_damped = False

    def see(self, before: Configuration, value: Configuration, asked: str, now: float) -> None:
        """Look at a configuration and its predecessor.

        Args:
            asked: node that an operator wants to lead; what it takes over counts for nothing.
            now: seconds of a steady clock.
        """
        leader = node_of(value.leader)
        if leader == node_of(before.leader):
            return
        if leader == value.seat:
            self._since = now
        elif leader != asked:
            if self._is_damped and node_of(before.leader) == value.seat and now - self._since >= DAMPED:
                self._is_damped = False
                self._takeovers.clear()
            self._takeovers.append(now)
            self._is_damped |= len(self._takeovers) == MOST_TAKEOVERS and now - self._takeovers[0] < DAMPED

    def is_due(self, since: float, now: float) -> bool:
        """Return True if leadership may return.

        Args:
            since: when the home's configuration last changed.
        """
        if self._is_damped and now - self._takeovers[-1] < DAMPED:
            return False
        return now - since >= QUIET

    def is_restless(self, now: float) -> bool:
        """Return True if the leader has changed again and again, and within the last hour."""
        return self._is_damped and now - max(self._since, self._takeovers[-1]) < DAMPED
