"""Prometheus metrics: RabbitMQ's names where the meaning is the same, ``jumpmq_`` for what only JumpMQ has.

``/metrics`` has totals, and the balance of each hash ring; ``/metrics/per-object`` has those of queues, channels and
connections one by one; ``/metrics/detailed`` the families that one asks for. They are collected in small steps and
written out in a thread, so that deliveries go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import metric_families, object_families
from jumpmq.queues import Queue
from jumpmq.topology import ConsistentHashExchange
from jumpmq.topology.exchanges.consistent_hash import label
from jumpmq.topology.tally import Past, Tally

PREFIX, DETAILED_PREFIX = "rabbitmq_", "rabbitmq_detailed_"

OF_NODE: dict[str, Callable[[Request, str], Iterable[Metric]]] = {
    "connection_churn_metrics": metric_families.churn,
    "node_coarse_metrics": metric_families.node_used,
    "node_metrics": metric_families.node_limits,
    "auth_attempt_metrics": metric_families.logins,
}
OF_CLUSTER: dict[str, Callable[[Request], Iterable[Metric]]] = {
    "vhost_status": metric_families.vhosts,
    "exchange_bindings": metric_families.exchange_bindings,
    "exchange_names": metric_families.exchange_names,
}
"""Families by RabbitMQ's names of them; the second are shown where they are asked for, and nowhere else."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AT_ONCE = 500
"""Queues that are looked at before others are served."""

LINES_AT_ONCE = 2000
"""That are written out at once."""

NO_TEXTS: Mapping[str, list[str]] = MappingProxyType({})


async def metrics(request: Request) -> Response:
    """``GET /metrics``: totals of the broker, and the balance of its hash rings, for Prometheus."""
    found = _of_all(request, "aggregated")
    found += metric_families.delivered(await _by_kind(request))
    for family in object_families.FAMILIES.values():
        found += await object_families.summed(request, family, PREFIX)
    routed = request.app.state.rates.tally().routed
    found.append(CounterMetricFamily("rabbitmq_queue_messages_published", "Messages that queues received", routed))
    return await _answer(found)


async def metrics_per_object(request: Request) -> Response:
    """``GET /metrics/per-object``: as ``/metrics``, but queues, channels and connections each by itself."""
    found = [one for one in _of_all(request, "per-object") if not one.name.startswith("rabbitmq_channel_")]
    found += metric_families.delivered(await _by_kind(request))
    texts: dict[str, list[str]] = {}
    for family in object_families.FAMILIES.values():
        texts |= await object_families.each(request, family, PREFIX, [])
    return await _answer(found, texts)


async def metrics_detailed(request: Request) -> Response:
    """``GET /metrics/detailed?family=NAME&vhost=NAME``: these families for each object, of these virtual hosts or all.

    Families are ``connection_churn_metrics``, ``node_coarse_metrics``, ``node_metrics``, ``auth_attempt_metrics``,
    ``queue_coarse_metrics``, ``queue_consumer_count``, ``queue_metrics``, ``channel_queue_exchange_metrics``,
    ``connection_coarse_metrics``, ``connection_metrics``, ``channel_metrics``, ``channel_exchange_metrics``,
    ``channel_queue_metrics``, ``vhost_status``, ``exchange_bindings`` and ``exchange_names``; others have nothing here.
    """
    wanted, vhosts = request.query_params.getlist("family"), request.query_params.getlist("vhost")
    found = list(metric_families.identity(request, "detailed"))
    for name, family in OF_NODE.items():
        found += family(request, DETAILED_PREFIX) if name in wanted else ()
    for name, of_cluster in OF_CLUSTER.items():
        found += of_cluster(request) if name in wanted else ()
    texts: dict[str, list[str]] = {}
    for name, of_objects in object_families.FAMILIES.items():
        if name in wanted:
            texts |= await object_families.each(request, of_objects, DETAILED_PREFIX, vhosts)
    return await _answer(found, texts)


async def _answer(families: Iterable[Metric], texts: Mapping[str, list[str]] = NO_TEXTS) -> Response:
    """Answer with families, and with such as are written already."""
    found = list({one.name: one for one in families}.values())
    text = await asyncio.to_thread(lambda: generate_latest(_registry(found)))
    return StreamingResponse(_parts(text, texts.values()), headers={"Content-Type": CONTENT_TYPE})


async def _parts(text: bytes, texts: Iterable[list[str]]) -> AsyncIterator[bytes]:
    yield text
    for lines in texts:
        for start in range(0, len(lines), LINES_AT_ONCE):
            yield "".join(lines[start : start + LINES_AT_ONCE]).encode()
            await asyncio.sleep(0)


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


def _of_all(request: Request, endpoint: str) -> list[Metric]:
    """What is told of the broker as a whole."""
    broker = requested.broker(request)
    hosts = broker.topology.vhosts.values()
    channels = [channel for connection in broker.connections for channel in connection.channels.values()]
    return [
        *metric_families.identity(request, endpoint),
        *(one for family in OF_NODE.values() for one in family(request, PREFIX)),
        *metric_families.published(request),
        *metric_families.dead(request),
        GaugeMetricFamily("rabbitmq_connections", "Open connections", len(broker.connections)),
        GaugeMetricFamily("rabbitmq_channels", "Open channels", len(channels)),
        GaugeMetricFamily("rabbitmq_consumers", "Consumers", sum([len(one.consumers) for one in channels])),
        GaugeMetricFamily("rabbitmq_queues", "Queues", sum([len(host.queues) for host in hosts])),
        *_alarms(request),
        *_rings(request),
    ]


async def _by_kind(request: Request) -> dict[str, Tally]:
    """What queues of each kind have counted, those that are gone among them."""
    topology = requested.broker(request).topology
    past = Past()
    for gone in (topology.past, *(host.past for host in topology.vhosts.values())):
        past.add(gone)
    for number, queue in enumerate(_all_queues(request)):
        past.add_queue(queue)
        if not (number + 1) % AT_ONCE:
            await asyncio.sleep(0)
    return past.queues


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
                balance.add_metric(key, round((count / total) / (weights[name] / of_all), 6))
    return [weight, received, density, balance, missing]


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
