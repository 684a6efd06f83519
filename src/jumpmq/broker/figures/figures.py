"""What the management API reads: the figures of a broker, whichever processes it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from jumpmq.broker.figures.values import (
    ChannelFigures,
    ChannelId,
    ConnectionFigures,
    ConnectionId,
    ConsumerFigures,
    ConsumerGroupFigures,
    ConsumerId,
    Counts,
    ExchangeId,
    GroupOffsetFigures,
    HomeState,
    NodeFigures,
    PublisherFigures,
    QueueCounts,
    QueueFenceFigures,
    QueueFigures,
    ReaderFigures,
    RingTrafficFigures,
)
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import ModulusHashExchange
from jumpmq.topology.tally import Tally


class Figures(Protocol):
    """The figures of a broker: :class:`~jumpmq.broker.figures.home.HomeFigures` reads those of one process."""

    def queue_counts(self, vhost: str) -> AsyncIterator[list[QueueCounts]]:
        """The counters of all queues of a virtual host, some at a time."""

    async def queue(self, definition: QueueDefinition) -> QueueFigures | None:
        """One queue; None if it is gone."""

    async def queues(self, definitions: Iterable[QueueDefinition]) -> list[QueueFigures | None]:
        """Queues in the order given; None stands for one that is gone."""

    async def counts(self, definitions: Iterable[QueueDefinition]) -> list[Counts | None]:
        """The counters of queues in the order given; None stands for one that is gone."""

    async def consumers_of(self, definition: QueueDefinition, most: int | None = None) -> list[ConsumerFigures]:
        """The consumers of a queue, the highest priority first; the first ``most`` of them."""

    async def consumers(self, vhosts: Iterable[str]) -> list[ConsumerFigures]:
        """The consumers of all queues of virtual hosts."""

    def consumer_counts(self) -> AsyncIterator[list[tuple[ConsumerId, Counts]]]:
        """The counters of all consumers of clients, as ``OF_CONSUMERS``, some at a time."""

    async def consumer_count(self, vhosts: Iterable[str]) -> int:
        """How many consumers the queues of virtual hosts have."""

    async def consumer_groups(self, vhosts: Iterable[str]) -> list[ConsumerGroupFigures]:
        """The consumer groups of virtual hosts."""

    async def fences(self, vhosts: Iterable[str]) -> list[QueueFenceFigures]:
        """What queues of virtual hosts wait for."""

    async def group_offsets(self, vhosts: Iterable[str]) -> list[GroupOffsetFigures]:
        """How far consumer groups are in the streams of virtual hosts."""

    async def readers(self) -> list[ReaderFigures]:
        """The places of all groups of readers."""

    async def ring_traffic(self, vhost: str | None = None, name: str | None = None) -> list[RingTrafficFigures]:
        """What was counted on rings lately, by home, of those with traffic; with the registers of one that is named."""

    async def unread(self, vhost: str) -> list[tuple[str, int]]:
        """The queues of a virtual host that have ready messages and no reader, and how many; who reads a stream is not
        known to it."""

    async def connections(self) -> list[ConnectionFigures]:
        """The connections that have a virtual host open, or had until they closed."""

    async def owner(self, identity: str) -> ConnectionFigures | None:
        """The open connection that an exclusive queue belongs to; None if it is not here."""

    async def connections_named(self, name: str) -> list[ConnectionFigures]:
        """The open connections of this name; on several nodes there may be some."""

    async def channels(self) -> list[ChannelFigures]:
        """The open channels of all connections."""

    async def channels_of(self, connection: ConnectionId) -> list[ChannelFigures]:
        """The open channels of a connection."""

    async def channels_named(self, name: str) -> list[ChannelFigures]:
        """The open channels of this name, ``CONNECTION (NUMBER)``; on several nodes there may be some."""

    async def consumers_of_channel(self, connection: ConnectionId, number: int) -> list[ConsumerFigures]:
        """The consumers of a channel."""

    async def publishers(self, vhost: str, exchange: str) -> list[PublisherFigures]:
        """The open channels that have published to an exchange."""

    def connection_counts(self) -> AsyncIterator[list[tuple[ConnectionId, Counts]]]:
        """The counters of all open connections, as ``OF_CONNECTIONS``, some at a time."""

    def channel_counts(self) -> AsyncIterator[list[tuple[ChannelId, Counts]]]:
        """The counters of all open channels, as ``OF_CHANNELS``, some at a time."""

    def exchange(self, vhost: str, name: str) -> Counts:
        """What went in and out of an exchange, as ``OF_EXCHANGES``; of one that is gone, nothing."""

    def missing(self, exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
        """Messages to a hash exchange that lacked the header or property that is hashed."""

    def exchange_counts(self) -> AsyncIterator[list[tuple[ExchangeId, Counts]]]:
        """What went in and out of each exchange, as ``OF_EXCHANGES``, some at a time."""

    def churn(self) -> Counts:
        """What came and went, as :data:`CHURN`."""

    def tallies(self) -> dict[str, Tally]:
        """What channels have counted, by virtual host; channels that are closed are included."""

    def past_tally(self) -> Tally:
        """What channels have counted in virtual hosts that are deleted."""

    def past_queues(self, vhost: str) -> Counts:
        """What the deleted queues of a virtual host have counted, as ``QueueCounts.counts``; they have no messages."""

    async def by_kind(self) -> dict[str, Tally]:
        """What queues of each kind have counted; queues that are deleted are included."""

    async def refresh(self) -> None:
        """Ask other homes for the values of :meth:`states`, and of all methods that wait for nothing."""

    def states(self) -> list[HomeState]:
        """Each home that answers, at a glance."""

    def down(self) -> list[int]:
        """The homes that do not answer."""

    def nodes(self) -> dict[str, NodeFigures]:
        """The nodes that answer, by name: this one."""

    def node(self) -> NodeFigures:
        """The node."""
