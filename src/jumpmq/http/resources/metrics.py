"""Prometheus metrics: RabbitMQ's names where the meaning is the same, ``jumpmq_`` for what only JumpMQ has.

``/metrics`` has totals, and the balance of each hash ring; ``/metrics/per-object`` has every queue beside. The figures
are collected in small steps and written out in a thread, so that deliveries go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import metric_families
from jumpmq.queues import Queue
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.exchanges.consistent_hash import label

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AT_ONCE = 500
"""Queues that are looked at before others are served."""


async def metrics(request: Request) -> Response:
    """``GET /metrics``: totals of the broker, and the balance of its hash rings, for Prometheus."""
    return await _answer(await _totals(request))


async def metrics_per_object(request: Request) -> Response:
    """``GET /metrics/per-object``: the same, and the messages of each queue."""
    return await _answer([*await _totals(request), *await _queues(request)])


async def metrics_detailed(request: Request) -> Response:
    """``GET /metrics/detailed?family=NAME&vhost=NAME``: these families for each object, of these virtual hosts or all.

    Families are ``connection_churn_metrics``, ``node_coarse_metrics``, ``node_metrics``, ``auth_attempt_metrics``,
    ``queue_coarse_metrics``, ``queue_consumer_count``, ``queue_metrics``, ``connection_coarse_metrics``,
    ``connection_metrics`` and ``channel_metrics``; others have nothing here.
    """
    wanted, vhosts = request.query_params.getlist("family"), request.query_params.getlist("vhost")
    found: dict[str, Metric] = {one.name: one for one in metric_families.identity(request)}
    for family in [name for name in metric_families.DETAILED if name in wanted]:
        found |= {one.name: one for one in metric_families.DETAILED[family](request, "rabbitmq_detailed_", vhosts)}
        await asyncio.sleep(0)
    return await _answer(found.values())


async def _answer(families: Iterable[Metric]) -> Response:
    found = list(families)
    text = await asyncio.to_thread(lambda: generate_latest(_registry(found)))
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


def _registry(families: list[Metric]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    return registry


class _Collected:
    """Families that are collected already, as the registry wants them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _totals(request: Request) -> list[Metric]:
    broker = requested.broker(request)
    queues = _all_queues(request)
    sums = [0, 0, 0, 0, 0, 0]
    for number, queue in enumerate(queues):
        figures = (queue.ready_count, queue.unacknowledged_count, len(queue.consumers))
        counts = (queue.published, queue.delivered, queue.acknowledged)
        sums = [total + figure for total, figure in zip(sums, figures + counts, strict=True)]
        if not (number + 1) % AT_ONCE:
            await asyncio.sleep(0)
    ready, unacknowledged, consumers, published, delivered, acknowledged = sums
    channels = sum([len(connection.channels) for connection in broker.connections])
    prefix = "rabbitmq_"
    return [
        *metric_families.identity(request),
        *metric_families.churn(request, prefix, []),
        *metric_families.node_used(request, prefix, []),
        *metric_families.node_limits(request, prefix, []),
        *metric_families.logins(request, prefix, []),
        *metric_families.messages(request),
        GaugeMetricFamily("rabbitmq_connections", "Open connections", len(broker.connections)),
        GaugeMetricFamily("rabbitmq_channels", "Open channels", channels),
        GaugeMetricFamily("rabbitmq_consumers", "Consumers", consumers),
        GaugeMetricFamily("rabbitmq_queues", "Queues", len(queues)),
        GaugeMetricFamily("rabbitmq_queue_messages_ready", "Messages waiting for a consumer", ready),
        GaugeMetricFamily("rabbitmq_queue_messages_unacked", "Messages delivered, not acknowledged", unacknowledged),
        GaugeMetricFamily("rabbitmq_queue_messages", "Ready and unacknowledged messages", ready + unacknowledged),
        CounterMetricFamily("rabbitmq_queue_messages_published_total", "Messages that queues received", published),
        CounterMetricFamily("jumpmq_queue_messages_delivered_total", "Messages that queues delivered", delivered),
        CounterMetricFamily("jumpmq_queue_messages_acknowledged_total", "Messages acknowledged", acknowledged),
        *_alarms(request),
        *_rings(request),
    ]


def _alarms(request: Request) -> list[Metric]:
    """What is held for messages, and whether publishers are blocked."""
    broker = requested.broker(request)
    alarms, account = broker.alarms, broker.memory
    held = GaugeMetricFamily("jumpmq_memory_bytes", "Memory held for messages", labels=("held_for",))
    for kind, octets in account.by_kind.items():
        held.add_metric((kind,), octets)
    memory, disk = "rabbitmq_alarms_memory_used_watermark", "rabbitmq_alarms_free_disk_space_watermark"
    return [
        held,
        GaugeMetricFamily(memory, "1 while publishers are blocked for want of memory", alarms.memory),
        GaugeMetricFamily(disk, "1 while publishers are blocked for want of disk space", alarms.disk),
    ]


def _rings(request: Request) -> list[Metric]:
    """How the messages of each hash ring's queues compare with their weights.

    A queue's messages are all that it received since the broker started, by whatever way: what is bound to one ring
    only shows the ring's balance.
    """
    labels = ("vhost", "exchange", "destination")
    weight = GaugeMetricFamily("jumpmq_ring_buckets", "Buckets of a destination: its weight", labels=labels)
    received = CounterMetricFamily("jumpmq_ring_messages_total", "Messages that a ring's queue received", labels=labels)
    density = GaugeMetricFamily("jumpmq_ring_messages_per_bucket", "Messages received by weight", labels=labels)
    balance = GaugeMetricFamily(
        "jumpmq_ring_share_ratio", "Share of messages divided by share of weight: 1 is even", labels=labels
    )
    missing = CounterMetricFamily(
        "jumpmq_ring_missing_total", "Messages without the header or property that is hashed", labels=labels[:2]
    )
    for exchange in _hash_exchanges(request):
        missing.add_metric((exchange.vhost, exchange.name), exchange.missing_count)
        weights = exchange.ring.destinations
        bound = [one for one in dict.fromkeys(exchange.bindings.values()) if isinstance(one, Queue)]
        counts = {label(queue): queue.published for queue in bound}
        of_all = sum([weights[name] for name in counts])
        for name, count in counts.items():
            key = (exchange.vhost, exchange.name, name)
            weight.add_metric(key, weights[name])
            received.add_metric(key, count)
            density.add_metric(key, count / weights[name])
            if total := sum(counts.values()):
                balance.add_metric(key, (count / total) / (weights[name] / of_all))
    return [weight, received, density, balance, missing]


async def _queues(request: Request) -> list[Metric]:
    labels = ("vhost", "queue")
    ready = GaugeMetricFamily("rabbitmq_detailed_queue_messages_ready", "Messages waiting", labels=labels)
    unacknowledged = GaugeMetricFamily("rabbitmq_detailed_queue_messages_unacked", "Messages delivered", labels=labels)
    consumers = GaugeMetricFamily("rabbitmq_detailed_queue_consumers", "Consumers", labels=labels)
    published = CounterMetricFamily(
        "rabbitmq_detailed_queue_messages_published_total", "Messages received", labels=labels
    )
    for number, queue in enumerate(_all_queues(request)):
        key = (queue.vhost, queue.name)
        ready.add_metric(key, queue.ready_count)
        unacknowledged.add_metric(key, queue.unacknowledged_count)
        consumers.add_metric(key, len(queue.consumers))
        published.add_metric(key, queue.published)
        if not (number + 1) % AT_ONCE:
            await asyncio.sleep(0)
    return [ready, unacknowledged, consumers, published]


def _all_queues(request: Request) -> list[Queue]:
    return [queue for host in requested.broker(request).topology.vhosts.values() for queue in host.queues.values()]


def _hash_exchanges(request: Request) -> list[ConsistentHashExchange]:
    hosts = requested.broker(request).topology.vhosts.values()
    found = [exchange for host in hosts for exchange in host.exchanges.values()]
    return [exchange for exchange in found if isinstance(exchange, ConsistentHashExchange)]


ROUTES = [
    Endpoint("GET", "/metrics", metrics, access=Access.MONITORING),
    Endpoint("GET", "/metrics/detailed", metrics_detailed, access=Access.MONITORING),
    Endpoint("GET", "/metrics/per-object", metrics_per_object, access=Access.MONITORING),
]
