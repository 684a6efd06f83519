"""Detection of dead homes, and the removal of queues that do not outlive them.

A home counts as dead if etcd has no live process of the home, this node has no link to the home, and a witness agrees.
Each check alone may be wrong: an etcd with a slow disk may report a living process as dead, and a node without links
may itself be cut off, with all its workers. The witness is a second node that reports the home as dead. It is needed
only while a third node is alive.
"""

import asyncio
import logging

from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.log.log_link import tell
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.live_homes import LiveHomes
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.links import Links
from jumpmq.topology import HomeDown, Topology

log = logging.getLogger(__name__)

MOST_QUEUES = 20_000
"""Maximum number of process-bound queues removed by a single change."""


class Witness:
    """Local node's view of dead homes.

    Args:
        etcd: of this node.
        live: the live homes, according to etcd.
        links: the links to other homes.
        topology: knows the homes of the cluster, and their queues.
        turns: those of the broker.
        timing: of the node.
    """

    def __init__(
        self, etcd: ClusterEtcd, live: LiveHomes, links: Links, topology: Topology, turns: Turns, timing: Timing
    ) -> None:
        self._etcd = etcd  # of this node
        self._live = live  # homes that live
        self._links = links  # to the others
        self._topology = topology  # knows homes and queues
        self._turns = turns  # those of the broker
        self._grace = timing.grace  # seconds without a sign of life before a home counts as dead
        self._interval = timing.alive_interval  # seconds after which the keys of live homes are read again
        self._missed: dict[int, float] = {}  # loop time of the last sign of life, by home
        self._suspected: dict[int, set[int]] = {}  # by linked home, the homes that it declares dead

    def note_dead(self, home: int, dead: set[int]) -> None:
        """Record the homes declared dead by a peer."""
        self._suspected[home] = dead

    def left(self, home: int) -> None:
        """Drop the reports of a home whose link went down."""
        self._suspected.pop(home, None)

    async def look(self) -> None:
        """Check for dead homes, and notify peers. If this home has the lowest number among linked homes, remove the
        queues of dead homes.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        if self._etcd.stall.set_back is not None:  # such an etcd knows nothing about live homes
            self._missed.clear()
            return
        await self._live.refresh(self._interval)
        me, linked, topology = self._etcd.me, self._links.homes, self._topology
        seen = {me.home, *self._live.homes, *linked}
        now = asyncio.get_running_loop().time()
        self._missed = {home: self._missed.get(home, now) for home in topology.homes if home not in seen}
        dead = {home for home, since in self._missed.items() if now - since >= self._grace}
        with self._turns.turn():
            for home in linked:
                tell(self._links, home, {"dead": sorted(dead)})
            remote = {home for home in topology.homes if topology.node_of(home) != me.node}
            others = [self._suspected.get(home, set()) for home in linked if home in remote]
            is_last = not others and not self._live.unlinked & remote
            if me.home == min([me.home, *linked]):
                for home in dead:
                    if is_last or any(home in suspected for suspected in others):
                        self.end(home)

    def end(self, home: int) -> None:
        """Propose the removal of the queues that do not outlive a dead home."""
        ended = [one.id for vhost in self._topology.vhosts.values() for one in vhost.ended_with(home)]
        if ended:
            log.warning("home %d is dead: %d transient or exclusive queues are deleted", home, len(ended))
            self._topology.propose(HomeDown(home, tuple(ended[:MOST_QUEUES])))
