"""The families of metrics that queues, channels and connections have, under RabbitMQ's names: for each, or summed up.

They are collected, and written, in small steps, so that deliveries go on meanwhile: there may be a value for each of
many thousand queues, too many to make objects of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.requests import Request

from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.connection.connection import Connection
from jumpmq.http.plumbing import requested
from jumpmq.http.rates import Rates
from jumpmq.http.resources.metric_families import CHANNEL_COUNTERS
from jumpmq.queues import Queue

Value = float | None
Read = Callable[[Any], tuple[Value, ...]]


class Figure(NamedTuple):
    """One metric of an object.

    Attributes:
        counted: whether it only grows; its name then ends with ``_total``.
        adds_up: whether the sum over all objects means something.
    """

    name: str
    about: str
    counted: bool = False
    adds_up: bool = True


@dataclass(frozen=True)
class Family:
    """What objects of one sort have.

    Attributes:
        of: ``queue``, ``channel``, ``connection``, ``ring`` or ``reader``.
        labels: what an object is told from others by, and ``key`` gives.
        figures: what ``read`` gives, in order.
    """

    of: str
    labels: tuple[str, ...]
    key: Callable[[Any], tuple[str, ...]]
    figures: tuple[Figure, ...]
    read: Callable[[Request], Read]


async def each(request: Request, family: Family, prefix: str, vhosts: list[str]) -> dict[str, list[str]]:
    """The family with a value for each object, of these virtual hosts or of all: lines of text by the metric's name."""
    return await lines(request, family, prefix, _objects(request, family.of, vhosts))


async def lines(request: Request, family: Family, prefix: str, objects: Iterable[Any]) -> dict[str, list[str]]:
    """The family with a value for each of these objects."""
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


async def summed(request: Request, family: Family, prefix: str) -> list[Metric]:
    """The family's figures of all objects together, as far as they are no counters, which would fall with an object."""
    read, totals = family.read(request), [0.0] * len(family.figures)
    async for one in requested.broker(request).slices.through(_objects(request, family.of, [])):
        totals = [total + (value or 0) for total, value in zip(totals, read(one), strict=True)]
    return [
        GaugeMetricFamily(prefix + figure.name, figure.about, total)
        for figure, total in zip(family.figures, totals, strict=True)
        if figure.adds_up and not figure.counted
    ]


def _objects(request: Request, kind: str, vhosts: list[str]) -> Iterable[Any]:
    broker = requested.broker(request)
    if kind == "queue":
        hosts = [host for host in broker.topology.vhosts.values() if not vhosts or host.name in vhosts]
        return [queue for host in hosts for queue in host.queues.values()]
    opened = [one for one in broker.connections if one.opened and (not vhosts or one.vhost.name in vhosts)]
    return opened if kind == "connection" else [channel for one in opened for channel in one.channels.values()]


def _lengths(request: Request) -> Read:
    return lambda queue: (queue.ready_count, queue.unacknowledged_count, queue.message_count)


def _consumers(request: Request) -> Read:
    return lambda queue: (len(queue.consumers),)


def _figures(request: Request) -> Read:
    rates: Rates = request.app.state.rates

    def read(queue: Queue) -> tuple[Value, ...]:
        found = queue.figures()
        capacity = None if queue.append_only else rates.consumer_capacity(queue)
        beginning = (len(queue.consumers), capacity, capacity, queue.memory)
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
    Figure("queue_messages_persistent", "Messages that outlive a restart"),
    Figure("queue_messages_persistent_bytes", "Octets of messages that outlive a restart"),
    Figure("queue_messages_bytes", "Octets of messages"),
    Figure("queue_messages_ready_bytes", "Octets of ready messages"),
    Figure("queue_messages_unacked_bytes", "Octets of unacknowledged messages"),
    Figure("queue_messages_paged_out", "Messages on disk alone for want of memory"),
    Figure("queue_messages_paged_out_bytes", "Octets of messages on disk alone for want of memory"),
)


def _published(request: Request) -> Read:
    return lambda queue: (queue.published,)


def _of_channel(request: Request) -> Read:
    def read(channel: Channel) -> tuple[Value, ...]:
        transaction, confirms = channel.transaction, channel.confirms
        return (
            len(channel.consumers),
            len(channel.unacknowledged),
            confirms.unanswered if confirms is not None else 0,
            transaction.published if transaction is not None else 0,
            transaction.claimed if transaction is not None else 0,
            channel.consumer_prefetch,
            channel.prefetch,
        )

    return read


def _counted(names: Iterable[str]) -> tuple[tuple[Figure, ...], Callable[[Request], Read]]:
    wanted = [(f"channel_{name}", CHANNEL_COUNTERS[name]) for name in names]
    figures = tuple(Figure(name, f"Messages: {of}", counted=True) for name, of in wanted)
    return figures, lambda request: lambda channel: tuple(getattr(channel.tally, of) for _, of in wanted)


def _octets(request: Request) -> Read:
    return lambda connection: (connection.received_octets, connection.sent_octets)


def _of_connection(request: Request) -> Read:
    return lambda connection: (connection.unwritten_octets, len(connection.channels))


def _queue_key(queue: Queue) -> tuple[str, ...]:
    return queue.vhost, queue.name


def _name(one: Channel | Connection) -> tuple[str, ...]:
    return (one.name,)


def _family_of_queues(
    figures: tuple[Figure, ...], read: Callable[[Request], Read], labels: tuple[str, ...] = ("vhost", "queue")
) -> Family:
    return Family("queue", labels, _queue_key, figures, read)


def _family_of_channels(figures: tuple[Figure, ...], read: Callable[[Request], Read]) -> Family:
    return Family("channel", ("channel",), _name, figures, read)


def _family_of_connections(figures: tuple[Figure, ...], read: Callable[[Request], Read]) -> Family:
    return Family("connection", ("connection",), _name, figures, read)


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
            Figure("queue_consumer_utilisation", "The same", adds_up=False),
            Figure("queue_process_memory_bytes", "Memory that its messages take"),
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
            Figure("connection_pending_packets", "Octets that wait to be sent"),
            Figure("connection_channels", "Channels"),
        ),
        _of_connection,
    ),
    "channel_queue_exchange_metrics": _family_of_queues(
        (Figure("queue_messages_published", "Messages that queues received", counted=True),),
        _published,
        ("queue_vhost", "queue"),
    ),
}
"""By RabbitMQ's names of them, in the order in which a later one replaces what an earlier one has."""
