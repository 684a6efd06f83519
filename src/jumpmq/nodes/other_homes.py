"""Other homes of the broker as known to a single process."""

import asyncio
from collections.abc import Callable

from jumpmq.broker.config import Config
from jumpmq.broker.connection.handed import KEEPS_ALL, HandsOver
from jumpmq.broker.opening import Opened
from jumpmq.broker.peers import LocalHome, PeerFigures, node_of
from jumpmq.nodes.beginning import Beginning
from jumpmq.nodes.channels.remote_channels import ChannelLinks
from jumpmq.nodes.channels.served_channels import ServedChannels
from jumpmq.nodes.cluster_member import ClusterMember
from jumpmq.nodes.entry import HomeLifecycle
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.log.shared_log import FIRST
from jumpmq.nodes.moves.returning import AskRemoval, Returning
from jumpmq.nodes.parts import Parts
from jumpmq.store.kinds import RETURNING
from jumpmq.topology import Topology


class OtherHomes:
    """Other homes: see :class:`~jumpmq.broker.peers.Peers`. Made by :func:`~jumpmq.nodes.entering.enter`.

    Args:
        config: settings, with the home and node of the member.
        parts: handlers of records from other homes; the links of a worker behind the first one listen already.
        begins: definitions and identity at the start of this home.
        same_machine: other homes with records for this node.
        member: membership of this node in its cluster; None if the first home orders the log.

    Attributes:
        links: links to other homes.
    """

    def __init__(
        self,
        config: Config,
        opened: Opened,
        parts: Parts,
        begins: Beginning,
        same_machine: tuple[int, ...] = (),
        member: ClusterMember | None = None,
    ) -> None:
        self.local = LocalHome(
            config,
            node_of(config, begins.definitions, *same_machine),
            begins.identity,
            begins.definitions,
            founds=config.home == FIRST and member is None,
            is_shared=True,
            records_audit=config.worker == 1 and (config.home == FIRST or member is not None),
        )
        self.lifecycle = HomeLifecycle(self.local, opened, parts, begins.followed, member)
        self.links = parts.links
        self.sender = parts.enqueue
        self.outbox = parts.outbox
        self.channels = _Channels(parts.channels, parts.served)
        self.moves = self.relocating = parts.relocating
        self.hand_over: HandsOver = KEEPS_ALL if parts.hand_over is None else parts.hand_over
        self._parts = parts  # handlers of records from other homes
        self._home = config.home  # number of the local home
        self._store = opened.store  # store of the local home
        self._turns = opened.turns  # those of the broker
        self._member = member  # membership of this node, in a cluster

    @property
    def membership(self) -> Membership:
        """Membership of the process in its cluster. Only for a node of a cluster."""
        assert self._member is not None
        return self._member.me

    def know_copies(
        self,
        has_copies: Callable[[int], bool],
        comes_back: Callable[[int], bool],
        count: Callable[[int], int],
    ) -> None:
        """Hold publishes and requests for a lost home with copies until another node serves the home.

        Args:
            has_copies: tells whether a home has copies: streams move there through its log.
            comes_back: tells whether another node will soon serve a lost home.
            count: returns the number of copies of a home: decides the place of queues that ask for several copies.
        """
        self._parts.copies.serve(has_copies, comes_back, count)

    def returning(self, topology: Topology, ask: AskRemoval) -> asyncio.Task[None] | None:
        """Start, or continue, the return of shards to this node; None if no shard has to return.

        Args:
            ask: sends requests to the shards' homes.
        """
        kept = next((value for kind, key, value in self.local.definitions if (kind, key) == RETURNING), None)
        if kept is None or self._store is None:
            return None
        returning = Returning(topology, self._turns, self._store, self.local.config.workers, self.links, ask)
        return asyncio.get_running_loop().create_task(returning.run(kept), name="returning")

    @property
    def homes(self) -> set[int]:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return {self._home, *self.links.homes}

    def figures(self) -> PeerFigures:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        stall = None if self._member is None else self._member.stall.reason
        return PeerFigures(self.links.waiting, self.outbox.figures(), self._parts.queue_moves.figures(), stall)


class _Channels:
    """See :class:`~jumpmq.broker.peers.PeerChannels`."""

    def __init__(self, links: ChannelLinks, served: ServedChannels) -> None:
        self.of = links.of
        self.served = served.channels
