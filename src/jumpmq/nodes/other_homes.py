"""Remote homes of the broker as known to a single process: all parts of ``nodes``, made and wired."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from jumpmq.broker.bulk.starts import Sight
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.remote import RemoteChannels
from jumpmq.broker.config import Config
from jumpmq.broker.connection.handed import KEEPS_ALL, HandsOver
from jumpmq.broker.connection.pause import LEASE, STOPPED
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.opening import Opened
from jumpmq.broker.peers import PeerFigures, Restored, node_of
from jumpmq.broker.routing.sending import Sender
from jumpmq.broker.upkeep.slices import decided
from jumpmq.nodes.beginning import Beginning, listen
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.log.cluster_log import ClusterLog
from jumpmq.nodes.log.first import First
from jumpmq.nodes.log.follower import LogFollower
from jumpmq.nodes.log.log_link import serve_log
from jumpmq.nodes.log.shared_log import FIRST
from jumpmq.nodes.membership.standstill import Standstill
from jumpmq.nodes.moves.returning import Ask, Returning
from jumpmq.nodes.parts import Parts
from jumpmq.nodes.transport.links import Links
from jumpmq.store import Batch
from jumpmq.store.kinds import ENTRY, HOMES, LEFT, LET_GO, RETURNING
from jumpmq.topology import AddHome, Change, RemoveHome, Topology
from jumpmq.topology.snapshot import followed_digest, records_of

log = logging.getLogger(__name__)


class ClusterMember(Protocol):
    """The local node as a cluster member.

    Attributes:
        me: identity of the node.
        leads: epoch that the home's replica has claimed; 0 in a home without copies.
        is_ready: whether another home has its queues, so that others may be there.
    """

    me: Membership
    leads: int
    is_ready: Callable[[int], bool]
    standstill: Standstill

    def after_stop(self, then: Callable[[], None]) -> None:
        """Call a function once the peers' view of this node is known, after a stop of the process."""

    async def start(
        self, topology: Topology, links: Links, sight: Callable[[], Sight], had: Callable[[str], bool]
    ) -> None:
        """Announce the node, and apply current and later entries of the log."""

    def is_dead(self, home: int) -> bool:
        """Return True if a home's process has ended, as far as known."""

    async def resign(self) -> None:
        """Be no member any more."""

    async def stop(self) -> None:
        """Be seen no more."""


class OtherHomes:
    """Remote homes: see :class:`~jumpmq.broker.peers.Peers`. Made by :func:`~jumpmq.nodes.entering.enter`.

    Args:
        config: settings, with the home and node of the member.
        parts: act on records of other homes; the links of a worker behind the first one listen already.
        begins: definitions and identity that this home begins with.
        same_machine: other homes whose records may name this node.
        member: this node in its cluster; None where the first home orders the log.

    Attributes:
        links: one to each.
    """

    is_shared = True

    def __init__(
        self,
        config: Config,
        opened: Opened,
        parts: Parts,
        begins: Beginning,
        same_machine: tuple[int, ...] = (),
        member: ClusterMember | None = None,
    ) -> None:
        self.config = config
        self.identity = begins.identity
        self.definitions = begins.definitions
        self.node = node_of(config, begins.definitions, *same_machine)
        self.founds = config.home == FIRST and member is None
        self.records_audit = config.worker == 1 and (config.home == FIRST or member is not None)
        self.links = parts.links
        self.outbox = parts.outbox
        self.moves = self.relocating = parts.relocating
        self.hand_over: HandsOver = KEEPS_ALL if parts.hand_over is None else parts.hand_over
        self.taking = parts.taking
        self.served = parts.served
        self._parts = parts  # act on records of other homes
        self._home = config.home  # number of the local home
        self._homes = config.homes  # how many there are
        self._boot = opened.boot  # boot id of this run
        self._store = opened.store  # store of the local home
        self._turns = opened.turns  # those of the broker
        self._on_failure = opened.commits.fail  # ends the process
        self._followed = begins.followed  # the first worker's log
        self._member = member  # the membership of this node
        self._topology: Topology  # knows the queues, once they are there
        if member is not None:
            parts.enqueue.is_dead = member.is_dead
            member.is_ready = parts.enqueue.is_ready
            parts.relocating.on_removed = member.resign

    @property
    def membership(self) -> Membership:
        """Identity of the process as a member of a cluster; only there."""
        assert self._member is not None
        return self._member.me

    def know_copies(
        self, has_copies: Callable[[int], bool], comes_back: Callable[[int], bool], count: Callable[[int], int]
    ) -> None:
        """Hold publishes and requests for a lost home with copies until another node serves the home.

        Args:
            has_copies: true of a home with copies: streams move there through its log.
            comes_back: true of a home that is served again soon when it is lost.
            count: number of copies of a home: queues that ask for several are placed by that.
        """
        if isinstance(self._topology.log, ClusterLog):
            self._topology.log.copies_of = count
        self._parts.queue_moves.streams.has_copies = has_copies
        self._parts.enqueue.comes_back = self._parts.channels.comes_back = comes_back

    @property
    def sender(self) -> Sender:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return self._parts.enqueue

    def order(self, topology: Topology) -> None:
        """See :class:`~jumpmq.broker.peers.Peers`: the first worker orders the log."""
        if not self.founds:
            return
        found, identity = self.definitions, self.identity
        assert identity is not None
        others = range(2, self._homes + 1)
        entries: Any = _NOWHERE if self._store is None else self._store
        kept = [value for kind, _, value in found if kind == ENTRY]
        let_go = next((value for kind, _, value in found if kind == LET_GO), 0)
        digest = followed_digest(topology)
        first = First(
            topology, entries, kept, let_go, lambda: records_of(topology), self._parts.on_disk, others, identity, digest
        )
        first.is_ready = self._parts.enqueue.is_ready
        topology.log = first
        serve_log(self.links, first)

    def restore(self, topology: Topology, batches: dict[int, list[Batch]], alarms: Alarms) -> None:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        if self._member is not None and self._member.leads:
            topology.delivery_gate.extend(0.0)  # until the lease of the replica is known
        self.outbox.restore(topology, self.definitions, batches)
        self.taking.restore(topology, self.definitions)
        self._parts.queue_moves.streams.restore(self.definitions)
        self.taking.is_short = lambda: alarms.active
        self._parts.enqueue.alarms = alarms

    async def join(self, broker: Restored) -> None:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        self._topology, services = broker.topology, broker.services
        if self._member is not None and self._member.leads:
            services.pause.begin(LEASE)  # ended when the lease is known
        topology = self._topology
        self.served.serve(services, services.memory)
        self._parts.channels.shard_choice.serve(topology)
        await self._join_log(topology, broker)
        self._parts.enqueue.serve(services.deliver_reply)
        self._parts.ring_changes.serve(topology, services.pause)
        self._parts.usage.serve(services.user_limits)
        self._parts.queue_moves.serve(
            topology, broker.channels, broker.queue_moved, broker.streams, broker.disk_free_limit, broker.users
        )
        self.relocating.serve(topology, broker.users)
        if self._parts.hand_over is not None:
            self._parts.hand_over.listen(topology, self._parts.ways.secret, broker.take_client)
        if (member := self._member) is not None:
            pause = services.pause
            pause.on_late = lambda: member.after_stop(lambda: pause.end(STOPPED))

    def returning(self, ask: Ask) -> asyncio.Task[None] | None:
        """Begin, or go on, to have shards return to this node; None where none are to.

        Args:
            ask: asks their homes.
        """
        kept = next((value for kind, key, value in self.definitions if (kind, key) == RETURNING), None)
        if kept is None or self._store is None:
            return None
        returning = Returning(self._topology, self._turns, self._store, self.config.workers, self.links, ask)
        return asyncio.get_running_loop().create_task(returning.run(kept), name="returning")

    async def _join_log(self, topology: Topology, broker: Restored) -> None:
        """Join the shared log of definitions.

        Raises:
            BrokerError: the sockets of links cannot be made.
        """
        self._parts.enqueue.begin(topology)
        topology.listeners.append(lambda change, asker: self._follow(topology, change))
        if self._member is not None:
            await listen(self.links)
            await self._member.start(topology, self.links, broker.sight, broker.had)
        elif self._followed is None:
            self._note_homes(topology)
            await listen(self.links)
            return
        else:
            self._note_homes(topology)
            follower = LogFollower(
                topology, self._boot, self._parts.on_disk, self._on_failure, followed_digest(topology)
            )
            topology.log = follower
            await self._followed.follow(follower, lambda: topology.applied)
        pending = topology.propose(AddHome(self._home, broker.node))
        await decided(pending)
        pending.result()

    @property
    def homes(self) -> set[int]:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return {self._home, *self.links.homes}

    def remote_channels(self, channel: Channel) -> RemoteChannels:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return self._parts.channels.of(channel)

    def served_channels(self) -> list[Channel]:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return self.served.channels()

    def figures(self) -> PeerFigures:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        standstill = None if self._member is None else self._member.standstill.reason
        return PeerFigures(self.links.waiting, self.outbox.figures(), self._parts.queue_moves.figures(), standstill)

    def _follow(self, topology: Topology, change: Change) -> None:
        """Record the addition or removal of a home in the commit of that change."""
        if isinstance(change, RemoveHome) and change.home == self._home:
            if self._store is not None:
                self._store.put(*LEFT, True)
        elif isinstance(change, AddHome | RemoveHome) and self._member is None:
            self._note_homes(topology)

    def _note_homes(self, topology: Topology) -> None:
        """Record the last home that may have queues. A removed home has none, though a directory may exist."""
        if self._store is not None:
            self._store.put(*HOMES, max(self._home, *topology.homes))

    async def stop(self) -> None:
        """Break the links."""
        if self._member is not None:
            await self._member.stop()
        await self._parts.stop()
        if self._followed is not None:
            self._followed.stop()


class _Nowhere:
    def put(self, kind: str, key: str, value: Any) -> None:
        pass

    def put_text(self, kind: str, key: str, value: str) -> None:
        pass

    def delete(self, kind: str, key: str) -> None:
        pass


_NOWHERE = _Nowhere()
"""In-memory storage for entries: the log itself keeps the entries."""
