"""Operators' view of the copies of homes, and their requests.

A broker outside a cluster has no copies (:class:`NoCopies`); ``jumpmq.nodes.copies`` implements a cluster's.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

CopyState = Literal["leader", "in set", "eligible", "joining", "away"]
"""State of a member's copy.

- *leader*: serves the home.
- *in set*: stores each commit before the commit is complete.
- *eligible*: left a set that fell below ``min``, and has all complete commits.
- *joining*: still receives commits that it lacks.
- *away*: on a node without a running process; the copy may still be in the set.
"""


class CopiesRefused(ValueError):
    """An impossible request; the text gives the reason."""


class CopiesUnavailable(Exception):
    """The copies cannot be read or changed at the moment; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class CopyChanges:
    """Number of changes of a home's set and leader since the start of the observing process.

    Attributes:
        joined, left: number of copies that joined, or left, the set.
        handovers: planned changes of the leader.
        failovers: unplanned takeovers by a leading process, at another node or the same node.
    """

    joined: int = 0
    left: int = 0
    handovers: int = 0
    failovers: int = 0


@dataclass(frozen=True, slots=True)
class HomeCopies:
    """Copies of a home.

    Attributes:
        home: number of the home.
        seat: node that the home belongs to.
        leader: node that serves the home, or should serve it.
        epoch: number of the leader's life.
        copies: number of copies.
        min: number of copies that have to store a commit.
        members: state of each member's copy, by node, the seat first.
        wanted_copies, wanted_min: numbers requested by an operator; equal to ``copies`` and ``min`` once fulfilled.
        wanted_members: nodes that should have a copy.
        wanted_leader: node that should lead by an operator's request; empty for the seat.
        lag_octets: octets of the log that each follower has not stored, by node; only at the leading process.
        racks: racks of the members' nodes, if set.
        troubles: problems of copies, by node.
        damaged: nodes with a damaged copy.
        lag_seconds: age of the oldest octets in ``lag_octets``, with a resolution of half a second.
        lease_left: seconds for which the leading process may deliver without answers of other replicas; None elsewhere.
        changes: number of changes of the set and the leader.
    """

    home: int
    seat: str
    leader: str
    epoch: int
    copies: int
    min: int
    members: dict[str, CopyState]
    wanted_copies: int
    wanted_min: int
    wanted_members: tuple[str, ...]
    wanted_leader: str
    lag_octets: dict[str, int]
    racks: dict[str, str]
    troubles: dict[str, str]
    damaged: frozenset[str]
    lag_seconds: dict[str, float]
    lease_left: float | None
    changes: CopyChanges

    @property
    def in_set(self) -> int:
        """Number of copies in the set, including the leader's."""
        return sum(state in ("leader", "in set") for state in self.members.values())

    @property
    def online(self) -> list[str]:
        """Members with a running node."""
        return [node for node, state in self.members.items() if state != "away"]

    @property
    def stands(self) -> bool:
        """True if fewer copies than ``min`` are in the set: nothing is confirmed."""
        return self.in_set < self.min

    def stops_without(self, node: str) -> bool:
        """Return True if the home would stop with a node: its copy is one of the last ``min``."""
        return self.members.get(node) in ("leader", "in set") and self.in_set <= self.min


class CopyFiles(NamedTuple):
    """Lengths in octets of the comparable files of a node's copy of a home, by name."""

    node: str
    lengths: dict[str, int]


class CopyPositions(NamedTuple):
    """Positions in the log of a node's copy of a home, comparable between copies: segment times 2^32, plus octets.

    Attributes:
        node: node with the copy.
        written: end of the log.
        stored: end of the part that is synced to disk.
        complete: end of the part that all copies in the set have stored, as far as the node knows.
    """

    node: str
    written: int
    stored: int
    complete: int


class Copies(Protocol):
    """Copies of the homes of a broker."""

    def listed(self) -> list[HomeCopies]:
        """Return the copies of all homes, as last read from etcd, by number; homes without copies have one member."""

    def leader_of(self, home: int) -> str | None:
        """Return the node that serves a home, or should serve it, as last read from etcd; None for an unknown home."""

    async def set_copies(self, home: int, copies: int, least: int | None = None) -> None:
        """Request a number of copies of a home; the home's leader makes them.

        Args:
            least: number of copies that have to store a commit; None for half of the copies, rounded up.

        Raises:
            CopiesRefused: the home does not exist, or the number of copies is impossible.
            CopiesUnavailable: etcd does not answer.
        """

    async def add_member(self, home: int, node: str) -> None:
        """Request a further copy of a home, at a running node. Half of the copies, rounded up, then have to store a
        commit, unless an operator has set another number.

        Raises:
            CopiesRefused: the node does not run, has a copy already, or the home has the maximum number of copies.
            CopiesUnavailable: etcd does not answer.
        """

    async def remove_member(self, home: int, node: str) -> None:
        """Request the removal of a node's copy of a home.

        Raises:
            CopiesRefused: the node is the home's seat, serves the home, or has no copy.
            CopiesUnavailable: etcd does not answer.
        """

    async def set_leader(self, home: int, node: str | None) -> None:
        """Request a new leader of a home, effective once that node's copy has the whole log; None for the home's seat.

        Raises:
            CopiesRefused: the home has no copies, or the node has no copy.
            CopiesUnavailable: etcd does not answer.
        """

    async def positions(self, home: int) -> CopyPositions | None:
        """Return the positions in the log of this process's copy of a home; None without one."""

    async def files(self, home: int) -> CopyFiles | None:
        """Return the files of this process's copy of a home; None without one."""

    async def checksum(self, home: int, name: str, offset: int, length: int) -> tuple[str, int | None] | None:
        """Return the local node's name, and the CRC-32 of octets of a file in the local copy (None for missing
        octets). Return None without a local copy.
        """

    async def is_damaged(self, home: int, name: str, length: int) -> tuple[str, bool] | None:
        """Return the local node's name, and True if the first octets of a file of the local copy show damage. Return
        None without a local copy.
        """

    async def check_removal(self, node: str, served: Collection[int], *, accepts_loss: bool) -> None:
        """Check the removal of a stopped node from the cluster: other nodes must have all confirmed messages of the
        node's homes, and of the homes with a copy at the node.

        Args:
            served: homes of the node that another node serves; they are not checked.
            accepts_loss: True if the operator accepts the loss of messages of the node's own homes.

        Raises:
            CopiesRefused: confirmed messages would be lost, or the node runs.
            CopiesUnavailable: etcd does not answer.
        """

    async def end(self, home: int) -> None:
        """Remove a home with a lost seat, and all copies of the home. The files of the copies stay.

        Raises:
            CopiesUnavailable: etcd does not answer.
        """


NO_CLUSTER = "only homes of a cluster's nodes have copies; this broker is not in a cluster"
"""Reason for refusals by a broker outside of a cluster."""


class NoCopies:
    """The copies of a broker outside a cluster: none. See :class:`Copies`."""

    def listed(self) -> list[HomeCopies]:
        return []

    def leader_of(self, home: int) -> str | None:
        return None

    async def set_copies(self, home: int, copies: int, least: int | None = None) -> None:
        raise CopiesRefused(NO_CLUSTER)

    async def add_member(self, home: int, node: str) -> None:
        raise CopiesRefused(NO_CLUSTER)

    async def remove_member(self, home: int, node: str) -> None:
        raise CopiesRefused(NO_CLUSTER)

    async def set_leader(self, home: int, node: str | None) -> None:
        raise CopiesRefused(NO_CLUSTER)

    async def positions(self, home: int) -> CopyPositions | None:
        return None

    async def files(self, home: int) -> CopyFiles | None:
        return None

    async def checksum(self, home: int, name: str, offset: int, length: int) -> tuple[str, int | None] | None:
        return None

    async def is_damaged(self, home: int, name: str, length: int) -> tuple[str, bool] | None:
        return None

    async def check_removal(self, node: str, served: Collection[int], *, accepts_loss: bool) -> None:
        return

    async def end(self, home: int) -> None:
        raise CopiesRefused(NO_CLUSTER)
