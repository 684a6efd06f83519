"""Copies of homes, as operators see and change them.

A broker that is no node of a cluster has none (:class:`NoCopies`); ``jumpmq.nodes.copies`` has those of a cluster.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

CopyState = Literal["leader", "in set", "eligible", "joining", "away"]
"""State of a member's copy.

- *leader*: serves the home.
- *in set*: stores each commit before the commit is complete.
- *eligible*: left a set that fell below ``min``, and has all complete commits.
- *joining*: lacks commits, and is being sent them.
- *away*: on a node without a running process; the copy may still be in the set.
"""


class CopiesRefused(ValueError):
    """A wish that cannot be met; the text says why."""


class CopiesUnavailable(Exception):
    """The copies cannot be asked about, or changed, at the moment; the text says why."""


@dataclass(frozen=True, slots=True)
class HomeCopies:
    """Copies of a home.

    Attributes:
        home: number of the home.
        seat: node that the home belongs to.
        leader: node that serves the home, or is to.
        epoch: number of the leader's life.
        copies: number of copies.
        min: number of copies that have to store a commit.
        members: state of each member's copy, by node, the seat first.
        wanted_copies, wanted_min: what an operator has asked for; equal to ``copies`` and ``min`` once it is so.
        wanted_leader: node that is to lead by an operator's wish; empty for the seat.
        lag_octets: octets of the log that each follower has not stored, by node; only at the leading process.
        racks: of members' nodes that have one.
        troubles: what is wrong with copies, by node.
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
    wanted_leader: str
    lag_octets: dict[str, int]
    racks: dict[str, str]
    troubles: dict[str, str]

    @property
    def in_set(self) -> int:
        """Number of copies that store each commit, the leader's included."""
        return sum(state in ("leader", "in set") for state in self.members.values())

    @property
    def stands(self) -> bool:
        """True if fewer copies than ``min`` are in the set: nothing is confirmed."""
        return self.in_set < self.min

    def stops_without(self, node: str) -> bool:
        """Return True if the home would stop with a node: its copy is one of the last ``min``."""
        return self.members.get(node) in ("leader", "in set") and self.in_set <= self.min


class Copies(Protocol):
    """Copies of the homes of a broker."""

    def listed(self) -> list[HomeCopies]:
        """Return the copies of all homes, as last seen in etcd, by number; homes without copies have one member."""

    async def set_copies(self, home: int, copies: int, least: int | None = None) -> None:
        """Ask for so many copies of a home; the home's leader brings them about.

        Args:
            least: number of copies that have to store a commit; None for half of the copies, rounded up.

        Raises:
            CopiesRefused: there is no such home, or there cannot be so many copies.
            CopiesUnavailable: etcd does not answer.
        """

    async def set_leader(self, home: int, node: str | None) -> None:
        """Ask for a member to lead a home as soon as its copy has all; None for the home's seat, as soon as it may.

        Raises:
            CopiesRefused: the home has no copies, or the node has none of them.
            CopiesUnavailable: etcd does not answer.
        """


class NoCopies:
    """Copies of a broker that is no node of a cluster: none. See :class:`Copies`."""

    def listed(self) -> list[HomeCopies]:
        return []

    async def set_copies(self, home: int, copies: int, least: int | None = None) -> None:
        raise CopiesRefused("only homes of a cluster's nodes have copies; this broker is no node of a cluster")

    async def set_leader(self, home: int, node: str | None) -> None:
        raise CopiesRefused("only homes of a cluster's nodes have copies; this broker is no node of a cluster")
