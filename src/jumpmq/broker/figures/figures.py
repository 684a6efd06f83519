"""Metrics of a broker, of any number of processes, as read by the management API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from jumpmq.broker.figures.values import (
    ChannelFigures,
    ConnectionFigures,
    ConnectionId,
    ConsumerFigures,
    ConsumerGroupFigures,
    Counts,
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
)
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import ModulusHashExchange
from jumpmq.topology.tally import Tally


class Figures(Protocol):
    """Metrics of a broker; :class:`~jumpmq.broker.figures.home.HomeFigures` reads the metrics of one process."""

    def object_counts(self, vhosts: Iterable[str]) -> AsyncIterator[ObjectCounts]:
        """Yield the counters of the queues of virtual hosts, and of all connections, channels and clients' consumers,
        some at a time. The values of :meth:`refresh` are requested from other homes, too.
        """

    def queue_counts(self, vhost: str) -> AsyncIterator[list[QueueCounts]]:
        """Yield the counters of all queues of a virtual host, some at a time."""

    async def queue(self, definition: QueueDefinition) -> QueueFigures | None:
        """Return the metrics of a queue; None if deleted."""

    async def queues(self, definitions: Iterable[QueueDefinition]) -> list[QueueFigures | None]:
        """Return the metrics of queues in the given order; None for a deleted queue."""

    async def counts(self, definitions: Iterable[QueueDefinition]) -> list[Counts | None]:
        """Return the counters of queues in the given order; None for a deleted queue."""

    async def consumers_of(self, definition: QueueDefinition, most: int | None = None) -> list[ConsumerFigures]:
        """Return the consumers of a queue by descending priority, at most the first ``most``."""

    async def consumers(self, vhosts: Iterable[str]) -> list[ConsumerFigures]:
        """Return the consumers of all queues of virtual hosts."""

    async def consumer_count(self, vhosts: Iterable[str]) -> int:
        """Return the number of consumers on the queues of virtual hosts."""

    async def consumer_groups(self, vhosts: Iterable[str]) -> list[ConsumerGroupFigures]:
        """Return the consumer groups of virtual hosts."""

    async def fences(self, vhosts: Iterable[str]) -> list[QueueFenceFigures]:
        """Return the ordering barriers of the queues of virtual hosts."""

    async def group_offsets(self, vhosts: Iterable[str]) -> list[GroupOffsetFigures]:
        """Return the offsets of consumer groups in the streams of virtual hosts."""

    async def readers(self) -> list[ReaderFigures]:
        """Return the positions of all reader groups."""

    async def ring_traffic(self, vhost: str | None = None, name: str | None = None) -> list[RingTrafficFigures]:
        """Return recent traffic of rings, by home, without idle rings; for a named ring, with its registers."""

    async def unread(self, vhost: str) -> list[tuple[str, int]]:
        """Return the queues of a virtual host with ready messages and no reader, with message counts; the readers of a
        stream are unknown here."""

    async def connections(self) -> list[ConnectionFigures]:
        """Return the connections with an open virtual host, closing ones included."""

    async def owner(self, identity: str) -> ConnectionFigures | None:
        """Return the open connection owning an exclusive queue; None if not local."""

    async def connections_named(self, name: str) -> list[ConnectionFigures]:
        """Return the open connections of this name; several nodes may have some."""

    async def channels(self) -> list[ChannelFigures]:
        """Return the open channels of all connections."""

    async def channels_of(self, connection: ConnectionId) -> list[ChannelFigures]:
        """Return the open channels of a connection."""

    async def channels_named(self, name: str) -> list[ChannelFigures]:
        """Return the open channels of this name, ``CONNECTION (NUMBER)``; several nodes may have some."""

    async def consumers_of_channel(self, connection: ConnectionId, number: int) -> list[ConsumerFigures]:
        """Return the consumers of a channel."""

    async def publishers(self, vhost: str, exchange: str) -> list[PublisherFigures]:
        """Return the open channels with publishes to an exchange."""

    def exchange(self, vhost: str, name: str) -> Counts:
        """Return messages in and out of an exchange, as ``OF_EXCHANGES``; zeros for a deleted exchange."""

    def missing(self, exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
        """Return the number of messages to a hash exchange without the hashed header or property."""

    def exchange_counts(self) -> AsyncIterator[list[tuple[ExchangeId, Counts]]]:
        """Yield messages in and out of every exchange, as ``OF_EXCHANGES``, some exchanges at a time."""

    def churn(self) -> Counts:
        """Return created and removed objects, as :data:`CHURN`."""

    def tallies(self) -> dict[str, Tally]:
        """Return the counters of channels, by virtual host; closed channels included."""

    def past_tally(self) -> Tally:
        """Return the counters of channels in deleted virtual hosts."""

    def past_queues(self, vhost: str) -> Counts:
        """Return the counters of a virtual host's deleted queues, as ``QueueCounts.counts``; deleted queues have no
        messages.
        """

    async def by_kind(self) -> dict[str, Tally]:
        """Return the counters of queues by kind; deleted queues included."""

    async def refresh(self) -> None:
        """Request the values of :meth:`states`, and of all synchronous methods, from other homes."""

    def states(self) -> list[HomeState]:
        """Return an overview of every responding home."""

    def down(self) -> list[int]:
        """Return the unresponsive homes."""

    def nodes(self) -> dict[str, NodeFigures]:
        """Return the responding nodes, by name."""

    def node(self) -> NodeFigures:
        """Return the metrics of the local node."""
