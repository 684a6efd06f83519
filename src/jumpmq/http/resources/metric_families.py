"""The families of metrics that stand for connections, channels, logins and messages as a whole, under RabbitMQ's names.

Counters only grow: what is gone stays in them. RabbitMQ's label ``queue_type`` is left out; sums are the same.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request

from jumpmq._version import __version__
from jumpmq.broker.channel import Channel
from jumpmq.broker.listeners import connection_limit
from jumpmq.http.plumbing import requested
from jumpmq.http.rates import Rates
from jumpmq.http.resources.nodes import resident_octets
from jumpmq.queues import Queue

OPEN_FILES = Path("/proc/self/fd")
COMPATIBLE_WITH = "3.10.8"
PROTOCOL = "amqp091"

Families = Callable[[Request, str, list[str]], Iterable[Metric]]
"""Makes families of a request, of names that begin so, of the virtual hosts that it asks for."""


def identity(request: Request) -> list[Metric]:
    """Who is measured."""
    broker = requested.broker(request)
    build = GaugeMetricFamily(
        "rabbitmq_build_info",
        "The broker's version",
        labels=("rabbitmq_version", "product_name", "product_version"),
    )
    build.add_metric((COMPATIBLE_WITH, "JumpMQ", __version__), 1)
    labels = ("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id")
    who = GaugeMetricFamily("rabbitmq_identity_info", "The node and its cluster", labels=labels)
    who.add_metric((broker.node, broker.cluster_name, broker.node), 1)
    return [build, who]


def _gauge(name: str, value: float, about: str) -> Metric:
    return GaugeMetricFamily(name, about, value)


def _counter(name: str, value: float, about: str) -> Metric:
    return CounterMetricFamily(name, about, value)


def churn(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
    """How much came and went."""
    counts = requested.broker(request).churn
    return [
        _counter(f"{prefix}connections_opened", counts.connection_created, "Connections that were opened"),
        _counter(f"{prefix}connections_closed", counts.connection_closed, "Connections that were closed"),
        _counter(f"{prefix}channels_opened", counts.channel_created, "Channels that were opened"),
        _counter(f"{prefix}channels_closed", counts.channel_closed, "Channels that were closed"),
        _counter(f"{prefix}queues_declared", counts.queue_declared, "Declarations of queues"),
        _counter(f"{prefix}queues_created", counts.queue_created, "Queues that were made"),
        _counter(f"{prefix}queues_deleted", counts.queue_deleted, "Queues that were deleted"),
    ]


def node_used(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
    """What the node uses."""
    broker = requested.broker(request)
    files = len(list(OPEN_FILES.iterdir())) if OPEN_FILES.exists() else 0
    return [
        _gauge(f"{prefix}process_open_fds", files, "Open files"),
        _gauge(f"{prefix}process_open_tcp_sockets", len(broker.connections), "Connections of AMQP"),
        _gauge(f"{prefix}process_resident_memory_bytes", resident_octets(), "Memory of the broker"),
        _gauge(f"{prefix}disk_space_available_bytes", broker.alarms.disk_free or 0, "Free disk space"),
    ]


def node_limits(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
    """What the node may use."""
    broker = requested.broker(request)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    memory = "Memory held for messages at which publishers are blocked"
    disk = "Free disk space below which publishers are blocked"
    return [
        _gauge(f"{prefix}process_max_fds", files, "Files that the broker may open"),
        _gauge(f"{prefix}process_max_tcp_sockets", connection_limit(), "Connections of AMQP that there may be"),
        _gauge(f"{prefix}resident_memory_limit_bytes", broker.memory.limit, memory),
        _gauge(f"{prefix}disk_space_available_limit_bytes", broker.alarms.disk_free_limit, disk),
    ]


def logins(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
    """Logins that were tried, by protocol."""
    tried = CounterMetricFamily(f"{prefix}auth_attempts", "Logins that were tried", labels=("protocol",))
    right = CounterMetricFamily(f"{prefix}auth_attempts_succeeded", "Logins", labels=("protocol",))
    wrong = CounterMetricFamily(f"{prefix}auth_attempts_failed", "Logins that were refused", labels=("protocol",))
    for protocol, one in requested.broker(request).authenticator.attempts.items():
        for family, count in ((tried, one.succeeded + one.failed), (right, one.succeeded), (wrong, one.failed)):
            family.add_metric((protocol,), count)
    return [tried, right, wrong]


def messages(request: Request) -> list[Metric]:
    """Messages of all channels together, those that are gone among them."""
    rates: Rates = request.app.state.rates
    tally, broker = rates.tally(), requested.broker(request)
    channels = [channel for one in broker.connections for channel in one.channels.values()]
    unconfirmed = sum([channel.confirms.unanswered for channel in channels if channel.confirms is not None])
    counted = {
        "received": tally.publish,
        "received_confirm": tally.confirm + unconfirmed,
        "confirmed": tally.confirm,
        "routed": rates.moved[0],
        "unroutable_dropped": tally.drop_unroutable,
        "unroutable_returned": tally.return_unroutable,
        "delivered": tally.deliver + tally.deliver_no_ack + tally.get + tally.get_no_ack,
        "delivered_consume_manual_ack": tally.deliver,
        "delivered_consume_auto_ack": tally.deliver_no_ack,
        "delivered_get_manual_ack": tally.get,
        "delivered_get_auto_ack": tally.get_no_ack,
        "get_empty": tally.get_empty,
        "redelivered": tally.redeliver,
        "acknowledged": tally.ack,
    }
    return [
        *(_global(CounterMetricFamily, f"messages_{name}", count) for name, count in counted.items()),
        _global(GaugeMetricFamily, "publishers", sum([channel.tally.publish > 0 for channel in channels])),
        _global(GaugeMetricFamily, "consumers", sum([len(channel.consumers) for channel in channels])),
        *(
            _counter(f"rabbitmq_channel_{name}", counted[of], f"Messages: {of}")
            for name, of in CHANNEL_COUNTERS.items()
        ),
        _gauge("rabbitmq_channel_consumers", sum([len(channel.consumers) for channel in channels]), "Consumers"),
        _gauge("rabbitmq_channel_messages_unconfirmed", unconfirmed, "Messages published and not confirmed"),
    ]


CHANNEL_COUNTERS = {
    "messages_published": "received",
    "messages_confirmed": "confirmed",
    "messages_unroutable_returned": "unroutable_returned",
    "messages_unroutable_dropped": "unroutable_dropped",
    "messages_delivered_ack": "delivered_consume_manual_ack",
    "messages_delivered": "delivered_consume_auto_ack",
    "get_ack": "delivered_get_manual_ack",
    "get": "delivered_get_auto_ack",
    "get_empty": "get_empty",
    "messages_redelivered": "redelivered",
    "messages_acked": "acknowledged",
}
"""What older dashboards call the same."""


def _global(family: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, value: float) -> Metric:
    made = family(f"rabbitmq_global_{name}", name.replace("_", " "), labels=("protocol",))
    made.add_metric((PROTOCOL,), value)
    return made


def connections(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
    """Octets and channels of each connection."""
    labels = ("connection",)
    received = CounterMetricFamily(f"{prefix}connection_incoming_bytes", "Octets received", labels=labels)
    sent = CounterMetricFamily(f"{prefix}connection_outgoing_bytes", "Octets sent", labels=labels)
    count = GaugeMetricFamily(f"{prefix}connection_channels", "Channels", labels=labels)
    for one in requested.broker(request).connections:
        if one.opened and (not vhosts or one.vhost.name in vhosts):
            for family, value in (
                (received, one.received_octets),
                (sent, one.sent_octets),
                (count, len(one.channels)),
            ):
                family.add_metric((one.name,), value)
    return [received, sent, count]


def channels(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
    """What each channel has open."""
    labels = ("channel",)
    gauges: dict[str, Callable[[Channel], float]] = {
        "consumers": lambda channel: len(channel.consumers),
        "messages_unacked": lambda channel: len(channel.unacknowledged),
        "messages_unconfirmed": lambda channel: channel.confirms.unanswered if channel.confirms is not None else 0,
        "prefetch": lambda channel: channel.prefetch,
    }
    families = {name: GaugeMetricFamily(f"{prefix}channel_{name}", name, labels=labels) for name in gauges}
    for connection in requested.broker(request).connections:
        if connection.opened and (not vhosts or connection.vhost.name in vhosts):
            for channel in connection.channels.values():
                for name, value in gauges.items():
                    families[name].add_metric((channel.name,), value(channel))
    return list(families.values())


def _of_queues(names: dict[str, Callable[[Queue], float]]) -> Families:
    def make(request: Request, prefix: str, vhosts: list[str]) -> list[Metric]:
        families = {
            name: GaugeMetricFamily(f"{prefix}queue_{name}", name.replace("_", " "), labels=("vhost", "queue"))
            for name in names
        }
        for host in requested.broker(request).topology.vhosts.values():
            for queue in host.queues.values() if not vhosts or host.name in vhosts else ():
                for name, value in names.items():
                    families[name].add_metric((queue.vhost, queue.name), value(queue))
        return list(families.values())

    return make


DETAILED: dict[str, Families] = {
    "connection_churn_metrics": churn,
    "node_coarse_metrics": node_used,
    "node_metrics": node_limits,
    "auth_attempt_metrics": logins,
    "queue_coarse_metrics": _of_queues(
        {
            "messages_ready": lambda queue: queue.ready_count,
            "messages_unacked": lambda queue: queue.unacknowledged_count,
            "messages": lambda queue: queue.message_count,
        }
    ),
    "queue_consumer_count": _of_queues({"consumers": lambda queue: len(queue.consumers)}),
    "queue_metrics": _of_queues(
        {
            "consumers": lambda queue: len(queue.consumers),
            "process_memory_bytes": lambda queue: queue.memory,
            "messages_published_total": lambda queue: queue.published,
        }
    ),
    "connection_coarse_metrics": connections,
    "connection_metrics": connections,
    "channel_metrics": channels,
}
"""The families of ``/metrics/detailed``."""
