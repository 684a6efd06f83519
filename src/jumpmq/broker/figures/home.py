"""Metrics of one process: queues, channels, connections and the process, read from the live objects.

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
from collections.abc import AsyncIterator, Iterable
from operator import attrgetter
from typing import Protocol, TypeVar

from jumpmq.broker.bulk.reader_groups import ReaderGroups
from jumpmq.broker.channel.consumers import ChannelConsumer, DeliveringChannel
from jumpmq.broker.commit.watchdog import Watchdog
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.listeners import Listener, connection_limit
from jumpmq.broker.consumer_groups.group import Partition
from jumpmq.broker.consumer_groups.live import ConsumerGroups, LiveGroup
from jumpmq.broker.dead_letters.dead_lettering import DeadLetters
from jumpmq.broker.figures.of_connections import (
    channel_figures,
    channel_id,
    connection_figures,
    counts_of_channel,
    counts_of_connection,
    delivery_holder,
    peer_of,
    unsettled,
)
from jumpmq.broker.figures.of_groups import group_figures, unit_supply
from jumpmq.broker.figures.of_queues import (
    consumer_figures,
    consumer_id,
    counts_of_deleted_queues,
    counts_of_exchange,
    counts_of_queue,
    is_unread,
    offset_figures,
    queue_figures,
    ring_figures,
)
from jumpmq.broker.figures.process import open_files, resident_octets
from jumpmq.broker.figures.values import (
    LEVELS_OF_QUEUES,
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
    DeliveryHolder,
    ExchangeId,
    GroupOffsetFigures,
    HomeState,
    NodeFigures,
    ObjectCounts,
    PublisherFigures,
    QueueCounts,
    QueueFenceFigures,
    QueueFigures,
    ReaderFigures,
    RingTrafficFigures,
    UnitSupply,
)
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.peers import Peers
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.ring_traffic import RingTraffic
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.queues import Queue
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store import Store
from jumpmq.topology import ConsistentHashExchange, Topology
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
                    queue.id, queue.vhost, queue.name, counts_of_queue(queue), len(queue.consumers), is_unread(queue)
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
        return [None if one is None else counts_of_queue(one) async for one in self._broker.slices.through(live)]

    async def consumers_of(self, definition: Identified, most: int | None = None) -> list[ConsumerFigures]:
        """Return the consumers of a queue by descending priority, at most the first ``most``."""
        queue = self._live(definition)
        return [] if queue is None else [consumer_figures(queue, one) for one in queue.consumers[:most]]

    async def consumers(self, vhosts: Iterable[str]) -> list[ConsumerFigures]:
        """Return the consumers of all queues of virtual hosts."""
        hosts = [host for name in vhosts if (host := self._broker.topology.vhosts.get(name)) is not None]
        queues = [queue for host in hosts for queue in host.queues.values()]
        found = ((queue, consumer) for queue in queues for consumer in queue.consumers)
        return [consumer_figures(*one) async for one in self._broker.slices.through(found)]

    async def consumer_counts(self) -> AsyncIterator[list[tuple[ConsumerId, Counts]]]:
        """Yield the counters of all clients' consumers, as ``OF_CONSUMERS``, some at a time."""
        queues = [queue for host in self._broker.topology.vhosts.values() for queue in host.queues.values()]
        async for part in self._in_parts(queues):
            found = [(queue, one) for queue in part for one in queue.consumers if isinstance(one, ChannelConsumer)]
            async for consumers in self._in_parts(found):
                yield [(consumer_id(*one), (one[1].delivered,)) for one in consumers]

    async def consumer_count(self, vhosts: Iterable[str]) -> int:
        """Return the number of consumers on the queues of virtual hosts."""
        return sum([one.consumers for name in vhosts async for part in self.queue_counts(name) for one in part])

    async def consumer_groups(self, vhosts: Iterable[str]) -> list[ConsumerGroupFigures]:
        """Return the consumer groups of virtual hosts."""
        found = [group for name in vhosts for group in self._broker.consumer_groups.all(name)]
        return [group_figures(one) async for one in self._broker.slices.through(found)]

    def unit_supply(self, queue: Queue, slot: int | None = None) -> UnitSupply | None:
        """Return the state of the deliveries of a local queue, or of one slot, to the consumer group of the queue; None
        for a queue without a consumer group.
        """
        live = queue.consumer_group
        return unit_supply(live, Partition(queue.name, queue.id, slot)) if isinstance(live, LiveGroup) else None

    def stream_supplies(self, queue: Queue) -> list[UnitSupply]:
        """Return the state of the deliveries of a local stream to each consumer group with members that has not read
        all messages.
        """
        offsets = queue.offsets
        if offsets is None:
            return []
        behind = [one.group for one in offsets if one.ready(queue.next_seq)]
        groups = [live for name in behind if isinstance(live := offsets.members.get(name), LiveGroup)]
        return [unit_supply(live, Partition(queue.name, queue.id)) for live in groups]

    def has_room(self, queue: Queue) -> bool | None:
        """Return True if a consumer of a local queue can take messages: the single active one, if the queue has it;
        None for a queue without consumers.
        """
        if not queue.consumers:
            return None
        served = queue.consumers if queue.active_consumer is None else [queue.active_consumer]
        return any(consumer.capacity() > 0 for consumer in served)

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
            found += offset_figures(queue)
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
        found = [ring_figures(one) async for one in self._broker.slices.through(rings[:MAX_RINGS])]
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
            if queue.ready_count and not is_unread(queue) and not queue.consumers and queue.name not in read
        ]

    def _read(self, definition: Identified) -> QueueFigures | None:
        found = self._live(definition)
        return None if found is None else queue_figures(found)

    def _live(self, definition: Identified) -> Queue | None:
        host = self._broker.topology.vhosts.get(definition.vhost)
        found = None if host is None else host.queues.get(definition.name)
        return found if found is not None and found.id == definition.id else None

    # --- connections and channels ---

    async def connections(self) -> list[ConnectionFigures]:
        """Return the connections with an open virtual host, closing ones included."""
        return [connection_figures(one) async for one in self._broker.slices.through(self._opened())]

    async def owner(self, identity: str) -> ConnectionFigures | None:
        """Return the open connection owning an exclusive queue; None if not local."""
        return next((connection_figures(one) for one in self._opened() if one.identity == identity), None)

    async def connections_named(self, name: str) -> list[ConnectionFigures]:
        """Return the open connections of this name; several nodes may have some."""
        return [connection_figures(one) for one in self._opened() if one.name == name]

    async def channels(self) -> list[ChannelFigures]:
        """Return the open channels of all connections."""
        live = [channel for one in self._opened() for channel in one.channels.values()]
        return [channel_figures(one) async for one in self._broker.slices.through(live)]

    async def channels_of(self, connection: ConnectionId) -> list[ChannelFigures]:
        """Return the open channels of a connection."""
        live = [channel for one in self._opened() if one.identity == connection for channel in one.channels.values()]
        return [channel_figures(one) async for one in self._broker.slices.through(live)]

    async def channels_named(self, name: str) -> list[ChannelFigures]:
        """Return the open channels of this name, ``CONNECTION (NUMBER)``; several nodes may have some."""
        live = [channel for one in self._opened() for channel in one.channels.values()]
        return [channel_figures(channel) for channel in live if channel.name == name]

    async def consumers_of_channel(self, connection: ConnectionId, number: int) -> list[ConsumerFigures]:
        """Return the consumers of a channel."""
        live = [one.channels[number] for one in self._opened() if one.identity == connection and number in one.channels]
        parts = [part for channel in live for one in channel.consumers.values() for part in one.parts]
        return [consumer_figures(part.queue, part) for part in parts]

    async def delivery_holder(self, definition: Identified, number: int) -> DeliveryHolder | None:
        """Return the holder of an unsettled delivery of a local queue. Clients of other homes are found, too.

        Args:
            number: number of the message in the queue.

        Returns:
            None if the message is not an unsettled delivery, or if the delivery is parked on disk.
        """
        queue = self._live(definition)
        own = (channel for one in self._broker.connections for channel in one.channels.values())
        live: list[DeliveringChannel] = [*own, *self._broker.peers.channels.served()]
        async for channel, messages in self._broker.slices.through(unsettled(live)):
            for message in messages:
                if message.seq == number and message.queue is queue:
                    return delivery_holder(channel, message)
        return None

    async def publishers(self, vhost: str, exchange: str) -> list[PublisherFigures]:
        """Return the open channels with publishes to an exchange."""
        live = [channel for one in self._opened() if one.vhost.name == vhost for channel in one.channels.values()]
        return [
            PublisherFigures(channel.name, peer_of(channel.connection), published)
            async for channel in self._broker.slices.through(live)
            if (published := channel.published_to.get(exchange))
        ]

    async def connection_counts(self) -> AsyncIterator[list[tuple[ConnectionId, Counts]]]:
        """Yield the counters of all open connections, as ``OF_CONNECTIONS``, some at a time."""
        async for part in self._in_parts(self._opened()):
            yield [(one.identity, counts_of_connection(one)) for one in part]

    async def channel_counts(self) -> AsyncIterator[list[tuple[ChannelId, Counts]]]:
        """Yield the counters of all open channels, as ``OF_CHANNELS``, some at a time."""
        async for part in self._in_parts([channel for one in self._opened() for channel in one.channels.values()]):
            yield [(channel_id(one), counts_of_channel(one.tally)) for one in part]

    def _opened(self) -> list[Connection]:
        return [one for one in self._broker.connections if one.opened]

    # --- everything else ---

    def exchange(self, vhost: str, name: str) -> Counts:
        """Return messages in and out of an exchange, as ``OF_EXCHANGES``; zeros for a deleted exchange."""
        host = self._broker.topology.vhosts.get(vhost)
        found = None if host is None else host.exchanges.get(name)
        return (0, 0) if found is None else counts_of_exchange(found)

    def missing(self, exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
        """Return the number of messages to a hash exchange without the hashed header or property."""
        return exchange.missing_count

    async def exchange_counts(self) -> AsyncIterator[list[tuple[ExchangeId, Counts]]]:
        """Yield messages in and out of every exchange, as ``OF_EXCHANGES``, some exchanges at a time."""
        exchanges = [one for host in self._broker.topology.vhosts.values() for one in host.exchanges.values()]
        async for part in self._in_parts(exchanges):
            yield [((one.vhost, one.name), counts_of_exchange(one)) for one in part]

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
        return (0,) * (len(OF_QUEUES) + len(LEVELS_OF_QUEUES)) if host is None else counts_of_deleted_queues(host)

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
        """Request the values of :meth:`states` and of synchronous functions from other homes: none exist here."""

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
            exchanges=[((one.vhost, one.name), counts_of_exchange(one)) for one in exchanges],
            short=broker.alarms.resources,
            losses=list(broker.losses),
            complaint=broker.watchdog.complaint,
            logins={name: (one.succeeded, one.failed) for name, one in broker.authenticator.attempts.items()},
            dead_letters=broker.dead_letters.arrived,
            deaths=list(broker.dead_letters.counts.items()),
            missing=[
                ((one.vhost, one.name), one.missing_count)
                for one in exchanges
                if isinstance(one, HASH_EXCHANGES) and one.missing_count
            ],
            outbox=peers.outbox,
            moves=peers.moves,
            stall=peers.stall,
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
