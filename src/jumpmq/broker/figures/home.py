"""Metrics of one process: queues, channels, connections and the process; the only place where live objects are read.

All results are values (:mod:`jumpmq.broker.figures.values`). Results that grow with the number of queues, channels or
connections are read in time slices; objects deleted meanwhile are left out.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import TIMESTAMP, Properties
from jumpmq.broker.bulk.reader_groups import ReaderGroups
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.channel.consumers import ChannelConsumer
from jumpmq.broker.channel.group_consumer import GroupConsumer
from jumpmq.broker.commit.watchdog import Watchdog
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.listeners import Listener, connection_limit
from jumpmq.broker.consumer_groups.group import GroupMember, Partition, PartitionPlace
from jumpmq.broker.consumer_groups.live import ConsumerGroups, GroupPrincipal, LiveGroup
from jumpmq.broker.dead_letters.dead_lettering import DeadLetters
from jumpmq.broker.figures.process import open_files, resident_octets
from jumpmq.broker.figures.values import (
    LEVELS_OF_QUEUES,
    OF_CHANNELS,
    OF_HOSTS,
    OF_QUEUES,
    ChannelFigures,
    ChannelId,
    ConnectionFigures,
    ConnectionId,
    ConsumerFigures,
    ConsumerGroupFigures,
    ConsumerId,
    Counts,
    ExchangeId,
    GroupMemberFigures,
    GroupOffsetFigures,
    GroupUnitFigures,
    HomeState,
    NodeFigures,
    ObjectCounts,
    PeerAddress,
    PublisherFigures,
    QueueCounts,
    QueueFenceFigures,
    QueueFigures,
    ReaderFigures,
    RingTrafficFigures,
    TLSFigures,
)
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.peers import Peers
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.broker.security.certificates import distinguished_name
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.ring_traffic import RingTraffic
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.queues import Consumer, Queue, clock
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.slots import SlotFigures
from jumpmq.store import Store
from jumpmq.topology import ConsistentHashExchange, Exchange, Topology, VirtualHost
from jumpmq.topology.exchanges import HASH_EXCHANGES, ModulusHashExchange
from jumpmq.topology.tally import DeletedCounts, Tally

T = TypeVar("T")

AT_ONCE = 250
"""Number of objects read before waiting tasks are served."""

CHURN = tuple(Churn.__slots__)
"""Created and removed objects, by RabbitMQ's names, in the order of :meth:`HomeFigures.churn`."""


MAX_RINGS = 200
"""Maximum number of rings reported at once."""

MAX_SKETCHES = 500
"""Maximum number of a ring's destinations with reported registers, 1.4 KB per destination."""


class Identified(Protocol):
    """Identity of a queue, distinct from all other queues and from earlier queues of the name."""

    @property
    def vhost(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> int: ...


class Shown(Protocol):
    """Parts of a broker's process read for metrics."""

    at: str
    peers: Peers
    topology: Topology
    slices: Slices
    memory: MemoryAccount
    alarms: Alarms
    watchdog: Watchdog
    consumer_groups: ConsumerGroups
    reader_groups: ReaderGroups
    dead_letters: DeadLetters
    authenticator: Authenticator
    connections: set[Connection]
    churn: Churn
    ring_traffic: RingTraffic

    @property
    def store(self) -> Store | None: ...
    @property
    def uptime(self) -> float: ...
    @property
    def losses(self) -> list[tuple[str, float]]: ...
    @property
    def listeners(self) -> list[Listener]: ...


class HomeFigures:
    """Metrics of the local process."""

    def __init__(self, broker: Shown) -> None:
        self._broker = broker

    async def _in_parts(self, items: list[T]) -> AsyncIterator[list[T]]:
        """Yield items, some at a time, with other work served in between."""
        for start in range(0, len(items), AT_ONCE):
            yield items[start : start + AT_ONCE]
            await self._broker.slices.next()

    async def object_counts(self, vhosts: Iterable[str]) -> AsyncIterator[ObjectCounts]:
        """Yield the counters of the queues of virtual hosts, and of all connections, channels and clients' consumers,
        some at a time.
        """
        for vhost in vhosts:
            if any(deleted := self.past_queues(vhost)):
                yield ObjectCounts(deleted=((vhost, deleted),))
            async for queues in self.queue_counts(vhost):
                yield ObjectCounts(queues=tuple(queues))
        async for connections in self.connection_counts():
            yield ObjectCounts(connections=tuple(connections))
        async for channels in self.channel_counts():
            yield ObjectCounts(channels=tuple(channels))
        async for consumers in self.consumer_counts():
            yield ObjectCounts(consumers=tuple(consumers))

    # --- queues and their consumers ---

    async def queue_counts(self, vhost: str) -> AsyncIterator[list[QueueCounts]]:
        """Yield the counters of all queues of a virtual host, some at a time."""
        host = self._broker.topology.vhosts.get(vhost)
        queues = [] if host is None else list(host.queues.values())
        async for part in self._in_parts(queues):
            yield [
                QueueCounts(
                    queue.id, queue.vhost, queue.name, _of_queue(queue), len(queue.consumers), _is_unread(queue)
                )
                for queue in part
            ]

    async def queue(self, definition: Identified) -> QueueFigures | None:
        """Return the metrics of a queue; None if deleted."""
        return self._read(definition)

    async def queues(self, definitions: Iterable[Identified]) -> list[QueueFigures | None]:
        """Return the metrics of queues in the given order; None for a deleted queue."""
        return [self._read(one) async for one in self._broker.slices.through(definitions)]

    async def counts(self, definitions: Iterable[Identified]) -> list[Counts | None]:
        """Return the counters of queues in the given order; None for a deleted queue."""
        live = (self._live(one) for one in definitions)
        return [None if one is None else _of_queue(one) async for one in self._broker.slices.through(live)]

    async def consumers_of(self, definition: Identified, most: int | None = None) -> list[ConsumerFigures]:
        """Return the consumers of a queue by descending priority, at most the first ``most``."""
        queue = self._live(definition)
        return [] if queue is None else [_consumer_figures(queue, one) for one in queue.consumers[:most]]

    async def consumers(self, vhosts: Iterable[str]) -> list[ConsumerFigures]:
        """Return the consumers of all queues of virtual hosts."""
        hosts = [host for name in vhosts if (host := self._broker.topology.vhosts.get(name)) is not None]
        queues = [queue for host in hosts for queue in host.queues.values()]
        found = ((queue, consumer) for queue in queues for consumer in queue.consumers)
        return [_consumer_figures(*one) async for one in self._broker.slices.through(found)]

    async def consumer_counts(self) -> AsyncIterator[list[tuple[ConsumerId, Counts]]]:
        """Yield the counters of all clients' consumers, as ``OF_CONSUMERS``, some at a time."""
        queues = [queue for host in self._broker.topology.vhosts.values() for queue in host.queues.values()]
        async for part in self._in_parts(queues):
            found = [(queue, one) for queue in part for one in queue.consumers if isinstance(one, ChannelConsumer)]
            async for consumers in self._in_parts(found):
                yield [(_consumer_id(*one), (one[1].delivered,)) for one in consumers]

    async def consumer_count(self, vhosts: Iterable[str]) -> int:
        """Return the number of consumers on the queues of virtual hosts."""
        return sum([one.consumers for name in vhosts async for part in self.queue_counts(name) for one in part])

    async def consumer_groups(self, vhosts: Iterable[str]) -> list[ConsumerGroupFigures]:
        """Return the consumer groups of virtual hosts."""
        found = [group for name in vhosts for group in self._broker.consumer_groups.all(name)]
        return [_group_figures(one) async for one in self._broker.slices.through(found)]

    async def fences(self, vhosts: Iterable[str]) -> list[QueueFenceFigures]:
        """Return the ordering barriers of the queues of virtual hosts."""
        fences = self._broker.topology.fences
        found = (
            QueueFenceFigures(one.vhost, one.name, fence) for name in vhosts for one, fence in fences.figures(name)
        )
        return [one async for one in self._broker.slices.through(found)]

    async def group_offsets(self, vhosts: Iterable[str]) -> list[GroupOffsetFigures]:
        """Return the offsets of consumer groups in the streams of virtual hosts."""
        hosts = [host for name in vhosts if (host := self._broker.topology.vhosts.get(name)) is not None]
        streams = [queue for host in hosts for queue in host.queues.values() if queue.offsets]
        found: list[GroupOffsetFigures] = []
        async for queue in self._broker.slices.through(streams):
            found += _offset_figures(queue)
        return found

    async def readers(self) -> list[ReaderFigures]:
        """Return the positions of all reader groups."""
        groups = [one for vhost in self._broker.topology.vhosts for one in self._broker.reader_groups.groups(vhost)]
        now, found = asyncio.get_running_loop().time(), []
        places = ((group, place) for group in groups for place in list(group.places.values()))
        async for group, place in self._broker.slices.through(places):
            figures, oldest = place.queue.figures(), place.oldest
            found.append(
                ReaderFigures(
                    vhost=group.vhost,
                    group=group.shown_name,
                    user=group.user,
                    queue=place.queue.name,
                    alive=group.alive(now),
                    reserved=place.outstanding,
                    age=None if oldest is None else round(max(0.0, time.time() - oldest), 1),
                    ready=place.queue.ready_count,
                    ready_octets=None if figures is None else figures.ready_octets,
                )
            )
        return found

    async def ring_traffic(self, vhost: str | None = None, name: str | None = None) -> list[RingTrafficFigures]:
        """Return recent traffic of rings, without idle rings; for a named ring, with its registers."""
        self._broker.ring_traffic.turn(time.time())
        rings = [one for one in self._broker.ring_traffic.exchanges() if one.traffic is not None]
        if name is not None:
            rings = [one for one in rings if (one.vhost, one.name) == (vhost, name)]
        found = [_ring_figures(one) async for one in self._broker.slices.through(rings[:MAX_RINGS])]
        if name is None or not found:
            return [one for one in found if any(one.messages)]
        traffic = rings[0].traffic
        assert traffic is not None
        sketches = traffic.sketches()
        wanted = itertools.islice(sketches, 1 + len(found[0].names) if len(found[0].names) <= MAX_SKETCHES else 1)
        registers = [b64encode(one).decode() async for one in self._broker.slices.through(wanted)]
        return [found[0]._replace(registers=registers)]

    async def unread(self, vhost: str) -> list[tuple[str, int]]:
        """Return the queues of a virtual host with ready messages and no reader, with message counts; the readers of a
        stream are unknown here."""
        host, now = self._broker.topology.vhosts.get(vhost), asyncio.get_running_loop().time()
        alive = (group for group in self._broker.reader_groups.groups(vhost) if group.alive(now))
        read = {name for group in alive for name in group.places}
        return [
            (queue.name, queue.ready_count)
            async for queue in self._broker.slices.through([] if host is None else list(host.queues.values()))
            if queue.ready_count and not _is_unread(queue) and not queue.consumers and queue.name not in read
        ]

    def _read(self, definition: Identified) -> QueueFigures | None:
        found = self._live(definition)
        return None if found is None else _queue_figures(found)

    def _live(self, definition: Identified) -> Queue | None:
        host = self._broker.topology.vhosts.get(definition.vhost)
        found = None if host is None else host.queues.get(definition.name)
        return found if found is not None and found.id == definition.id else None

    # --- connections and channels ---

    async def connections(self) -> list[ConnectionFigures]:
        """Return the connections with an open virtual host, closing ones included."""
        return [_connection_figures(one) async for one in self._broker.slices.through(self._opened())]

    async def owner(self, identity: str) -> ConnectionFigures | None:
        """Return the open connection owning an exclusive queue; None if not local."""
        return next((_connection_figures(one) for one in self._opened() if one.identity == identity), None)

    async def connections_named(self, name: str) -> list[ConnectionFigures]:
        """Return the open connections of this name; several nodes may have some."""
        return [_connection_figures(one) for one in self._opened() if one.name == name]

    async def channels(self) -> list[ChannelFigures]:
        """Return the open channels of all connections."""
        live = [channel for one in self._opened() for channel in one.channels.values()]
        return [_channel_figures(one) async for one in self._broker.slices.through(live)]

    async def channels_of(self, connection: ConnectionId) -> list[ChannelFigures]:
        """Return the open channels of a connection."""
        live = [channel for one in self._opened() if one.identity == connection for channel in one.channels.values()]
        return [_channel_figures(one) async for one in self._broker.slices.through(live)]

    async def channels_named(self, name: str) -> list[ChannelFigures]:
        """Return the open channels of this name, ``CONNECTION (NUMBER)``; several nodes may have some."""
        live = [channel for one in self._opened() for channel in one.channels.values()]
        return [_channel_figures(channel) for channel in live if channel.name == name]

    async def consumers_of_channel(self, connection: ConnectionId, number: int) -> list[ConsumerFigures]:
        """Return the consumers of a channel."""
        live = [one.channels[number] for one in self._opened() if one.identity == connection and number in one.channels]
        parts = [part for channel in live for one in channel.consumers.values() for part in one.parts]
        return [_consumer_figures(part.queue, part) for part in parts]

    async def publishers(self, vhost: str, exchange: str) -> list[PublisherFigures]:
        """Return the open channels with publishes to an exchange."""
        live = [channel for one in self._opened() if one.vhost.name == vhost for channel in one.channels.values()]
        return [
            PublisherFigures(channel.name, _peer(channel.connection), published)
            async for channel in self._broker.slices.through(live)
            if (published := channel.published_to.get(exchange))
        ]

    async def connection_counts(self) -> AsyncIterator[list[tuple[ConnectionId, Counts]]]:
        """Yield the counters of all open connections, as ``OF_CONNECTIONS``, some at a time."""
        async for part in self._in_parts(self._opened()):
            yield [(one.identity, _of_connection(one)) for one in part]

    async def channel_counts(self) -> AsyncIterator[list[tuple[ChannelId, Counts]]]:
        """Yield the counters of all open channels, as ``OF_CHANNELS``, some at a time."""
        async for part in self._in_parts([channel for one in self._opened() for channel in one.channels.values()]):
            yield [(_channel_id(one), _TALLIED_OF_CHANNELS(one.tally)) for one in part]

    def _opened(self) -> list[Connection]:
        return [one for one in self._broker.connections if one.opened]

    # --- everything else ---

    def exchange(self, vhost: str, name: str) -> Counts:
        """Return messages in and out of an exchange, as ``OF_EXCHANGES``; zeros for a deleted exchange."""
        host = self._broker.topology.vhosts.get(vhost)
        found = None if host is None else host.exchanges.get(name)
        return (0, 0) if found is None else _of_exchange(found)

    def missing(self, exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
        """Return the number of messages to a hash exchange without the hashed header or property."""
        return exchange.missing_count

    async def exchange_counts(self) -> AsyncIterator[list[tuple[ExchangeId, Counts]]]:
        """Yield messages in and out of every exchange, as ``OF_EXCHANGES``, some exchanges at a time."""
        exchanges = [one for host in self._broker.topology.vhosts.values() for one in host.exchanges.values()]
        async for part in self._in_parts(exchanges):
            yield [((one.vhost, one.name), _of_exchange(one)) for one in part]

    def churn(self) -> Counts:
        """Return created and removed objects, as :data:`CHURN`."""
        return _COUNTED_OF_CHURN(self._broker.churn)

    def tallies(self) -> dict[str, Tally]:
        """Return the counters of channels, by virtual host; closed channels included."""
        found = {}
        for name, host in self._broker.topology.vhosts.items():
            found[name] = Tally()
            found[name].add(host.past.channels)
        for connection in self._broker.connections:
            if connection.opened and connection.vhost.name in found:
                for channel in connection.channels.values():
                    found[connection.vhost.name].add(channel.tally)
        return found

    def past_tally(self) -> Tally:
        """Return the counters of channels in deleted virtual hosts."""
        return self._broker.topology.past.channels

    def past_queues(self, vhost: str) -> Counts:
        """Return the counters of a virtual host's deleted queues, as ``QueueCounts.counts``; deleted queues have no
        messages.
        """
        host = self._broker.topology.vhosts.get(vhost)
        return (0,) * (len(OF_QUEUES) + len(LEVELS_OF_QUEUES)) if host is None else _of_past(host)

    async def by_kind(self) -> dict[str, Tally]:
        """Return the counters of queues by kind; deleted queues included."""
        topology, past = self._broker.topology, DeletedCounts()
        for gone in (topology.past, *(host.past for host in topology.vhosts.values())):
            past.add(gone)
        queues = [queue for host in topology.vhosts.values() for queue in host.queues.values()]
        async for queue in self._broker.slices.through(queues):
            past.add_queue(queue)
        return past.queues

    async def refresh(self) -> None:
        """Request the values of :meth:`states` and of synchronous functions from remote homes: none exist here."""

    def states(self) -> list[HomeState]:
        """Return an overview of every responding home; here only the local home."""
        return [self.state()]

    def down(self) -> list[int]:
        """Return the homes that do not respond: none with a single home."""
        return []

    def state(self) -> HomeState:
        """Return an overview of the local home."""
        broker, vhosts = self._broker, self._broker.topology.vhosts
        exchanges = [one for host in vhosts.values() for one in host.exchanges.values() if one.received]
        peers = broker.peers.figures()
        return HomeState(
            home=broker.topology.home,
            node=self.node(),
            churn=self.churn(),
            tallies=self.tallies(),
            past_tally=self.past_tally(),
            past_queues={name: self.past_queues(name) for name in vhosts},
            exchanges=[((one.vhost, one.name), _of_exchange(one)) for one in exchanges],
            short=broker.alarms.resources,
            losses=list(broker.losses),
            complaint=broker.watchdog.complaint,
            logins={name: (one.succeeded, one.failed) for name, one in broker.authenticator.attempts.items()},
            letters=broker.dead_letters.arrived,
            deaths=list(broker.dead_letters.counts.items()),
            missing=[
                ((one.vhost, one.name), one.missing_count)
                for one in exchanges
                if isinstance(one, HASH_EXCHANGES) and one.missing_count
            ],
            outbox=peers.outbox,
            moves=peers.moves,
            standstill=peers.standstill,
        )

    def nodes(self) -> dict[str, NodeFigures]:
        """Return the responding nodes, by name: only the local node."""
        node = self.node()
        return {node.name: node}

    def node(self) -> NodeFigures:
        """Return the metrics of the local node."""
        broker, alarms = self._broker, self._broker.alarms
        return NodeFigures(
            name=broker.at,
            pid=os.getpid(),
            durable=broker.store is not None,
            started_at=time.time() - broker.uptime,
            resident=resident_octets(),
            memory_limit=broker.memory.limit,
            memory_alarm=alarms.memory,
            held=dict(broker.memory.by_kind),
            disk_free=alarms.disk_free,
            disk_free_limit=alarms.disk_free_limit,
            disk_alarm=alarms.disk,
            losses=len(broker.losses),
            commit_waiting=broker.watchdog.waiting,
            files=open_files(),
            files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            connections=len(broker.connections),
            connections_limit=connection_limit(),
            blocked=sum(one.state in ("blocked", "blocking") for one in broker.connections),
            listeners=[(one.protocol, address, one.port) for one in broker.listeners for address in one.addresses],
            links=broker.peers.figures().links,
            cpu=time.process_time(),
        )


def of_host(tally: Tally) -> Counts:
    """Return a virtual host's counters, as ``OF_HOSTS``."""
    return _TALLIED_OF_HOSTS(tally)


_COUNTED_OF_CHURN = attrgetter(*CHURN)
_TALLIED_OF_HOSTS = attrgetter(*OF_HOSTS)
_TALLIED_OF_CHANNELS = attrgetter(*OF_CHANNELS)


def _of_exchange(exchange: Exchange) -> Counts:
    return exchange.published_in, exchange.published_out


def _is_unread(queue: Queue) -> bool:
    """True if the queue's messages wait for no consumer: in a stream, or in a queue of an exchange."""
    return queue.append_only or queue.is_internal


def _of_queue(queue: Queue) -> Counts:
    sent, got, got_unasked = queue.delivered_unasked, queue.got, queue.got_unasked
    delivered = queue.delivered
    counts = (
        *(queue.published, delivered, queue.acknowledged - sent - got_unasked),
        *(delivered - sent - got - got_unasked, sent, got, got_unasked, queue.got_nothing, queue.redelivered),
        *(queue.ready_count, queue.unacknowledged_count),
    )
    return counts if counts != _UNUSED else _UNUSED


_UNUSED = (0,) * 11
"""Counters of an unused queue, shared by many queues."""


def _of_past(host: VirtualHost) -> Counts:
    total = Tally()
    for tally in host.past.queues.values():
        total.add(tally)
    sent = total.deliver + total.deliver_no_ack + total.get + total.get_no_ack
    return (
        *(0, sent, total.ack, total.deliver, total.deliver_no_ack, total.get, total.get_no_ack, total.get_empty),
        *(total.redeliver, 0, 0),
    )


def _ring_figures(exchange: ConsistentHashExchange) -> RingTrafficFigures:
    assert exchange.traffic is not None
    counted = exchange.traffic.counted()
    return RingTrafficFigures(
        exchange.vhost,
        exchange.name,
        counted.since,
        list(counted.names),
        counted.messages,
        counted.missing,
        exchange.missing_count,
        counted.noted,
        [(one.key.hex(), one.destination, one.messages, one.error) for one in counted.frequent],
        [],
    )


def _queue_figures(queue: Queue) -> QueueFigures:
    consumers, active, front = queue.consumers, queue.active_consumer, queue.front()
    return QueueFigures(
        id=queue.id,
        type=queue.type,
        node=queue.node,
        append_only=queue.append_only,
        counts=_of_queue(queue),
        consumers=len(consumers),
        memory=queue.memory,
        last_seq=queue.next_seq - 1,
        messages=queue.figures(),
        head_timestamp=_timestamp(front),
        exclusive_consumer_tag=next((one.tag for one in consumers if one.exclusive), None),
        single_active_consumer_tag=active.tag if active is not None else None,
        automatic=any(one.no_ack for one in consumers),
        exhausted=bool(consumers) and all(_is_exhausted(one) for one in consumers),
        max_length=queue.limits.max_length,
        overflow=queue.limits.overflow,
        status=queue.status() | _fenced(queue),
        head_published_at=(front.published_at or None) if front is not None else None,
    )


def _is_exhausted(consumer: Consumer) -> bool:
    return isinstance(consumer, ChannelConsumer) and consumer.prefetch > 0 and consumer.capacity() <= 0


def _timestamp(message: Message | None) -> int | None:
    if message is None or not int.from_bytes(message.properties[:2]) & TIMESTAMP:
        return None
    return Properties.parse(message.properties).timestamp


def _consumer_figures(queue: Queue, consumer: Consumer) -> ConsumerFigures:
    single = queue.limits.single_active_consumer
    channel = consumer.channel if isinstance(consumer, ChannelConsumer) else None
    return ConsumerFigures(
        vhost=queue.vhost,
        queue=queue.name,
        tag=consumer.tag,
        no_ack=consumer.no_ack,
        exclusive=consumer.exclusive,
        prefetch=consumer.prefetch,
        unacknowledged=consumer.unacknowledged if isinstance(consumer, ChannelConsumer) else 0,
        delivered=consumer.delivered if isinstance(consumer, ChannelConsumer) else 0,
        active=not single or consumer is queue.active_consumer,
        single=single,
        arguments=to_python(consumer.arguments) if isinstance(consumer, ChannelConsumer) else {},
        channel=channel.name if channel is not None else None,
        number=channel.number if channel is not None else None,
        peer=_peer(channel.connection) if channel is not None else None,
    )


def _consumer_id(queue: Queue, consumer: ChannelConsumer) -> ConsumerId:
    channel = consumer.channel
    return channel.connection.identity, channel.number, queue.vhost, queue.name, consumer.tag


def _group_figures(live: LiveGroup) -> ConsumerGroupFigures:
    group, now = live.group, asyncio.get_running_loop().time()
    slots = {
        (queue.id, one.slot): one
        for queue in live.queues.values()
        if queue.slots is not None
        for one in queue.slots.figures()
    }
    return ConsumerGroupFigures(
        vhost=live.vhost,
        name=live.name,
        source_kind=live.kind,
        source=live.source,
        state=group.state,
        rebalance_delay=group.rebalance_delay,
        members=tuple(_member_figures(one, now) for one in group.members.values()),
        units=tuple(_unit_figures(live, unit, place, slots, now) for unit, place in group.places.items()),
        refused=dict(live.refused),
        **asdict(group.counts),
    )


def _offset_figures(queue: Queue) -> list[GroupOffsetFigures]:
    offsets, end = queue.offsets, queue.next_seq
    if offsets is None:
        return []
    return [
        GroupOffsetFigures(
            *(queue.vhost, queue.name, one.group, one.offset, end),
            *(one.ready(end), one.unacknowledged, one.skipped, one.group in offsets.members),
        )
        for one in offsets
    ]


def _member_figures(member: GroupMember, now: float) -> GroupMemberFigures:
    session = member.session if isinstance(member.session, GroupConsumer) else None
    user, by_token = member.reader.user.identity if isinstance(member.reader, GroupPrincipal) else ("", False)
    return GroupMemberFigures(
        name=member.name,
        user=user,
        by_token=by_token,
        weight=member.weight,
        grace=member.grace,
        joined_since=now - member.joined_at,
        away_for=max(0.0, member.away_until - now) if session is None else None,
        units=member.units,
        prefetch=session.prefetch if session is not None else 0,
        unacknowledged=session.unacknowledged if session is not None else 0,
        delivered=session.delivered if session is not None else 0,
        tag=session.tag if session is not None else None,
        channel=session.channel.name if session is not None else None,
        peer=_peer(session.channel.connection) if session is not None else None,
    )


def _unit_figures(
    live: LiveGroup, unit: Partition, place: PartitionPlace, slots: Mapping[tuple[int, int], SlotFigures], now: float
) -> GroupUnitFigures:
    queue, holder = live.queues[unit.queue_id], place.holder
    position = queue.offsets.get(live.name) if queue.offsets is not None else None
    if position is not None:
        ready, held, oldest = position.ready(queue.next_seq), position.unacknowledged, None
    elif unit.slot is None:
        front = queue.front()
        ready, held = queue.ready_count, queue.unacknowledged_count
        oldest = front.published_at if front is not None else None
    else:
        figures = slots.get((unit.queue_id, unit.slot))
        ready, held, oldest = (figures.ready, figures.unacknowledged, figures.oldest) if figures else (0, 0, None)
    return GroupUnitFigures(
        queue=unit.queue,
        slot=unit.slot,
        owner=place.owner.name if place.owner is not None else None,
        owned_since=now - place.owned_since,
        holder=(holder.connection_name, holder.tag) if isinstance(holder, GroupConsumer) else None,
        held=holder.held(unit) if holder is not None else 0,
        draining_since=now - place.draining_since if place.draining_since is not None else None,
        ready=ready,
        unacknowledged=held,
        fenced=queue.fenced_count,
        oldest=clock.now() - oldest if oldest is not None else None,
        unbound=unit.queue in live.unbound,
        offset=position.offset if position is not None else None,
        epoch=max(place.epoch, queue.owner_floor) if place.epoch else None,
    )


def _peer(connection: ChannelClient) -> PeerAddress:
    return PeerAddress(
        connection.identity,
        connection.name,
        connection.provided_name,
        connection.peer_host,
        connection.peer_port,
        connection.user.name,
        connection.user.granted is not None,
        connection.vhost.name,
        connection.node,
    )


def _connection_figures(connection: Connection) -> ConnectionFigures:
    protocol = connection.protocol
    host, _, port = connection.name.partition(" -> ")[2].rpartition(":")
    return ConnectionFigures(
        id=connection.identity,
        peer=_peer(connection),
        state=connection.state,
        mechanism=connection.handshake.mechanism,
        tls=_tls(connection),
        host=host,
        port=int(port),
        channels=len(connection.channels),
        channel_max=protocol.channel_max,
        frame_max=protocol.frame_max,
        timeout=protocol.heartbeat,
        connected_at=connection.connected_at,
        unsent=connection.writing.waiting,
        counts=_of_connection(connection),
        reads=connection.reads,
        writes=connection.writing.writes,
        client_properties=connection.handshake.client_properties,
    )


def _of_connection(connection: Connection) -> Counts:
    return connection.received_octets, connection.writing.octets


def _channel_id(channel: Channel) -> ChannelId:
    return channel.connection.identity, channel.number


def _tls(connection: Connection) -> TLSFigures | None:
    tls = connection.tls
    if tls is None:
        return None
    certificate = tls.certificate
    if certificate is None:
        return TLSFigures(tls.protocol, tls.cipher)
    return TLSFigures(
        tls.protocol,
        tls.cipher,
        distinguished_name(certificate["subject"]),
        distinguished_name(certificate["issuer"]),
        f"{certificate['notBefore']} - {certificate['notAfter']}",
    )


def _channel_figures(channel: Channel) -> ChannelFigures:
    transaction, confirms = channel.transaction, channel.confirms
    return ChannelFigures(
        id=_channel_id(channel),
        name=channel.name,
        number=channel.number,
        peer=_peer(channel.connection),
        counts=_TALLIED_OF_CHANNELS(channel.tally),
        confirms=confirms is not None,
        transactional=transaction is not None,
        consumers=len(channel.consumers),
        unacknowledged=len(channel.unacknowledged),
        unconfirmed=confirms.unanswered if confirms is not None else 0,
        uncommitted=transaction.published if transaction is not None else 0,
        acks_uncommitted=transaction.claimed if transaction is not None else 0,
        prefetch=channel.consumer_prefetch,
        global_prefetch=channel.prefetch,
    )


def _fenced(queue: Queue) -> dict[str, Any]:
    """Return the ordering barriers of a queue; empty without barriers."""
    if queue.fences is None:
        return {}
    return {"messages_fenced": queue.fenced_count, "fences": [one.shown() for one in queue.fences.figures()]}
