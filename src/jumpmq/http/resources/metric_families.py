"""Metrics of the node as a whole, under RabbitMQ's names.

Counters never decrease: they include closed channels and deleted queues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request

from jumpmq._version import __version__
from jumpmq.broker.figures.values import OF_CHANNELS, ChannelFigures, HomeState
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.http.plumbing import requested
from jumpmq.queues import DECLARABLE_TYPES
from jumpmq.topology import Exchange
from jumpmq.topology.tally import Tally

COMPATIBLE_WITH = "3.10.8"
PROTOCOL = "amqp091"
PUBLISH = OF_CHANNELS.index("publish")
DEATHS: dict[str, dict[str, tuple[str, ...]]] = {
    "expired": {"classic": ("at_most_once", "disabled"), "quorum": ("at_least_once", "at_most_once", "disabled")},
    "rejected": {"classic": ("at_most_once", "disabled"), "quorum": ("at_least_once", "at_most_once", "disabled")},
    "maxlen": {"classic": ("at_most_once", "disabled"), "quorum": ("at_most_once", "disabled")},
    "delivery_limit": {"quorum": ("at_least_once", "at_most_once", "disabled")},
}
"""Reasons for the death of messages by kind of queue, with the dead-letter strategies."""

Families = Iterable[Metric]


def identity(request: Request, endpoint: str) -> Families:
    """Return the families with the broker's identity and, as in RabbitMQ 4, the endpoint."""
    broker = requested.broker(request)
    build = GaugeMetricFamily(
        "rabbitmq_build_info",
        "The broker's version",
        labels=("rabbitmq_version", "product_name", "product_version"),
    )
    build.add_metric((COMPATIBLE_WITH, "JumpMQ", __version__), 1)
    labels = ("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint")
    who = GaugeMetricFamily("rabbitmq_identity_info", "The node and its cluster", labels=labels)
    who.add_metric((broker.node, broker.cluster_name, broker.identity or broker.node, endpoint), 1)
    return build, who


def _gauge(name: str, value: float, about: str) -> Metric:
    return GaugeMetricFamily(name, about, value)


def _counter(name: str, value: float, about: str) -> Metric:
    return CounterMetricFamily(name, about, value)


def tally(request: Request) -> Tally:
    """Return the counts of the local node's channels in all virtual hosts, including deleted virtual hosts."""
    figures, found = requested.node_figures(request), Tally()
    found.add(figures.past_tally())
    for one in figures.tallies().values():
        found.add(one)
    return found


def churn(request: Request, prefix: str) -> Families:
    """Return the churn statistics."""
    counts = Churn(*requested.node_figures(request).churn())
    return (
        _counter(f"{prefix}connections_opened", counts.connection_created, "Opened connections"),
        _counter(f"{prefix}connections_closed", counts.connection_closed, "Closed connections"),
        _counter(f"{prefix}channels_opened", counts.channel_created, "Opened channels"),
        _counter(f"{prefix}channels_closed", counts.channel_closed, "Closed channels"),
        _counter(f"{prefix}queues_declared", counts.queue_declared, "Declarations of queues"),
        _counter(f"{prefix}queues_created", counts.queue_created, "Created queues"),
        _counter(f"{prefix}queues_deleted", counts.queue_deleted, "Deleted queues"),
    )


def node_used(request: Request, prefix: str) -> Families:
    """Return the resources used by the node."""
    node = requested.node_figures(request).node()
    return (
        _gauge(f"{prefix}process_open_fds", node.files, "Open files"),
        _gauge(f"{prefix}process_open_tcp_sockets", node.connections, "AMQP connections"),
        _gauge(f"{prefix}process_resident_memory_bytes", node.resident, "Memory of the broker"),
        _gauge(f"{prefix}disk_space_available_bytes", node.disk_free or 0, "Free disk space"),
    )


def node_limits(request: Request, prefix: str) -> Families:
    """Return the resource limits of the node."""
    node = requested.node_figures(request).node()
    memory = "Memory held for messages at which publishers are blocked"
    disk = "Free disk space below which publishers are blocked"
    return (
        _gauge(f"{prefix}process_max_fds", node.files_limit, "Limit of open files"),
        _gauge(f"{prefix}process_max_tcp_sockets", node.connections_limit, "Limit of AMQP connections"),
        _gauge(f"{prefix}resident_memory_limit_bytes", node.memory_limit, memory),
        _gauge(f"{prefix}disk_space_available_limit_bytes", node.disk_free_limit, disk),
        _gauge(f"{prefix}erlang_uptime_seconds", round(time.time() - node.started_at, 3), "Uptime of the node"),
    )


def logins(request: Request, prefix: str) -> Families:
    """Return the attempted logins, by protocol."""
    tried = CounterMetricFamily(f"{prefix}auth_attempts", "Attempted logins", labels=("protocol",))
    right = CounterMetricFamily(f"{prefix}auth_attempts_succeeded", "Logins", labels=("protocol",))
    wrong = CounterMetricFamily(f"{prefix}auth_attempts_failed", "Refused logins", labels=("protocol",))
    for protocol, (succeeded, failed) in login_counts(requested.node_figures(request).states()).items():
        for family, count in ((tried, succeeded + failed), (right, succeeded), (wrong, failed)):
            family.add_metric((protocol,), count)
    return tried, right, wrong


def login_counts(states: Iterable[HomeState]) -> dict[str, tuple[int, int]]:
    """Return successful and failed logins of all homes, by protocol."""
    found: dict[str, tuple[int, int]] = {}
    for state in states:
        for protocol, (succeeded, failed) in state.logins.items():
            before = found.get(protocol, (0, 0))
            found[protocol] = before[0] + succeeded, before[1] + failed
    return found


def published(tally: Tally, channels: Sequence[ChannelFigures]) -> Families:
    """Return the metrics of messages from publishers, on open and closed channels.

    Args:
        tally: counts of all channels, closed channels included.
        channels: the open channels.
    """
    unconfirmed = sum([channel.unconfirmed for channel in channels])
    counted = {
        "received": tally.publish,
        "received_confirm": tally.confirm + unconfirmed,
        "confirmed": tally.confirm,
        "routed": tally.routed,
        "unroutable_dropped": tally.drop_unroutable,
        "unroutable_returned": tally.return_unroutable,
    }
    return (
        *(_global(CounterMetricFamily, f"messages_{name}", count) for name, count in counted.items()),
        _global(GaugeMetricFamily, "publishers", sum([channel.counts[PUBLISH] > 0 for channel in channels])),
        _global(GaugeMetricFamily, "consumers", sum([channel.consumers for channel in channels])),
        *(
            _counter(f"rabbitmq_channel_{name}", getattr(tally, of), f"Messages: {of}")
            for name, of in CHANNEL_COUNTERS.items()
        ),
    )


CHANNEL_COUNTERS = {
    "messages_published": "publish",
    "messages_confirmed": "confirm",
    "messages_unroutable_returned": "return_unroutable",
    "messages_unroutable_dropped": "drop_unroutable",
    "messages_delivered_ack": "deliver",
    "messages_delivered": "deliver_no_ack",
    "get_ack": "get",
    "get": "get_no_ack",
    "get_empty": "get_empty",
    "messages_redelivered": "redeliver",
    "messages_acked": "ack",
}
"""Counters of channels: the attribute of a tally, by the metric's name."""

DELIVERED = {
    "delivered_consume_manual_ack": "deliver",
    "delivered_consume_auto_ack": "deliver_no_ack",
    "delivered_get_manual_ack": "get",
    "delivered_get_auto_ack": "get_no_ack",
    "get_empty": "get_empty",
    "redelivered": "redeliver",
    "acknowledged": "ack",
}
"""Counters of queues: the attribute of a tally, by the metric's name."""


def _global(family: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, value: float) -> Metric:
    made = family(f"rabbitmq_global_{name}", name.replace("_", " "), labels=("protocol",))
    made.add_metric((PROTOCOL,), value)
    return made


def delivered(tallies: dict[str, Tally]) -> Families:
    """Return metrics of messages from queues, including deleted queues.

    Args:
        tallies: counts of all queues, by kind of queue.
    """
    found: dict[str, CounterMetricFamily] = {}
    for name in ("delivered", *DELIVERED):
        help_text, labels = f"messages {name.replace('_', ' ')}", ("protocol", "queue_type")
        found[name] = CounterMetricFamily(f"rabbitmq_global_messages_{name}", help_text, labels=labels)
    for kind in DECLARABLE_TYPES:
        tally, key = tallies.get(kind, Tally()), (PROTOCOL, _queue_type(kind))
        found["delivered"].add_metric(key, tally.deliver + tally.deliver_no_ack + tally.get + tally.get_no_ack)
        for name, of in DELIVERED.items():
            found[name].add_metric(key, getattr(tally, of))
    return found.values()


def dead(request: Request) -> Families:
    """Return the metrics of dead-lettered and discarded messages."""
    states, deaths = requested.node_figures(request).states(), Counter[tuple[str, str, str]]()
    for state in states:
        deaths.update(dict(state.deaths))
    labels = ("queue_type", "dead_letter_strategy")
    arrived = CounterMetricFamily(
        "rabbitmq_global_messages_dead_lettered_confirmed", "dead-lettered messages that reached queues", labels=labels
    )
    arrived.add_metric((_queue_type("quorum"), "at_least_once"), sum(state.dead_letters for state in states))
    yield arrived
    for reason, kinds in DEATHS.items():
        name, about = f"rabbitmq_global_messages_dead_lettered_{reason}", f"messages dead-lettered: {reason}"
        family = CounterMetricFamily(name, about, labels=labels)
        for kind, strategies in kinds.items():
            for strategy in strategies:
                family.add_metric((_queue_type(kind), strategy), deaths[kind, reason, strategy])
        yield family


def _queue_type(kind: str) -> str:
    return f"rabbit_{kind}_queue"


def vhosts(request: Request) -> Families:
    """Return the status of virtual hosts; all are running."""
    family = GaugeMetricFamily("rabbitmq_cluster_vhost_status", "1 for a running virtual host", labels=("vhost",))
    for name in requested.broker(request).topology.vhosts:
        family.add_metric((name,), 1)
    return (family,)


def exchange_names(request: Request) -> Families:
    """Return the names of exchanges."""
    return (_of_exchanges(request, "exchange_name", "An exchange", lambda exchange: 1),)


def exchange_bindings(request: Request) -> Families:
    """Return the numbers of bindings, by exchange."""
    return (_of_exchanges(request, "exchange_bindings", "Bindings", lambda exchange: len(exchange.bindings)),)


def _of_exchanges(request: Request, name: str, about: str, value: Callable[[Exchange], int]) -> Metric:
    """Return a family with a value per exchange, without the default exchange and internal exchanges."""
    family = GaugeMetricFamily(f"rabbitmq_cluster_{name}", about, labels=("vhost", "exchange", "type"))
    for host in requested.broker(request).topology.vhosts.values():
        for exchange in host.exchanges.values():
            if exchange.name and not exchange.internal:
                family.add_metric((exchange.vhost, exchange.name, exchange.type), value(exchange))
    return family
