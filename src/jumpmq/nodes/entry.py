"""Entry of a process among other homes at a start, and its exit; see :class:`~jumpmq.broker.peers.Lifecycle`."""

from typing import Any

from jumpmq.broker.connection.pause import LEASE, STOPPED
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.opening import Opened
from jumpmq.broker.peers import LocalHome, Restored
from jumpmq.broker.upkeep.slices import decided
from jumpmq.nodes.beginning import listen
from jumpmq.nodes.cluster_member import ClusterMember
from jumpmq.nodes.log.first import First
from jumpmq.nodes.log.follower import LogFollower
from jumpmq.nodes.log.log_link import FollowedLog, serve_log
from jumpmq.nodes.parts import Parts
from jumpmq.store import Batch
from jumpmq.store.kinds import ENTRY, HOMES, LEFT, LET_GO
from jumpmq.topology import AddHome, Change, RemoveHome, Topology
from jumpmq.topology.snapshot import followed_digest, records_of


class HomeLifecycle:
    """Steps of a start in order, and the stop. See :class:`~jumpmq.broker.peers.Lifecycle`.

    Args:
        local: the local home, with its initial definitions.
        opened: the data directory.
        parts: handlers of records of other homes; the links of a worker behind the first one listen already.
        followed: the first worker's log; None at the first worker, and in a cluster.
        member: the node's membership of a cluster; None if the first home orders the log.
    """

    def __init__(
        self,
        local: LocalHome,
        opened: Opened,
        parts: Parts,
        followed: FollowedLog | None,
        member: ClusterMember | None,
    ) -> None:
        self._local = local
        self._parts = parts
        self._boot = opened.boot  # boot id of this run
        self._store = opened.store  # store of the local home; None in memory
        self._on_failure = opened.commits.fail  # ends the process
        self._followed = followed  # the first worker's log, if followed
        self._member = member  # membership of a cluster, if any

    def order(self, topology: Topology) -> None:
        """See :class:`~jumpmq.broker.peers.Lifecycle`: the first worker orders the log."""
        if not self._local.founds:
            return
        found, identity = self._local.definitions, self._local.identity
        assert identity is not None
        others = range(2, self._local.config.homes + 1)
        entries: Any = _NOWHERE if self._store is None else self._store
        kept = [value for kind, _, value in found if kind == ENTRY]
        trimmed = next((value for kind, _, value in found if kind == LET_GO), 0)
        digest = followed_digest(topology)
        is_ready = self._parts.enqueue.is_ready
        records, on_disk = lambda: records_of(topology), self._parts.on_disk
        first = First(topology, entries, kept, trimmed, records, on_disk, others, identity, digest, is_ready)
        topology.order_by(first)
        serve_log(self._parts.links, first)

    def restore(self, topology: Topology, batches: dict[int, list[Batch]], alarms: Alarms) -> None:
        """See :class:`~jumpmq.broker.peers.Lifecycle`."""
        if self._member is not None and self._member.leads:
            topology.delivery_gate.extend(0.0)  # until the lease of the replica is known
        self._parts.outbox.restore(topology, self._local.definitions, batches)
        self._parts.receiver.restore(topology, self._local.definitions, alarms)
        self._parts.queue_moves.streams.restore(self._local.definitions)
        self._parts.enqueue.obey(alarms)

    async def join(self, broker: Restored) -> None:
        """See :class:`~jumpmq.broker.peers.Lifecycle`."""
        topology, services = broker.topology, broker.services
        if self._member is not None and self._member.leads:
            services.pause.begin(LEASE)  # ended when the lease is known
        self._parts.served.serve(services, services.memory)
        self._parts.channels.shard_choice.serve(topology)
        await self._join_log(topology, broker)
        self._parts.enqueue.serve(services.deliver_reply)
        self._parts.ring_changes.serve(topology, services.pause)
        self._parts.usage.serve(services.user_limits)
        self._parts.queue_moves.serve(
            topology, broker.channels, broker.queue_moved, broker.streams, broker.disk_free_limit, broker.users
        )
        self._parts.relocating.serve(topology, broker.users)
        if self._parts.hand_over is not None:
            self._parts.hand_over.listen(topology, self._parts.ways.secret, broker.take_client)
        if (member := self._member) is not None:
            pause = services.pause
            pause.listen(on_late=lambda: member.after_stop(lambda: pause.end(STOPPED)))

    async def _join_log(self, topology: Topology, broker: Restored) -> None:
        """Join the shared log of definitions.

        Raises:
            BrokerError: the sockets of links cannot be made.
        """
        self._parts.enqueue.begin(topology)
        topology.listeners.append(lambda change, principal: self._follow(topology, change))
        if self._member is not None:
            await listen(self._parts.links)
            is_ready, copies_of = self._parts.enqueue.is_ready, self._parts.copies.count
            await self._member.start(topology, self._parts.links, is_ready, copies_of, broker.fingerprint, broker.had)
        elif self._followed is None:
            self._note_homes(topology)
            await listen(self._parts.links)
            return
        else:
            self._note_homes(topology)
            follower = LogFollower(
                topology, self._boot, self._parts.on_disk, self._on_failure, followed_digest(topology)
            )
            topology.order_by(follower)
            await self._followed.follow(follower, lambda: topology.applied)
        pending = topology.propose(AddHome(self._local.config.home, broker.node))
        await decided(pending)
        pending.result()

    def _follow(self, topology: Topology, change: Change) -> None:
        """Record the addition or removal of a home in the commit of that change."""
        if isinstance(change, RemoveHome) and change.home == self._local.config.home:
            if self._store is not None:
                self._store.put(*LEFT, True)
        elif isinstance(change, AddHome | RemoveHome) and self._member is None:
            self._note_homes(topology)

    def _note_homes(self, topology: Topology) -> None:
        """Record the last home that may have queues. A removed home has none, though a directory may exist."""
        if self._store is not None:
            self._store.put(*HOMES, max(self._local.config.home, *topology.homes))

    async def stop(self) -> None:
        """Break the links."""
        if self._member is not None:
            await self._member.stop()
        await self._parts.stop()
        if self._followed is not None:
            self._followed.stop()


class _NoStore:
    def put(self, kind: str, key: str, value: Any) -> None:
        pass

    def put_text(self, kind: str, key: str, value: str) -> None:
        pass

    def delete(self, kind: str, key: str) -> None:
        pass


_NOWHERE = _NoStore()
"""In-memory storage for entries: the log itself keeps the entries."""
