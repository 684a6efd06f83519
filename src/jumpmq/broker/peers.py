"""The peers of a process: workers of the node, and remote nodes.

A *home* is a number, a data directory and the process that serves the directory. A broker with one process is home 1,
and has no peers (:class:`Alone`). All other code for several processes is in ``jumpmq.nodes``. Nothing here imports
that package: the caller that starts the broker passes a function that makes the peers (:data:`Enter`).

A start has these steps: the data directory is opened (:class:`~jumpmq.broker.opening.Opened`), peers are entered, the
broker is made, definitions are restored, :meth:`Lifecycle.order`, :meth:`Lifecycle.restore`, contents of queues are
restored, :meth:`Lifecycle.join`, and listeners are opened for clients.
"""

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jumpmq.amqp.messages import Message
from jumpmq.broker.bulk.starts import Fingerprint
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.group_consumer import MemberChannel
from jumpmq.broker.channel.remote import RemoteChannels, no_remote
from jumpmq.broker.config import Config, default_node
from jumpmq.broker.connection.handed import KEEPS_ALL, HandsOver
from jumpmq.broker.connection.services import Services
from jumpmq.broker.errors import BrokerError, HomeUnreachable
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.opening import Opened, Record
from jumpmq.broker.routing.sending import NOWHERE, Sender
from jumpmq.queues import Queue
from jumpmq.store import Batch
from jumpmq.store.kinds import HOMES, MEMBERSHIP
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import Topology, records
from jumpmq.topology.declared import DeclaredQueue


class Forwarding:
    """A batch on the way to other homes; the publisher waits for its end.

    Attributes:
        homes: numbers of the destination homes.
        over: event, set when waiting is no longer worthwhile.
    """

    def __init__(self) -> None:
        self.homes: set[int] = set()
        self.over = asyncio.Event()
        self._parts = 0  # number of parts not yet stored

    @property
    def is_done(self) -> bool:
        """True if all parts are on the disks of the homes, or the queues are gone."""
        return not self._parts

    def begin(self, home: int) -> None:
        """Count a further part, sent to a home."""
        self.homes.add(home)
        self._parts += 1
        self.over.clear()

    def end(self) -> None:
        """Count a part as stored on disk."""
        self._parts -= 1
        if not self._parts:
            self.over.set()


class PeerOutbox(Protocol):
    """Keeps messages of batches until stored on disk by the homes of the queues."""

    def full_home(self, homes: Iterable[int]) -> int | None:
        """Return the first of the given homes with too many kept messages; None without any."""

    def forwarding(self) -> Forwarding:
        """Return a new batch, for :meth:`add` and :meth:`forwarded`."""

    def add(self, forwarding: Forwarding, queue: DeclaredQueue, messages: list[Message]) -> None:
        """Keep messages for a queue, in the turn's commit."""

    @property
    def is_full(self) -> bool:
        """True if too many messages are kept for a home."""

    def add_dead_letters(self, queue: DeclaredQueue, messages: list[Message]) -> None:
        """Keep dead-lettered messages for a queue. Like :meth:`add`, but nobody waits for the messages."""

    async def forwarded(self, forwarding: Forwarding) -> bool:
        """Wait briefly for the homes of a batch already on the local disk; return True if all homes have the batch."""


class MoveRequests(Protocol):
    """Moves requested by an operator."""

    def begin(self, queue: DeclaredQueue, home: int) -> bool:
        """Begin to copy a stream to another machine; the stream moves afterwards.

        Returns:
            False for any other queue: a change of definitions alone moves the queue.

        Raises:
            PreconditionFailed: the stream cannot be moved.
        """

    def stop_copy(self, queue: DeclaredQueue) -> None:
        """Stop copying a stream; the stream stays."""

    def rebalance(self) -> None:
        """Begin to move queues from the local home to homes with fewer queues."""


class MoveFigures(NamedTuple):
    """A move of a queue between homes, as known to either home.

    Attributes:
        vhost, name: the queue.
        leaves: True if the queue leaves this home; False if it arrives here.
        waits_for: the next event that the move needs.
        seconds: time since the last progress.
        is_stalled: True if this time is too long.
    """

    vhost: str
    name: str
    leaves: bool
    waits_for: str
    seconds: float
    is_stalled: bool


class PeerFigures(NamedTuple):
    """Metrics of the links to other homes.

    Attributes:
        links: for each home with a link: number of the home, octets waiting to be sent, octets sent.
        outbox: for each home with kept batches: number of the home, messages, octets.
        moves: queues that move.
        stall: reason why no definitions can be changed at the moment; None if they can.
    """

    links: list[tuple[int, int, int]]
    outbox: list[tuple[int, int, int]]
    moves: list[MoveFigures]
    stall: str | None = None


class QueueUsers(Protocol):
    """Clients of queues, as required by moves."""

    def reader_of(self, queue: str, vhost: str) -> str | None:
        """Return the reader group with reservations in a local queue; None without any."""

    def close_all(self, reason: str) -> int:
        """Close all connections; return the number of connections."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A broker with restored queues, for the broker's peers.

    Attributes:
        channels: returns the channels with possible deliveries.
        queue_moved: called with a queue that has moved to another home, before its consumers are cancelled.
        disk_free_limit: octets of the disk to keep free.
        take_client: serves a client of another process, given by socket and packed
            :class:`~jumpmq.broker.connection.handed.Handed`.
        fingerprint: identifies the data directory's content; detects an older copy of the directory.
        had: tells whether the data directory records a start, given by boot id.
    """

    topology: Topology
    node: str
    services: Services
    streams: StreamFiles
    users: QueueUsers
    channels: Callable[[], Sequence[MemberChannel]]
    queue_moved: Callable[[Queue], object]
    disk_free_limit: Callable[[], int]
    take_client: Callable[[socket.socket, bytes], None]
    fingerprint: Callable[[], Fingerprint]
    had: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class LocalHome:
    """The local process as its peers know it, before the broker is made.

    Attributes:
        config: settings, with home and node as the peers know them.
        node: name of this node: the setting, else the name kept in the data directory.
        identity: identifier of this broker, unique among brokers and kept over restarts; None if nothing is durable.
        definitions: records to restore at the start, from the data directory or from the peers.
        founds: True if definitions of a new broker begin at this process.
        is_shared: True if the definitions come from a log shared with other processes.
        records_audit: True if this process writes the audit log of changes.
    """

    config: Config
    node: str
    identity: str | None
    definitions: list[Record]
    founds: bool = True
    is_shared: bool = False
    records_audit: bool = True


class Lifecycle(Protocol):
    """Entry of a starting broker among its peers, step by step, and its exit."""

    def order(self, topology: Topology) -> None:
        """Give the topology a log of changes if this process orders changes. Definitions are restored by now."""

    def restore(self, topology: Topology, batches: dict[int, list[Batch]], alarms: Alarms) -> None:
        """Restore state from the store, after the definitions.

        Args:
            batches: kept messages by number of the queue; the method removes those on the way to other homes.
            alarms: alarms of this process; other homes get no answers during an alarm.
        """

    async def join(self, broker: Restored) -> None:
        """Establish links, catch up with the log of changes, join, and serve other homes.

        Raises:
            BrokerError: this process cannot be part of the broker.
        """

    async def stop(self) -> None:
        """Break the links."""


class PeerChannels(Protocol):
    """Channels between clients and queues of different homes."""

    def of(self, channel: Channel) -> RemoteChannels:
        """Return the remote channels of a client's channel, for queues of other homes."""

    def served(self) -> Sequence[MemberChannel]:
        """Return the local channels of clients of other homes."""


class Peers(Protocol):
    """The peers of a process.

    Attributes:
        local: the local process as its peers know it.
        lifecycle: enters the peers at the start, and leaves them at the end.
        sender: sends a turn's messages to queues of other homes, and reports when the messages are complete there.
        outbox: keeps messages of batches until other homes have stored them.
        channels: channels between clients and queues of different homes.
        hand_over: passes a client to the home of the client's virtual host.
        moves: accepts moves requested by an operator.
        homes: numbers of the responding homes, including the process's own home.
    """

    @property
    def local(self) -> LocalHome: ...
    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def outbox(self) -> PeerOutbox: ...
    @property
    def channels(self) -> PeerChannels: ...
    @property
    def hand_over(self) -> HandsOver: ...
    @property
    def moves(self) -> MoveRequests: ...
    @property
    def homes(self) -> set[int]: ...

    def figures(self) -> PeerFigures:
        """Return metrics of the links to other homes."""


Enter = Callable[[Opened], Awaitable[Peers]]
"""Makes the peers of a broker whose data directory is open; raises :class:`~jumpmq.broker.errors.BrokerError`."""


class _NoOutbox:
    """Outbox of a single-process broker: no message is for another home."""

    is_full = False

    def full_home(self, homes: Iterable[int]) -> int | None:
        return None

    def forwarding(self) -> Forwarding:
        return Forwarding()

    def add(self, forwarding: Forwarding, queue: DeclaredQueue, messages: list[Message]) -> None:
        raise HomeUnreachable(queue.definition.home, "this broker is one process")

    def add_dead_letters(self, queue: DeclaredQueue, messages: list[Message]) -> None:
        raise HomeUnreachable(queue.definition.home, "this broker is one process")

    async def forwarded(self, forwarding: Forwarding) -> bool:
        return True


class _NoMoves:
    """Moves of a single-process broker: no other home exists."""

    def begin(self, queue: DeclaredQueue, home: int) -> bool:
        return False

    def stop_copy(self, queue: DeclaredQueue) -> None:
        pass

    def rebalance(self) -> None:
        pass


class _NoLifecycle:
    """Start of a single-process broker: no peer is entered."""

    def order(self, topology: Topology) -> None:
        """Do nothing: changes are decided in the order of requests by the topology itself."""

    def restore(self, topology: Topology, batches: dict[int, list[Batch]], alarms: Alarms) -> None:
        """Do nothing: no message is on the way to another home."""

    async def join(self, broker: Restored) -> None:
        """Return at once: no peer exists."""

    async def stop(self) -> None:
        """Do nothing: no link exists."""


class _NoChannels:
    """Channels of a single-process broker: all queues are local."""

    def of(self, channel: Channel) -> RemoteChannels:
        return no_remote(channel)

    def served(self) -> Sequence[MemberChannel]:
        return ()


class Alone:
    """The peers of a broker with one process: none. See :class:`Peers`.

    Raises:
        BrokerError: the data directory belongs to a node of a cluster, or to one of several workers. The messages of
            the other processes would be missing.
    """

    lifecycle: Lifecycle = _NoLifecycle()
    sender: Sender = NOWHERE
    outbox: PeerOutbox = _NoOutbox()
    channels: PeerChannels = _NoChannels()
    hand_over: HandsOver = KEEPS_ALL
    moves: MoveRequests = _NoMoves()

    def __init__(self, opened: Opened) -> None:
        config = opened.config
        if config.cluster is not None or config.homes != 1:
            raise BrokerError("the settings are those of one of several processes, which enters its peers")
        require_no_cluster(opened.definitions)
        homes = next((value for kind, key, value in opened.definitions if (kind, key) == HOMES), 1)
        if homes != 1:
            raise BrokerError(f"the data directory is one of {homes} homes: serve it with --workers {homes} or more")
        definitions = records.alone(opened.definitions, opened.store)
        identity = opened.identity or (None if opened.store is None else uuid.uuid4().hex)
        self.local = LocalHome(config, node_of(config, definitions), identity, definitions)
        self.homes = {config.home}

    def figures(self) -> PeerFigures:
        return PeerFigures([], [], [])


async def alone(opened: Opened) -> Peers:
    """Enter no peers: a broker with a single process.

    Raises:
        BrokerError: as :class:`Alone`.
    """
    return Alone(opened)


def node_of(config: Config, definitions: list[Record], *homes: int) -> str:
    """Return the name of a node.

    The name is the setting. Without a setting, it is the name kept for the node's home or for any of ``homes``, else
    the name of the host.
    """
    if config.node is not None:
        return config.node
    kept = (records.kept_node(definitions, home) for home in (config.home, *homes))
    return next(filter(None, kept), default_node())


def require_no_cluster(definitions: list[Record]) -> None:
    """Refuse a data directory of a node of a cluster.

    Raises:
        BrokerError: the data directory belongs to a cluster's node.
    """
    for kind, key, value in definitions:
        if (kind, key) == MEMBERSHIP:
            name = value["cluster"]
            raise BrokerError(
                f"the data directory is that of a node of cluster '{name}': serve it with --cluster {name}"
            )
