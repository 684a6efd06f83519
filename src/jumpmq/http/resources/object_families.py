"""Metrics of queues, channels and connections, under RabbitMQ's names: per object, or summed.

Metrics are collected and rendered in small steps, so that deliveries continue in between. Values of many thousand
queues are rendered directly as text, because objects of the Prometheus library would take too long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.requests import Request

from jumpmq.broker.figures.values import OF_CHANNELS, ChannelFigures, QueueFigures
from jumpmq.http.plumbing import requested
from jumpmq.http.rates import Rates
from jumpmq.http.resources.metric_families import CHANNEL_COUNTERS
from jumpmq.topology.definitions import QueueDefinition

Value = float | None
Read = Callable[[Any], tuple[Value, ...]]


class Figure(NamedTuple):
    """A metric of an object.

    Attributes:
        counted: True for a counter, whose name ends with ``_total``; False for a gauge.
        adds_up: True if the sum over all objects is meaningful.
    """

    name: str
    about: str
    counted: bool = False
    adds_up: bool = True


@dataclass(frozen=True)
class Family:
    """Metrics of all objects of a kind.

    Attributes:
        of: ``queue``, ``channel``, ``connection``, ``ring`` or ``reader``.
        labels: names of the labels that identify an object; ``key`` returns the labels' values.
        figures: metrics of an object, in the order of the values returned by ``read``.
    """

    of: str
    labels: tuple[str, ...]
    key: Callable[[Any], tuple[str, ...]]
    figures: tuple[Figure, ...]
    read: Callable[[Request], Read]


class Objects:
    """Metrics of all queues, channels and connections, read at most once per request.

    Attributes:
        vhosts: names of the virtual hosts; empty for all.
    """

    def __init__(self, request: Request, vhosts: Collection[str] = ()) -> None:
        self._broker = requested.broker(request)
        self._figures = requested.node_figures(request)
        self.vhosts = vhosts
        self._read: dict[str, list[Any]] = {}

    async def of(self, kind: str) -> list[Any]:
        """Return the objects of a kind, as in :attr:`Family.of`; queues come with their definitions."""
        if kind not in self._read:
            self._read[kind] = await self._queues() if kind == "queue" else await self._of_clients(kind)
        return self._read[kind]

    async def _queues(self) -> list[MeasuredQueue]:
        hosts = [host for name, host in self._broker.topology.vhosts.items() if self._wants(name)]
        definitions = [definition for host in hosts for definition in host.queue_definitions()]
        figures = await self._figures.queues(definitions)
        pairs = zip(definitions, figures, strict=True)
        return [MeasuredQueue(definition, found) for definition, found in pairs if found is not None]

    async def _of_clients(self, kind: str) -> list[Any]:
        figures = self._figures
        found = await figures.connections() if kind == "connection" else await figures.channels()
        return [one for one in found if self._wants(one.peer.vhost)]

    def _wants(self, vhost: str) -> bool:
        return not self.vhosts or vhost in self.vhosts


class MeasuredQueue(NamedTuple):
    """A queue with metrics."""

    definition: QueueDefinition
    figures: QueueFigures


async def each(request: Request, family: Family, prefix: str, objects: Objects) -> dict[str, list[str]]:
    """Return the family with a value per object: lines of text by metric."""
    return await lines(request, family, prefix, await objects.of(family.of))


async def lines(request: Request, family: Family, prefix: str, objects: Iterable[Any]) -> dict[str, list[str]]:
    """Render the family with a value per object."""
    names = [f"{prefix}{figure.name}{'_total' if figure.counted else ''}" for figure in family.figures]
    found = [_beginning(name, figure) for name, figure in zip(names, family.figures, strict=True)]
    read = family.read(request)
    async for one in requested.broker(request).slices.through(objects):
        labels = ",".join(
            [f'{name}="{_escaped(value)}"' for name, value in zip(family.labels, family.key(one), strict=True)]
        )
        for name, written, value in zip(names, found, read(one), strict=True):
            if value is not None:
                written.append(f"{name}{{{labels}}} {value}\n")
    return dict(zip(names, found, strict=True))


def _beginning(name: str, figure: Figure) -> list[str]:
    return [f"# HELP {name} {figure.about}\n# TYPE {name} {'counter' if figure.counted else 'gauge'}\n"]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


async def summed(request: Request, family: Family, prefix: str, objects: Objects) -> list[Metric]:
    """Return the family's gauges, summed over all objects. Counters are left out: their sum would decrease with a
    deleted object.
    """
    read, totals = family.read(request), [0.0] * len(family.figures)
    async for one in requested.broker(request).slices.through(await objects.of(family.of)):
        totals = [total + (value or 0) for total, value in zip(totals, read(one), strict=True)]
    return [
        GaugeMetricFamily(prefix + figure.name, figure.about, total)
        for figure, total in zip(family.figures, totals, strict=True)
        if figure.adds_up and not figure.counted
    ]


def _lengths(request: Request) -> Read:
    def read(queue: MeasuredQueue) -> tuple[Value, ...]:
        found = queue.figures
        return found.ready, found.unacknowledged, found.ready + found.unacknowledged

    return read


def _consumers(request: Request) -> Read:
    return lambda queue: (queue.figures.consumers,)


def _figures(request: Request) -> Read:
    rates: Rates = request.app.state.rates

    def read(queue: MeasuredQueue) -> tuple[Value, ...]:
        figures = queue.figures
        found = figures.messages
        capacity = None if figures.append_only else rates.consumer_capacity(figures)
        beginning = (figures.consumers, capacity, capacity, figures.memory)
        if found is None:
            return (*beginning, *(None for _ in MESSAGE_FIGURES))
        return (
            *beginning,
            found.ready_in_memory + found.unacknowledged_in_memory,
            found.octets_in_memory,
            found.ready_in_memory,
            found.unacknowledged_in_memory,
            found.persistent,
            found.persistent_octets,
            found.ready_octets + found.unacknowledged_octets,
            found.ready_octets,
            found.unacknowledged_octets,
            found.paged_out,
            found.paged_out_octets,
        )

    return read


MESSAGE_FIGURES = (
    Figure("queue_messages_ram", "Messages in memory"),
    Figure("queue_messages_ram_bytes", "Octets of messages in memory"),
    Figure("queue_messages_ready_ram", "Ready messages in memory"),
    Figure("queue_messages_unacked_ram", "Unacknowledged messages in memory"),
    Figure("queue_messages_persistent", "Messages that survive a restart"),
    Figure("queue_messages_persistent_bytes", "Octets of messages that survive a restart"),
    Figure("queue_messages_bytes", "Octets of messages"),
    Figure("queue_messages_ready_bytes", "Octets of ready messages"),
    Figure("queue_messages_unacked_bytes", "Octets of unacknowledged messages"),
    Figure("queue_messages_paged_out", "Paged messages: on disk only, because memory is short"),
    Figure("queue_messages_paged_out_bytes", "Octets of paged messages: on disk only, because memory is short"),
)


def _published(request: Request) -> Read:
    return lambda queue: (queue.figures.counts[0],)


def _of_channel(request: Request) -> Read:
    def read(channel: ChannelFigures) -> tuple[Value, ...]:
        return (
            channel.consumers,
            channel.unacknowledged,
            channel.unconfirmed,
            channel.uncommitted,
            channel.acks_uncommitted,
            channel.prefetch,
            channel.global_prefetch,
        )

    return read


def _counted(names: Iterable[str]) -> tuple[tuple[Figure, ...], Callable[[Request], Read]]:
    wanted = [(f"channel_{name}", CHANNEL_COUNTERS[name]) for name in names]
    places = [OF_CHANNELS.index(of) for _, of in wanted]
    figures = tuple(Figure(name, f"Messages: {of}", counted=True) for name, of in wanted)
    return figures, lambda request: lambda channel: tuple([channel.counts[place] for place in places])


def _octets(request: Request) -> Read:
    return lambda connection: connection.counts


def _of_connection(request: Request) -> Read:
    return lambda connection: (connection.unsent, connection.channels)


def _queue_key(queue: MeasuredQueue) -> tuple[str, ...]:
    return queue.definition.vhost, queue.definition.name


def _family_of_queues(
    figures: tuple[Figure, ...], read: Callable[[Request], Read], labels: tuple[str, ...] = ("vhost", "queue")
) -> Family:
    return Family("queue", labels, _queue_key, figures, read)


def _family_of_channels(figures: tuple[Figure, ...], read: Callable[[Request], Read]) -> Family:
    return Family("channel", ("channel",), lambda channel: (channel.name,), figures, read)


def _family_of_connections(figures: tuple[Figure, ...], read: Callable[[Request], Read]) -> Family:
    return Family("connection", ("connection",), lambda connection: (connection.peer.name,), figures, read)


CONSUMERS = Figure("queue_consumers", "Consumers")
FAMILIES: dict[str, Family] = {
    "queue_coarse_metrics": _family_of_queues(
        (
            Figure("queue_messages_ready", "Messages waiting for a consumer"),
            Figure("queue_messages_unacked", "Messages delivered, not acknowledged"),
            Figure("queue_messages", "Ready and unacknowledged messages"),
        ),
        _lengths,
    ),
    "queue_consumer_count": _family_of_queues((CONSUMERS,), _consumers),
    "queue_metrics": _family_of_queues(
        (
            CONSUMERS,
            Figure("queue_consumer_capacity", "Share of the time in which consumers had room", adds_up=False),
            Figure("queue_consumer_utilisation", "Same value as the consumer capacity", adds_up=False),
            Figure("queue_process_memory_bytes", "Memory of the messages"),
            *MESSAGE_FIGURES,
        ),
        _figures,
    ),
    "channel_metrics": _family_of_channels(
        (
            Figure("channel_consumers", "Consumers"),
            Figure("channel_messages_unacked", "Messages delivered, not acknowledged"),
            Figure("channel_messages_unconfirmed", "Messages published, not confirmed"),
            Figure("channel_messages_uncommitted", "Messages published in a transaction, not committed"),
            Figure("channel_acks_uncommitted", "Messages acknowledged in a transaction, not committed"),
            Figure("consumer_prefetch", "Prefetch of the next consumer"),
            Figure("channel_prefetch", "Prefetch of all consumers together"),
        ),
        _of_channel,
    ),
    "channel_exchange_metrics": _family_of_channels(
        *_counted(
            (
                *("messages_published", "messages_confirmed"),
                *("messages_unroutable_returned", "messages_unroutable_dropped"),
            )
        )
    ),
    "channel_queue_metrics": _family_of_channels(
        *_counted(
            (
                *("get_ack", "get", "messages_delivered_ack", "messages_delivered"),
                *("messages_redelivered", "messages_acked", "get_empty"),
            )
        )
    ),
    "connection_coarse_metrics": _family_of_connections(
        (
            Figure("connection_incoming_bytes", "Octets received", counted=True),
            Figure("connection_outgoing_bytes", "Octets sent", counted=True),
        ),
        _octets,
    ),
    "connection_metrics": _family_of_connections(
        (
            Figure("connection_pending_packets", "Octets waiting to be sent"),
            Figure("connection_channels", "Channels"),
        ),
        _of_connection,
    ),
    "channel_queue_exchange_metrics": _family_of_queues(
        (Figure("queue_messages_published", "Messages received by queues", counted=True),),
        _published,
        ("queue_vhost", "queue"),
    ),
}
"""Families by RabbitMQ's names. The order matters: a metric of a later family replaces an equal one of an earlier."""
