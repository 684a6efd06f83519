"""The local node as a cluster member, as its parts know it."""

from collections.abc import Callable
from typing import Protocol

from jumpmq.broker.bulk.starts import Fingerprint
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.membership.stall import Stall
from jumpmq.nodes.transport.links import Links
from jumpmq.topology import Topology


class ClusterMember(Protocol):
    """The local node as a cluster member.

    Attributes:
        me: identity of the node.
        leads: epoch that the home's replica has claimed; 0 in a home without copies.
    """

    me: Membership
    leads: int
    stall: Stall

    def after_stop(self, then: Callable[[], None]) -> None:
        """Call a function once the peers' view of this node is known, after a suspension of the process."""

    async def start(
        self,
        topology: Topology,
        links: Links,
        is_ready: Callable[[int], bool],
        copies_of: Callable[[int], int],
        fingerprint: Callable[[], Fingerprint],
        had: Callable[[str], bool],
    ) -> None:
        """Announce the node, and apply current and later entries of the log.

        Args:
            is_ready: tells whether another home has restored its queues, so that new queues may be placed there.
            copies_of: returns the number of copies of a home.
            fingerprint: returns the fingerprint of the data directory.
            had: tells whether the data directory records a start, given by boot id.
        """

    def is_dead(self, home: int) -> bool:
        """Return True if a home's process has ended, as far as known."""

    async def resign(self) -> None:
        """Leave the cluster for good."""

    async def stop(self) -> None:
        """Withdraw the announcement of this node."""
