"""The next leader of a home, and the time for the return of leadership to a home's seat: soon, or at most hourly after
repeated takeovers.
"""

from collections import deque
from collections.abc import Callable, Set

from jumpmq.nodes.copies.kept_copy import KeptCopy
from jumpmq.nodes.copies.wishes import Wishes
from jumpmq.replication.configuration import Configuration, ReplicaId, node_of
from jumpmq.replication.needs import lags

DAMPED = 3600.0
"""Seconds from the last takeover to the return, if the home had :data:`MOST_TAKEOVERS` takeovers within this time."""

MOST_TAKEOVERS = 3
"""Number of takeovers within :data:`DAMPED` seconds from which on returns are delayed."""


class Returns:
    """Changes of a home's leader seen by this node since its start.

    Returns are delayed from the third takeover within an hour on, until the seat has led for an hour. A leader that
    stops in order gives its home away, which is no takeover: operators may restart a node repeatedly.

    Args:
        quiet: seconds without a change of the configuration before leadership returns to the seat.
    """

    def __init__(self, quiet: float) -> None:
        self._quiet = quiet
        # Times at which a node other than the seat became the leader.
        self._takeovers: deque[float] = deque(maxlen=MOST_TAKEOVERS)
        self._since = 0.0  # time at which the seat last became the leader
        self._is_damped = False

    def see(
        self, before: Configuration, value: Configuration, asked: str, now: float, *, resigned: bool = False
    ) -> None:
        """Record a change of the configuration.

        Args:
            asked: node wanted as the leader by an operator; takeovers by this node do not count.
            resigned: True if the leader of the predecessor stopped in order.
            now: time by a monotonic clock, in seconds.
        """
        leader = node_of(value.leader)
        if leader == node_of(before.leader):
            return
        if leader == value.seat:
            self._since = now
        elif leader != asked and not resigned:
            if self._is_damped and node_of(before.leader) == value.seat and now - self._since >= DAMPED:
                self._is_damped = False
                self._takeovers.clear()
            self._takeovers.append(now)
            self._is_damped |= len(self._takeovers) == MOST_TAKEOVERS and now - self._takeovers[0] < DAMPED

    def is_due(self, since: float, now: float) -> bool:
        """Return True if leadership may return.

        Args:
            since: time of the last change of the home's configuration.
        """
        if self._is_damped and now - self._takeovers[-1] < DAMPED:
            return False
        return now - since >= self._quiet

    def is_restless(self, now: float) -> bool:
        """Return True if the leader has changed repeatedly, and within the last hour."""
        return self._is_damped and now - max(self._since, self._takeovers[-1]) < DAMPED


class Succession:
    """Choice of the next leader of a locally led home.

    Args:
        node: local node.
        wishes: the wishes for homes: an operator may want a leader.
        damaged_at: returns the nodes with a damaged copy of a home.
    """

    def __init__(self, node: str, wishes: Wishes, damaged_at: Callable[[int], Set[str]]) -> None:
        self._node = node
        self._wishes = wishes
        self._damaged_at = damaged_at

    def heir(self, copy: KeptCopy, most: int = 0, *, any_node: bool = False) -> ReplicaId | None:
        """Return the replica that should lead a home next; None for no change.

        Args:
            most: maximum lag of the next leader, in octets.
            any_node: True to allow any node with an undamaged copy, because this copy is damaged.
        """
        home, known = copy.home, None if copy.home is None else copy.home.roles.known
        if home is None or known is None:
            return None
        node = self._wishes.leader_of(copy.number) or known.seat
        if node == self._node and not any_node:
            return None
        behind = lags(home.roles.leader)
        ready = [one for one in known.set if one != home.me and behind.get(one, most + 1) <= most]
        if any_node or not copy.is_doubted:
            sound = self.sound_others(copy.number, known)
            ready = [one for one in ready if one in sound]
        of_node = [one for one in ready if node_of(one) == node]
        return next(iter(of_node or (ready if any_node else ())), None)

    def sound_others(self, home: int, known: Configuration) -> list[ReplicaId]:
        """Return the replicas at other nodes in the set of a home that are not known to be damaged."""
        unsound = {self._node, *self._damaged_at(home)}
        return [one for one in known.set if node_of(one) not in unsound]
