"""Metrics of queues, consumers, channels, connections, exchanges and the node, as values.

A metric is a raw counter, or a level at the time of reading. :mod:`jumpmq.http` computes rates, samples over time,
sorting and paging from these values, and therefore never reads a live queue, channel or connection. Each counted object
has an ``id`` that is never reused.
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
"""Numbers of a queue's messages, following the queue's counters."""

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
"""Identity of a connection. A connection's name is reused when its client's port is."""

ChannelId = tuple[ConnectionId, int]
ConsumerId = tuple[ConnectionId, int, str, str, str]
"""Connection and number of the channel, virtual host, queue, tag."""

ExchangeId = tuple[str, str]
"""Virtual host and name."""


class QueueCounts(NamedTuple):
    """Values read from every queue per second.

    Attributes:
        id: id in the queue's definition.
        counts: as :data:`OF_QUEUES`, then :data:`LEVELS_OF_QUEUES`.
        append_only: True if messages do not wait for consumers, as in a stream.
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


class ObjectCounts(NamedTuple):
    """Counters of some objects, read every second.

    Attributes:
        deleted: counters of a home's deleted queues, by virtual host, as ``QueueCounts.counts``.
        queues: all of one virtual host.
        connections, channels, consumers: counters as :data:`OF_CONNECTIONS`, :data:`OF_CHANNELS`,
            :data:`OF_CONSUMERS`.
    """

    deleted: tuple[tuple[str, Counts], ...] = ()
    queues: tuple[QueueCounts, ...] = ()
    connections: tuple[tuple[ConnectionId, Counts], ...] = ()
    channels: tuple[tuple[ChannelId, Counts], ...] = ()
    consumers: tuple[tuple[ConsumerId, Counts], ...] = ()


class QueueFigures(NamedTuple):
    """Metrics of a queue from the queue's home, beside the definition.

    Attributes:
        counts: counters, as in :class:`QueueCounts`.
        consumers: number of consumers.
        memory: octets of memory held for its messages.
        last_seq: number of its newest message.
        messages: octets and locations of its messages; None if the kind of queue does not count them.
        head_timestamp: property ``timestamp`` of the next message, if in memory.
        head_published_at: publishing time of the next message, in seconds since the epoch, if known.
        exclusive_consumer_tag, single_active_consumer_tag: tag of such a consumer; None without one.
        automatic: True if a consumer consumes without acknowledgements.
        exhausted: True if every consumer holds its whole prefetch unacknowledged.
        max_length: maximum number of messages; None for no limit.
        overflow: treatment of messages beyond the limit, a value of ``x-overflow``.
        status: further values of its kind, by RabbitMQ's keys.
        state: ``running``; ``down`` if its home does not answer: all other values are then unknown, and 0.
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
        """Return the metrics of a queue whose home does not answer: only the definition is known."""
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
        provided_name: client property ``connection_name``; None without one.
        host, port: address of the client.
        by_token: True for a user authenticated by a token, who differs from a stored user of the same name.
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
        delivered: number of delivered messages.
        active: for a queue with a single active consumer, True for that consumer; otherwise True.
        single: True if the queue has a single active consumer.
        arguments: arguments of ``basic.consume``.
        channel, number: name and number of its channel; None for a consumer of the broker itself.
        peer: the client's connection; None for a consumer of the broker itself.
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
        """Return the counters, as :data:`OF_CONSUMERS`."""
        return (self.delivered,)


class GroupMemberFigures(NamedTuple):
    """A member of a consumer group.

    Attributes:
        user, by_token: user of its last consumer, and True if authenticated by a token.
        weight: weight of its share, relative to the other members.
        grace: seconds for which it stays a member without a consumer.
        joined_since: seconds since it first joined.
        away_for: seconds until the end of its grace period while it has no consumer; otherwise None.
        units: number of queues or slots that it owns.
        prefetch, unacknowledged, delivered: totals of its consumer, over all its queues.
        tag, channel, peer: of its consumer; None without one.
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
        slot: number of the slot; None for a whole queue.
        owner: member that owns it; None without an owner.
        owned_since: seconds since the owner got it.
        holder: connection and consumer tag of the member that receives its messages, or has not settled all of them;
            None without one.
        held: number of its messages that the holder has not settled.
        draining_since: seconds since deliveries to the holder were stopped; None while they continue.
        ready, unacknowledged: number of messages.
        fenced: messages of its queue that wait for another queue, and are not in a slot yet.
        oldest: seconds since the first ready message was published; None if unknown.
        unbound: True if the queue leaves the group once empty.
        offset: lowest unsettled offset of the group; None for a queue that is not a stream.
        epoch: owner epoch of the current or last holder; None before the first.
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
        source_kind, source: ``exchange`` or ``queue``, and its name.
        state: ``gathering``, ``stable``, ``rebalancing`` or ``draining``.
        refused: queues that the group cannot share, with reasons.
        joins, leaves: number of members that joined and left.
        moves: number of units that passed from one member to another.
        handovers: number of completed handovers.
        forced_handovers: number of consumers cancelled because of unsettled deliveries.
        late_acknowledgements: deliveries settled after such a cancellation, without effect.
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


class UnitSupply(NamedTuple):
    """Deliveries of a queue or slot to a consumer group.

    Attributes:
        group: name of the group.
        gathers: True before the group's first assignment.
        owner: name of the owning member; None without one.
        drains: True while an earlier owner still holds messages.
        drained: for such an owner with a consumer: tag, name of the connection, unsettled messages, seconds of the
            drain; otherwise None.
        away_for: seconds until an absent owner loses the queue or slot; None for a present owner.
        connection: name of the owner's connection; None for an absent owner.
        has_room: True if the owner can take messages.
        unacknowledged: messages of the whole owner that are not settled.
        prefetch: prefetch of the owner.
    """

    group: str
    gathers: bool
    owner: str | None = None
    drains: bool = False
    drained: tuple[str, str, int, float] | None = None
    away_for: float | None = None
    connection: str | None = None
    has_room: bool = False
    unacknowledged: int = 0
    prefetch: int = 0


class GroupOffsetFigures(NamedTuple):
    """Offset of a consumer group in a stream.

    Attributes:
        offset: lowest unsettled offset.
        end: offset of the stream's next message.
        ready: number of messages not delivered to a member.
        unacknowledged: number of messages that members have not settled.
        skipped: number of messages lost to retention or damage before the group received them.
        has_members: True if members consume the stream.
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
    """Position of a reader group in a queue.

    Attributes:
        group, user: name of the group, and its user; None for a group of an earlier release.
        alive: True if a query reads for the group.
        reserved: number of messages read and not acknowledged.
        age: seconds since the oldest reserved message was published; None without one.
        ready, ready_octets: messages not reserved by the group, and octets of their bodies, if known.
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
        names: destinations, in the order of ``messages``.
        missing_since_start: messages without the hashed header or property, since the start of the home.
        frequent: frequent keys in hexadecimal, with destination, number of messages, and maximum error of that number.
        registers: registers of all keys, then of each destination's keys, in Base64. Empty unless requested; only of
            all keys if there are many destinations.
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
        subject, issuer, validity: of the client's certificate; None without one.
    """

    protocol: str | None
    cipher: str
    subject: str | None = None
    issuer: str | None = None
    validity: str | None = None


class ConnectionFigures(NamedTuple):
    """An open connection.

    Attributes:
        peer: the client.
        host, port: local address of the connection.
        counts: as :data:`OF_CONNECTIONS`.
        timeout: heartbeat in seconds.
        connected_at: seconds since the epoch.
        unsent: octets waiting to be sent.
        reads, writes: number of reads and writes of its socket.
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
        confirms: True in confirm mode.
        unacknowledged, unconfirmed: number of unacknowledged deliveries, and of unconfirmed publishes.
        uncommitted, acks_uncommitted: number of publishes and acknowledgements in the current transaction.
        prefetch: prefetch of the next consumer; global_prefetch: of all consumers together.
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


class DeliveryHolder(NamedTuple):
    """Holder of an unsettled delivery.

    Attributes:
        connection: name of the client's connection.
        channel: number of the channel.
        tag: tag of the consumer; None for a delivery of ``basic.get``.
        epoch: owner epoch of the message's key for the consumer; 0 without one.
    """

    connection: str
    channel: int
    tag: str | None
    epoch: int


class PublisherFigures(NamedTuple):
    """A channel with publishes to an exchange.

    Attributes:
        published: number of messages published to that exchange.
    """

    channel: str
    peer: PeerAddress
    published: int


class NodeFigures(NamedTuple):
    """Usage and limits of a node: octets of memory and disk, files, client connections.

    Attributes:
        name: name of the node that runs the process, which may serve a home of another node.
        started_at: seconds since the epoch, by the current setting of the clock.
        disk_free: octets of free disk; None without a data directory.
        losses: number of unacknowledged losses of the data directory.
        commit_waiting: seconds for which clients have been waiting for a commit, without any.
        held: octets held for messages, by purpose.
        listeners: protocol, address and port of each listener.
        links: connected homes, each with the octets waiting to be sent and the octets sent.
        cpu: seconds of processor time since the start.
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
    """Overview of a home: small values that many views show.

    Attributes:
        home: number of the home.
        node: usage and limits of the home's process.
        churn: numbers of created and removed objects.
        tallies: counters of channels, closed ones included, by virtual host.
        past_tally: counters of channels in deleted virtual hosts.
        past_queues: counters of deleted queues, by virtual host, as ``QueueCounts.counts``.
        exchanges: messages in and out of each used exchange, as :data:`OF_EXCHANGES`.
        short: resources with an alarm: ``memory``, ``disk``.
        losses: losses of the data directory, each with the time of detection.
        complaint: reason for missing commits; None while commits complete.
        logins: numbers of successful and failed logins, by protocol.
        dead_letters: number of arrived dead-lettered messages, for at-least-once dead-lettering.
        missing: number of messages without the hashed header or property, by hash exchange.
        deaths: messages that died, by kind of queue, reason and strategy.
        outbox: messages and octets kept for each other home, with the home's number.
        moves: queues that move from or to this home.
        stall: reason why definitions cannot be changed, as known to this home; None while they can.
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
    dead_letters: int
    deaths: list[tuple[tuple[str, str, str], int]]
    missing: list[tuple[ExchangeId, int]]
    outbox: list[tuple[int, int, int]]
    moves: list[MoveFigures]
    stall: str | None = None
