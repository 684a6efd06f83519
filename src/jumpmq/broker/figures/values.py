"""Figures of queues, consumers, channels, connections, exchanges and of the node, as values.

A figure is a raw counter or a level at the time it was read. Rates, samples over time, sorting and paging are made
from figures by :mod:`jumpmq.http`, which therefore never touches a live queue, channel or connection to show one.
Whatever is counted is identified by an ``id`` that is not given twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jumpmq.broker.peers import MoveFigures
from jumpmq.queues.fences import FenceFigures
from jumpmq.queues.figures import MessageFigures
from jumpmq.topology.tally import Tally

Counts = tuple[int, ...]
"""Counters, in the order of a table below."""

OF_QUEUES = (
    "publish", "deliver_get", "ack", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver",
)  # fmt: skip
"""Counters of a queue, by RabbitMQ's names."""

LEVELS_OF_QUEUES = ("ready", "unacknowledged")
"""Numbers of a queue's messages, behind the counters of a queue."""

OF_CHANNELS = (
    *("publish", "confirm", "return_unroutable", "drop_unroutable"),
    *("deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver", "ack"),
)
"""Counters of a channel, by RabbitMQ's names."""

OF_HOSTS = ("publish", "confirm", "return_unroutable", "drop_unroutable")
"""Counters of channels per virtual host; everything else of a virtual host is the sum of its queues."""

OF_EXCHANGES = ("publish_in", "publish_out")
OF_CONNECTIONS = ("recv_oct", "send_oct")
OF_CONSUMERS = ("messages_delivered",)

ConnectionId = str
"""The connection's identity; a name is given again once its port is."""

ChannelId = tuple[ConnectionId, int]
ConsumerId = tuple[ConnectionId, int, str, str, str]
"""Connection and number of the channel, virtual host, queue, tag."""

ExchangeId = tuple[str, str]
"""Virtual host and name."""


class QueueCounts(NamedTuple):
    """Values read from every queue per second.

    Attributes:
        id: of the queue's definition.
        counts: as :data:`OF_QUEUES`, then :data:`LEVELS_OF_QUEUES`.
        append_only: whether its messages wait for no consumer, as in a stream.
    """

    id: int
    vhost: str
    name: str
    counts: Counts
    consumers: int
    append_only: bool

    @property
    def messages(self) -> int:
        """Ready and unacknowledged messages."""
        return self.counts[-2] + self.counts[-1]


class QueueFigures(NamedTuple):
    """Metrics of a queue from the queue's home, beside the definition.

    Attributes:
        counts: as :class:`QueueCounts` has them.
        consumers: how many there are.
        memory: octets of memory that its messages take.
        last_seq: the number of its youngest message.
        messages: octets of its messages and where they are; None where the kind of queue does not tell.
        head_timestamp: the property ``timestamp`` of the next message, if that is in memory.
        head_published_at: when it was published, in seconds since the epoch, if that is known.
        exclusive_consumer_tag, single_active_consumer_tag: None where there is no such consumer.
        automatic: whether a consumer does not acknowledge.
        exhausted: whether each consumer holds its whole prefetch unacknowledged.
        max_length: messages that it may have; None is any number.
        overflow: treatment of messages beyond the limit, a value of ``x-overflow``.
        status: what only its kind has to show, by RabbitMQ's keys.
        state: ``running``, or ``down`` where its home does not answer: all else is then unknown, and 0.
    """

    id: int
    type: str
    node: str
    append_only: bool
    counts: Counts
    consumers: int
    memory: int
    last_seq: int
    messages: MessageFigures | None
    head_timestamp: int | None
    exclusive_consumer_tag: str | None
    single_active_consumer_tag: str | None
    automatic: bool
    exhausted: bool
    max_length: int | None
    overflow: str
    status: Mapping[str, Any]
    state: str = "running"
    head_published_at: float | None = None

    @classmethod
    def down(cls, id: int, type: str, node: str) -> QueueFigures:
        """Metrics of a queue whose home does not answer: nothing is known beside the definition."""
        return cls(
            id=id,
            type=type,
            node=node,
            append_only=False,
            counts=(0,) * len((*OF_QUEUES, *LEVELS_OF_QUEUES)),
            consumers=0,
            memory=0,
            last_seq=0,
            messages=None,
            head_timestamp=None,
            exclusive_consumer_tag=None,
            single_active_consumer_tag=None,
            automatic=False,
            exhausted=False,
            max_length=None,
            overflow="drop-head",
            status={},
            state="down",
        )

    @property
    def ready(self) -> int:
        """Messages waiting for a consumer."""
        return self.counts[-2]

    @property
    def unacknowledged(self) -> int:
        """Messages delivered and not settled."""
        return self.counts[-1]


class PeerAddress(NamedTuple):
    """Client of a channel or consumer.

    Attributes:
        connection: the connection's id.
        name: the connection's name.
        provided_name: the client property ``connection_name``; None where the client gave none.
        host, port: the client's.
        by_token: whether a token vouches for the user, who is then not the one of that name who is kept here.
    """

    connection: ConnectionId
    name: str
    provided_name: str | None
    host: str
    port: int
    user: str
    by_token: bool
    vhost: str
    node: str

    @property
    def user_identity(self) -> tuple[str, bool]:
        """Identity of the user, as in a principal."""
        return self.user, self.by_token


class ConsumerFigures(NamedTuple):
    """A consumer of a queue.

    Attributes:
        unacknowledged: unacknowledged deliveries.
        delivered: messages that it was sent.
        active: whether it is served, where the queue serves one consumer at a time; else true.
        single: whether the queue serves one consumer at a time.
        arguments: of ``basic.consume``.
        channel, number: name and number of its channel; None where it is not a client's.
        peer: the client's connection; None where it is not a client's.
    """

    vhost: str
    queue: str
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    unacknowledged: int
    delivered: int
    active: bool
    single: bool
    arguments: Mapping[str, Any]
    channel: str | None
    number: int | None
    peer: PeerAddress | None

    @property
    def id(self) -> ConsumerId | None:
        """Key of the consumer; None for a consumer without a client."""
        if self.peer is None or self.number is None:
            return None
        return self.peer.connection, self.number, self.vhost, self.queue, self.tag

    @property
    def counts(self) -> Counts:
        """As :data:`OF_CONSUMERS`."""
        return (self.delivered,)


class GroupMemberFigures(NamedTuple):
    """A member of a consumer group.

    Attributes:
        user, by_token: the user of its last consumer, and whether a token vouches for it.
        weight: its share in relation to the others'.
        grace: seconds for which it stays a member without a consumer.
        joined_since: seconds since it joined first.
        away_for: seconds until its grace ends, while it has no consumer; else None.
        units: how many are its own.
        prefetch, unacknowledged, delivered: of its consumer, over all its queues.
        tag, channel, peer: its consumer's; None while it has none.
    """

    name: str
    user: str
    by_token: bool
    weight: int
    grace: float
    joined_since: float
    away_for: float | None
    units: int
    prefetch: int
    unacknowledged: int
    delivered: int
    tag: str | None
    channel: str | None
    peer: PeerAddress | None


class QueueFenceFigures(NamedTuple):
    """A queue whose messages wait for messages in a different queue."""

    vhost: str
    queue: str
    fence: FenceFigures


class GroupUnitFigures(NamedTuple):
    """A queue, or a slot of a queue, shared by a consumer group.

    Attributes:
        slot: None where the queue has none.
        owner: the member whose it is; None while it waits for one.
        owned_since: seconds for which it has been its owner's.
        holder: connection and consumer tag of who is fed, or still has messages of it; None where there is none.
        held: messages of it that the holder has not settled.
        draining_since: seconds for which the holder is fed no more; None while it is.
        ready, unacknowledged: messages.
        fenced: those of its queue that wait for another queue; they are in no slot yet.
        oldest: seconds since the first ready message was published; None where that is not at hand.
        unbound: True if the queue leaves the group once empty.
        offset: the lowest that the group has not settled; None where the queue is no stream.
        epoch: the number under which the holder is, or was fed; None where none ever was.
    """

    queue: str
    slot: int | None
    owner: str | None
    owned_since: float
    holder: tuple[str, str] | None
    held: int
    draining_since: float | None
    ready: int
    unacknowledged: int
    fenced: int
    oldest: float | None
    unbound: bool
    offset: int | None
    epoch: int | None


class ConsumerGroupFigures(NamedTuple):
    """A consumer group.

    Attributes:
        source_kind, source: what it consumes: ``exchange`` or ``queue``, and its name.
        state: ``gathering``, ``stable``, ``rebalancing`` or ``draining``.
        refused: queues that it does not share, and why.
        joins, leaves: members that came and went.
        moves: units that were taken from a member for another.
        handovers: number of completed handovers.
        forced_handovers: number of consumers cancelled because of unsettled deliveries.
        late_acknowledgements: deliveries that these settled afterwards, without effect.
    """

    vhost: str
    name: str
    source_kind: str
    source: str
    state: str
    rebalance_delay: float
    members: tuple[GroupMemberFigures, ...]
    units: tuple[GroupUnitFigures, ...]
    refused: Mapping[str, str]
    joins: int
    leaves: int
    moves: int
    handovers: int
    forced_handovers: int
    late_acknowledgements: int


class GroupOffsetFigures(NamedTuple):
    """Offset of a consumer group in a stream.

    Attributes:
        offset: lowest unsettled offset.
        end: the offset that follows the last message of the stream.
        ready: messages that no member has.
        unacknowledged: messages that members have not settled.
        skipped: messages that retention let go of before the group had them, or that are damaged.
        has_members: whether it has members that consume the stream.
    """

    vhost: str
    queue: str
    group: str
    offset: int
    end: int
    ready: int
    unacknowledged: int
    skipped: int
    has_members: bool


class ReaderFigures(NamedTuple):
    """The place of a group of readers in a queue.

    Attributes:
        group, user: what its user calls it, and whose it is; None where it is of an earlier version.
        alive: whether a query reads for it.
        reserved: messages that are read and not acknowledged.
        age: seconds since the oldest of them was published; None where there is none.
        ready, ready_octets: messages that it has not reserved, and octets of their bodies, where they are known.
    """

    vhost: str
    group: str
    user: str | None
    queue: str
    alive: bool
    reserved: int
    age: float | None
    ready: int
    ready_octets: int | None


class RingTrafficFigures(NamedTuple):
    """Recent traffic of a hash ring at a home; see :class:`jumpmq.topology.exchanges.traffic.CountedKeys`.

    Attributes:
        names: the destinations, to which ``messages`` belong.
        missing_since_start: messages that lacked what is hashed, since the home started.
        frequent: keys, in hexadecimal digits, with their destination, messages, and by how many fewer these may be.
        registers: of all keys, then of those of each destination, in Base64; empty where they were not asked for, of
            all keys only where destinations are many.
    """

    vhost: str
    exchange: str
    since: float | None
    names: list[str]
    messages: list[int]
    missing: int
    missing_since_start: int
    noted: int
    frequent: list[tuple[str, str, int, int]]
    registers: list[str]


class TLSFigures(NamedTuple):
    """The encryption of a connection.

    Attributes:
        subject, issuer, validity: of the client's certificate; None where it sent none.
    """

    protocol: str | None
    cipher: str
    subject: str | None = None
    issuer: str | None = None
    validity: str | None = None


class ConnectionFigures(NamedTuple):
    """An open connection.

    Attributes:
        peer: who it is.
        host, port: where it was accepted.
        counts: as :data:`OF_CONNECTIONS`.
        timeout: seconds of its heartbeat.
        connected_at: seconds since the epoch.
        unsent: octets that wait to be sent.
        reads, writes: how often its socket was read and written.
    """

    id: ConnectionId
    peer: PeerAddress
    state: str
    mechanism: str
    tls: TLSFigures | None
    host: str
    port: int
    channels: int
    channel_max: int
    frame_max: int
    timeout: int
    connected_at: float
    unsent: int
    counts: Counts
    reads: int
    writes: int
    client_properties: Mapping[str, Any]


class ChannelFigures(NamedTuple):
    """An open channel.

    Attributes:
        counts: as :data:`OF_CHANNELS`.
        confirms: whether its publishes are confirmed.
        unacknowledged, unconfirmed: messages delivered, and published.
        uncommitted, acks_uncommitted: messages published and acknowledged in a transaction.
        prefetch: of the next consumer; global_prefetch: of all consumers together.
    """

    id: ChannelId
    name: str
    number: int
    peer: PeerAddress
    counts: Counts
    confirms: bool
    transactional: bool
    consumers: int
    unacknowledged: int
    unconfirmed: int
    uncommitted: int
    acks_uncommitted: int
    prefetch: int
    global_prefetch: int


class PublisherFigures(NamedTuple):
    """A channel with publishes to an exchange.

    Attributes:
        published: messages to that exchange.
    """

    channel: str
    peer: PeerAddress
    published: int


class NodeFigures(NamedTuple):
    """Usage and limits of a node: octets of memory and disk, files, client connections.

    Attributes:
        name: of the node that runs the process, which may serve a home of another node.
        started_at: seconds since the epoch, by the clock as it is set now.
        disk_free: None where nothing is kept on disk.
        losses: what is missing from the data directory and not acknowledged.
        commit_waiting: seconds for which clients have waited for a commit, and none came.
        held: octets held for messages, by what they are held for.
        listeners: protocol, address and port of each, where clients connect to.
        links: connected homes, each with the octets waiting to be sent and the octets sent.
        cpu: seconds of processor time that were used since the start.
    """

    name: str
    pid: int
    durable: bool
    started_at: float
    resident: int
    memory_limit: int
    memory_alarm: bool
    held: Mapping[str, int]
    disk_free: int | None
    disk_free_limit: int
    disk_alarm: bool
    losses: int
    commit_waiting: float
    files: int
    files_limit: int
    connections: int
    connections_limit: int
    blocked: int
    listeners: list[tuple[str, str, int]]
    links: list[tuple[int, int, int]]
    cpu: float = 0.0

    @property
    def memory(self) -> int:
        """Octets held for messages."""
        return sum(self.held.values())


class HomeState(NamedTuple):
    """A home at a glance: what is little, and shown with many things.

    Attributes:
        home: its number.
        node: what its process uses and may use.
        churn: what came and went.
        tallies: what channels have counted, by virtual host; closed ones are included.
        past_tally: the same of virtual hosts that are deleted.
        past_queues: what deleted queues have counted, by virtual host, as ``QueueCounts.counts``.
        exchanges: what went in and out, as :data:`OF_EXCHANGES`, of those that were used.
        short: what is short: ``memory``, ``disk``.
        losses: data missing from the data directory, each with the time of the discovery.
        complaint: why what is published is not committed; None if it is.
        logins: numbers of successful and failed logins, by protocol.
        letters: number of arrived dead-lettered messages, for at-least-once dead-lettering.
        missing: number of messages without the hashed header or property, by hash exchange.
        deaths: messages that died, by kind of queue, reason and strategy.
        outbox: what is kept for other homes until it is there: of each its number, messages, and octets.
        moves: the queues on their way from this home, and to it.
        standstill: why definitions cannot be changed, as this home knows; None while they can.
    """

    home: int
    node: NodeFigures
    churn: Counts
    tallies: dict[str, Tally]
    past_tally: Tally
    past_queues: dict[str, Counts]
    exchanges: list[tuple[ExchangeId, Counts]]
    short: list[str]
    losses: list[tuple[str, float]]
    complaint: str | None
    logins: dict[str, tuple[int, int]]
    letters: int
    deaths: list[tuple[tuple[str, str, str], int]]
    missing: list[tuple[ExchangeId, int]]
    outbox: list[tuple[int, int, int]]
    moves: list[MoveFigures]
    standstill: str | None = None
