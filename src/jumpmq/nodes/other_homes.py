"""The other homes of this broker, as one of its processes knows them: all parts of ``nodes``, made and wired."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from jumpmq.broker.bulk.starts import Sight
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.remote import RemoteChannels
from jumpmq.broker.config import HOMES, LEFT, RETURNING, Config
from jumpmq.broker.connection.handed import KEEPS_ALL, HandsOver
from jumpmq.broker.connection.pause import STOPPED
from jumpmq.broker.errors import BrokerError, HomeLeft
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.opening import Opened
from jumpmq.broker.peers import PeerFigures, Restored, node_of
from jumpmq.broker.routing.sending import Sender
from jumpmq.broker.upkeep.slices import decided
from jumpmq.nodes.channels.remote_channels import ChannelLinks
from jumpmq.nodes.channels.served_channels import ServedChannels
from jumpmq.nodes.channels.usage import UsageLinks
from jumpmq.nodes.log.first import LET_GO, First
from jumpmq.nodes.log.follower import Follower
from jumpmq.nodes.log.log_link import FollowedLog, OnDisk, serve_log
from jumpmq.nodes.log.messages import ENTRY
from jumpmq.nodes.log.shared_log import FIRST, Record
from jumpmq.nodes.membership.standstill import Standstill
from jumpmq.nodes.messages.enqueue import Enqueue
from jumpmq.nodes.messages.outbox import Outbox
from jumpmq.nodes.messages.taking import Taking
from jumpmq.nodes.moves.moving import Moves
from jumpmq.nodes.moves.relocating import Relocating
from jumpmq.nodes.moves.returning import Ask, Returning
from jumpmq.nodes.moves.ring_changes import RingChanges
from jumpmq.nodes.processes.hand_over import HandOver
from jumpmq.nodes.transport.directory import Directory
from jumpmq.nodes.transport.links import Links, Ways
from jumpmq.nodes.transport.unix import UnixSockets
from jumpmq.store import Batch
from jumpmq.topology import Topology, changes
from jumpmq.topology.snapshot import followed_digest, records_of

log = logging.getLogger(__name__)

LAST_PORT = 65535

APPLIED = "applied"
"""Kind of the record that says which entry of the log a home has."""


class Member(Protocol):
    """This node in its cluster.

    Attributes:
        is_ready: whether another home has its queues, so that others may be there.
    """

    is_ready: Callable[[int], bool]
    standstill: Standstill

    def after_stop(self, then: Callable[[], None]) -> None:
        """The process was stopped for a while: call a function when it is known how the others see this node."""

    async def start(
        self, topology: Topology, links: Links, sight: Callable[[], Sight], had: Callable[[str], bool]
    ) -> None:
        """Be seen by the others, and apply the entries of the log, those that come later too."""

    def is_dead(self, home: int) -> bool:
        """Whether a home's process has ended, as far as is known."""

    async def resign(self) -> None:
        """Be no member any more."""

    async def stop(self) -> None:
        """Be seen no more."""


class OtherHomes:
    """The other homes: see :class:`~jumpmq.broker.peers.Peers`. :func:`~jumpmq.nodes.entering.enter` makes them.

    Args:
        config: settings, with the home and node of the member.
        identity: of the broker that this home was part of; None where it has never been here.
        directory: where the homes of other machines are; None where all are on this one.
        member: this node in its cluster; None where the first home orders the log.

    Attributes:
        links: one to each.
        enqueue: sends messages to their queues.
        taking: takes what the others have kept in their outboxes.
        queue_moves: has queues move from home to home.
        relocating: has queues of this home move to others, all of them where it is left.
        ring_changes: has messages of keys that move wait for those before them; to be served once queues are there.
        usage: tells what limited users have open; to be served once clients may come.
        channels: what clients' channels ask there.
        served: what clients of other homes ask here.
    """

    is_shared = True

    def __init__(
        self,
        config: Config,
        opened: Opened,
        identity: str | None,
        directory: Directory | None = None,
        member: Member | None = None,
    ) -> None:
        boot, turns, store = opened.boot, opened.turns, opened.store
        self.config = config
        self.identity = identity
        self.node = ""  # until definitions are there
        self.definitions: list[Record] = []
        self._same_machine = (FIRST,) if directory is None else ()  # homes that name this node, too
        self._home = config.home  # the number of this one
        self._homes = config.homes  # how many there are
        self.founds = config.home == FIRST and member is None
        self.records_audit = config.worker == 1 and (config.home == FIRST or member is not None)
        self._ways = _ways(config, directory)  # the sockets under the links
        self.links = Links(self._ways, config.home, boot, turns)
        sockets = config.links if directory is None or member is not None else None
        self._hand_over = None if sockets is None else HandOver(sockets, config.home, self.links)
        self.hand_over: HandsOver = KEEPS_ALL if self._hand_over is None else self._hand_over
        self.enqueue = Enqueue(self.links, turns, opened.memory)
        self.outbox = Outbox(self.links, turns, opened.memory, store)
        self.taking = Taking(self.links, turns, store)
        self.enqueue.on_ready.append(self.outbox.ready)
        self._on_disk = OnDisk(turns)  # calls back when what was changed is on disk
        self.queue_moves = Moves(self.links, turns, self.outbox, store, self._on_disk)
        self.moves = self.relocating = Relocating(self.links, self.outbox, self.queue_moves.streams, turns)
        self.usage = UsageLinks(self.links, turns)
        self.channels = ChannelLinks(self.links, turns)
        self.served = ServedChannels(self.links)
        self._boot = boot  # tells this run from all others
        self._store = store  # where this home keeps what it has
        self._on_failure = opened.commits.fail  # ends the process
        self._turns = turns  # those of the broker
        self.ring_changes = RingChanges(self.links, turns, self.enqueue, self._on_disk)
        self.taking.is_ahead = self.ring_changes.is_ahead
        self._member = member  # this node in its cluster
        self._topology: Topology  # knows the queues, once they are there
        if member is not None:
            self.enqueue.is_dead = member.is_dead
            member.is_ready = self.enqueue.is_ready
            self.relocating.on_removed = member.resign
        self._followed: FollowedLog | None = None  # not at the first home

    @property
    def sender(self) -> Sender:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return self.enqueue

    async def find(self, found: list[Record], default: str | None) -> None:
        """Find the definitions that this home begins with: those that it has, or else the first home's.

        Args:
            default: identity of a broker that has none yet.

        Raises:
            BrokerError: this home is not part of the first one's broker, there were more homes, or the sockets of links
                cannot be made.
            HomeLeft: this one was left.
        """
        self.definitions = await self._definitions(found)
        self.identity = self.identity or default
        self.node = node_of(self.config, self.definitions, *self._same_machine)

    async def _definitions(self, found: list[Record]) -> list[Record]:
        if self._member is not None:
            return found
        kept = next((value for kind, key, value in found if (kind, key) == HOMES), self._homes)
        if kept > self._homes and self._home == FIRST:  # others may not have heard yet that one was removed
            raise BrokerError(
                f"the data directory is one of {kept} homes: serve it with --workers {kept} or more, not {self._homes}"
            )
        if any((kind, key) == LEFT for kind, key, _ in found):
            raise HomeLeft(f"home {self._home} was left: what it had is at other homes")
        if self._home == FIRST:
            return found
        applied = next((value for kind, _, value in found if kind == APPLIED), None)
        self._followed = FollowedLog(self.links, self._turns, self.identity, applied, self._on_failure)
        await self._listen()
        given = await self._followed.definitions()
        self.identity = self._followed.identity
        if given is None:
            return found
        for kind, key, value in given if self._store is not None else ():
            self._store.put(kind, key, value)  # type: ignore[union-attr]
        return given

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
            topology, entries, kept, let_go, lambda: records_of(topology), self._on_disk, others, identity, digest
        )
        first.is_ready = self.enqueue.is_ready
        topology.log = first
        serve_log(self.links, first)

    def restore(self, topology: Topology, batches: dict[int, list[Batch]], alarms: Alarms) -> None:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        self.outbox.restore(topology, self.definitions, batches)
        self.taking.restore(topology, self.definitions)
        self.queue_moves.streams.restore(self.definitions)
        self.taking.is_short = lambda: alarms.active
        self.enqueue.alarms = alarms

    async def join(self, broker: Restored) -> None:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        self._topology, services = broker.topology, broker.services
        topology = self._topology
        self.served.serve(services, services.memory)
        self.channels.shard_choice.serve(topology)
        await self._join_log(topology, broker)
        self.enqueue.serve(services.deliver_reply)
        self.ring_changes.serve(topology, services.pause)
        self.usage.serve(services.user_limits)
        self.queue_moves.serve(
            topology, broker.channels, broker.queue_moved, broker.streams, broker.disk_free_limit, broker.users
        )
        self.relocating.serve(topology, broker.users)
        if self._hand_over is not None:
            self._hand_over.listen(topology, self._ways.secret, broker.take_client)
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
        """Be one of those who share the log of definitions.

        Raises:
            BrokerError: the sockets of links cannot be made.
        """
        self.enqueue.begin(topology)
        topology.listeners.append(lambda change, asker: self._follow(topology, change))
        if self._member is not None:
            await self._listen()
            await self._member.start(topology, self.links, broker.sight, broker.had)
        elif self._followed is None:
            self._note_homes(topology)
            await self._listen()
            return
        else:
            self._note_homes(topology)
            follower = Follower(topology, self._boot, self._on_disk, self._on_failure, followed_digest(topology))
            topology.log = follower
            await self._followed.follow(follower, lambda: topology.applied)
        pending = topology.propose(changes.AddHome(self._home, broker.node))
        await decided(pending)
        pending.result()

    @property
    def homes(self) -> set[int]:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return {self._home, *self.links.homes}

    def remote_channels(self, channel: Channel) -> RemoteChannels:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return self.channels.of(channel)

    def served_channels(self) -> list[Channel]:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        return self.served.channels()

    def figures(self) -> PeerFigures:
        """See :class:`~jumpmq.broker.peers.Peers`."""
        standstill = None if self._member is None else self._member.standstill.reason
        return PeerFigures(self.links.waiting, self.outbox.figures(), self.queue_moves.figures(), standstill)

    def _follow(self, topology: Topology, change: changes.Change) -> None:
        """Note that a home has come, or is removed, in the commit of that."""
        if isinstance(change, changes.RemoveHome) and change.home == self._home:
            if self._store is not None:
                self._store.put(*LEFT, True)
        elif isinstance(change, changes.AddHome | changes.RemoveHome) and self._member is None:
            self._note_homes(topology)

    def _note_homes(self, topology: Topology) -> None:
        """Note the last home that may have queues. One that was removed has none, though its directory may be there."""
        if self._store is not None:
            self._store.put(*HOMES, max(self._home, *topology.homes))

    async def _listen(self) -> None:
        try:
            await self.links.start()
        except OSError as error:
            raise BrokerError(f"links to other homes cannot be made: {error}") from None

    async def stop(self) -> None:
        """Break the links."""
        if self._member is not None:
            await self._member.stop()
        if self._hand_over is not None:
            self._hand_over.stop()
        self.usage.stop()
        self.ring_changes.stop()
        self.relocating.stop()
        self.queue_moves.stop()
        self.outbox.stop()
        await self._on_disk.stop()
        await self.links.stop()
        if self._followed is not None:
            self._followed.stop()


def _ways(config: Config, directory: Directory | None) -> Ways:
    """The sockets under this home's links.

    Raises:
        BrokerError: there is no place for them.
    """
    if directory is not None:
        from jumpmq.nodes.transport.tls import TLSSockets  # here, so that processes of one machine do not load it

        port = config.cluster_port + config.worker - 1 if config.cluster_port else 0
        if port > LAST_PORT:  # getaddrinfo would take another one
            raise BrokerError(f"with cluster-port {config.cluster_port} there is no port for worker {config.worker}")
        return TLSSockets(directory, config.home, config.cluster_host, port)
    if config.links is None:
        raise BrokerError("several homes need a directory for the links between them")
    return UnixSockets(config.links, config.home, config.homes)


class _Nowhere:
    def put(self, kind: str, key: str, value: Any) -> None:
        pass

    def put_text(self, kind: str, key: str, value: str) -> None:
        pass

    def delete(self, kind: str, key: str) -> None:
        pass


_NOWHERE = _Nowhere()
"""Where entries are recorded in memory: the log keeps them itself."""
