"""Prometheus metrics: RabbitMQ's names for equal meanings, the prefix ``jumpmq_`` for JumpMQ's own.

``/metrics`` has totals, the balance of each hash ring, consumer groups, and the lag of reader groups.
``/metrics/per-object`` has the metrics of each queue, channel and connection. ``/metrics/detailed`` has the requested
families. Metrics are collected in small steps and rendered in a thread, so that deliveries continue in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.broker.figures.values import HomeState, NodeFigures
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import (
    consumer_group_families,
    copy_families,
    fence_families,
    metric_families,
    object_families,
    reader_families,
    ring_families,
)

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
"""Families of ``/metrics/detailed`` with the prefix ``rabbitmq_cluster_``, by RabbitMQ's names."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_AT_ONCE = 1000
"""Number of lines rendered per slice."""


async def metrics(request: Request) -> Response:
    """``GET /metrics``: totals of the broker, of hash rings and of reader groups, for Prometheus."""
    objects = object_families.Objects(request)
    found = await _of_all(request, "aggregated", objects)
    for family in object_families.FAMILIES.values():
        found += await object_families.summed(request, family, PREFIX, objects)
    routed = metric_families.tally(request).routed
    found.append(CounterMetricFamily("rabbitmq_queue_messages_published", "Messages received by queues", routed))
    return await _answer(request, found, await _own(request))


async def metrics_per_object(request: Request) -> Response:
    """``GET /metrics/per-object``: as ``/metrics``, with the metrics of each queue, channel and connection in place of
    sums."""
    objects = object_families.Objects(request)
    of_all = await _of_all(request, "per-object", objects)
    found = [one for one in of_all if not one.name.startswith("rabbitmq_channel_")]
    texts = await _own(request)
    for family in object_families.FAMILIES.values():
        texts |= await object_families.each(request, family, PREFIX, objects)
    return await _answer(request, found, texts)


async def metrics_detailed(request: Request) -> Response:
    """``GET /metrics/detailed?family=NAME&vhost=NAME``: the families per object, restricted to the virtual hosts if
    given.

    Families are ``connection_churn_metrics``, ``node_coarse_metrics``, ``node_metrics``, ``auth_attempt_metrics``,
    ``queue_coarse_metrics``, ``queue_consumer_count``, ``queue_metrics``, ``channel_queue_exchange_metrics``,
    ``connection_coarse_metrics``, ``connection_metrics``, ``channel_metrics``, ``channel_exchange_metrics``,
    ``channel_queue_metrics``, ``vhost_status``, ``exchange_bindings`` and ``exchange_names``; other names are empty.
    """
    wanted = request.query_params.getlist("family")
    objects = object_families.Objects(request, request.query_params.getlist("vhost"))
    found = list(metric_families.identity(request, "detailed"))
    for name, family in OF_NODE.items():
        found += family(request, DETAILED_PREFIX) if name in wanted else ()
    for name, of_cluster in OF_CLUSTER.items():
        found += of_cluster(request) if name in wanted else ()
    texts: dict[str, list[str]] = {}
    for name, of_objects in object_families.FAMILIES.items():
        if name in wanted:
            texts |= await object_families.each(request, of_objects, DETAILED_PREFIX, objects)
    return await _answer(request, found, texts)


async def _answer(request: Request, families: Iterable[Metric], texts: Mapping[str, list[str]]) -> Response:
    """Answer with families, and with already rendered families."""
    found = list({one.name: one for one in families}.values())
    text = await asyncio.to_thread(lambda: generate_latest(_registry(found)))
    slices = requested.broker(request).slices
    return StreamingResponse(_parts(text, texts.values(), slices), headers={"Content-Type": CONTENT_TYPE})


async def _parts(text: bytes, texts: Iterable[list[str]], slices: Slices) -> AsyncIterator[bytes]:
    yield text
    for lines in texts:
        lines.reverse()
        while lines:
            part = lines[-LINES_AT_ONCE:]
            del lines[-LINES_AT_ONCE:]
            yield "".join(reversed(part)).encode()
            del part
            await slices.next()


def _registry(families: list[Metric]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_CollectedFamilies(families))
    return registry


class _CollectedFamilies:
    """Collected families, as a collector for the registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _of_all(request: Request, endpoint: str, objects: object_families.Objects) -> list[Metric]:
    """Return the metrics of the whole broker."""
    broker, figures = requested.broker(request), requested.node_figures(request)
    channels = await objects.of("channel")
    hosts = broker.topology.vhosts.values()
    return [
        *metric_families.identity(request, endpoint),
        *(one for family in OF_NODE.values() for one in family(request, PREFIX)),
        *metric_families.published(metric_families.tally(request), channels),
        *metric_families.dead(request),
        GaugeMetricFamily("rabbitmq_connections", "Open connections", figures.node().connections),
        GaugeMetricFamily("rabbitmq_channels", "Open channels", len(channels)),
        GaugeMetricFamily("rabbitmq_consumers", "Consumers", sum([one.consumers for one in channels])),
        GaugeMetricFamily("rabbitmq_queues", "Queues", sum([len(host.declared) for host in hosts])),
        *_alarms(request),
        *_homes(request),
        *copy_families.copies(request),
        *metric_families.delivered(await figures.by_kind()),
    ]


async def _own(request: Request) -> dict[str, list[str]]:
    """Return JumpMQ's own metrics per object."""
    rings, readers = await ring_families.rings(request), await reader_families.readers(request)
    groups = await consumer_group_families.consumer_groups(request)
    return rings | readers | groups | await fence_families.fences(request)


OF_HOME: dict[str, tuple[str, Callable[[NodeFigures], float]]] = {
    "jumpmq_home_resident_memory_bytes": ("Memory of a home's process", lambda node: node.resident),
    "jumpmq_home_memory_bytes": ("Memory held for messages by a home", lambda node: node.memory),
    "jumpmq_home_memory_limit_bytes": (
        "Memory for messages above which a home blocks publishers",
        lambda node: node.memory_limit,
    ),
    "jumpmq_home_connections": ("AMQP connections of a home", lambda node: node.connections),
    "jumpmq_home_blocked_connections": ("Blocked AMQP connections of a home", lambda node: node.blocked),
    "jumpmq_home_open_fds": ("Open files of a home's process", lambda node: node.files),
    "jumpmq_home_commit_waiting_seconds": (
        "Seconds for which clients of a home have waited for a commit, without any commit",
        lambda node: round(node.commit_waiting, 3),
    ),
}
"""Metrics of each home, if several homes exist: help text, and function for the value."""


def _homes(request: Request) -> list[Metric]:
    """Return the metrics per home; empty with a single home."""
    figures = requested.node_figures(request)
    states = figures.states()
    if len(states) + len(figures.down()) < 2:
        return []
    up = GaugeMetricFamily("jumpmq_home_up", "1 while a home answers", labels=("home",))
    for home, answers in sorted([*((state.home, 1) for state in states), *((home, 0) for home in figures.down())]):
        up.add_metric((str(home),), answers)
    found: list[Metric] = [up]
    for name, (about, read) in OF_HOME.items():
        found.append(family := GaugeMetricFamily(name, about, labels=("home",)))
        for state in states:
            family.add_metric((str(state.home),), read(state.node))
    return [*found, *_outboxes(states), *_moves(states)]


def _outboxes(states: Iterable[HomeState]) -> list[Metric]:
    """Return the metrics of messages that homes keep for other homes until delivery."""
    labels = ("home", "to")
    messages = GaugeMetricFamily("jumpmq_outbox_messages", "Messages on the way to another home", labels=labels)
    octets = GaugeMetricFamily("jumpmq_outbox_bytes", "Octets of messages on the way to another home", labels=labels)
    for state in states:
        for home, count, size in state.outbox:
            messages.add_metric((str(state.home), str(home)), count)
            octets.add_metric((str(state.home), str(home)), size)
    return [messages, octets]


def _moves(states: Iterable[HomeState]) -> list[Metric]:
    """Return the metrics of migrating queues, by home."""
    moving = GaugeMetricFamily("jumpmq_moves", "Queues that move from or to a home", labels=("home",))
    about = "Longest time of a moving queue without progress"
    waiting = GaugeMetricFamily("jumpmq_longest_move_wait_seconds", about, labels=("home",))
    for state in states:
        moving.add_metric((str(state.home),), len(state.moves))
        longest = max((one.seconds for one in state.moves), default=0.0)
        waiting.add_metric((str(state.home),), round(longest, 3))
    return [moving, waiting]


def _alarms(request: Request) -> list[Metric]:
    """Return the metrics of memory held for messages, and of alarms."""
    node = requested.node_figures(request).node()
    held = GaugeMetricFamily("jumpmq_memory_bytes", "Memory held for messages", labels=("held_for",))
    for kind, octets in node.held.items():
        held.add_metric((kind,), octets)
    memory, disk = "rabbitmq_alarms_memory_used_watermark", "rabbitmq_alarms_free_disk_space_watermark"
    return [
        held,
        GaugeMetricFamily(memory, "1 while publishers are blocked because memory is short", node.memory_alarm),
        GaugeMetricFamily(disk, "1 while publishers are blocked because disk space is short", node.disk_alarm),
        GaugeMetricFamily(
            "jumpmq_losses", "Unacknowledged losses of messages or definitions in the data directory", node.losses
        ),
        GaugeMetricFamily(
            "jumpmq_definitions_stand_still",
            "1 while definitions cannot be changed",
            any(state.stall is not None for state in requested.node_figures(request).states()),
        ),
        GaugeMetricFamily(
            "jumpmq_commit_waiting_seconds",
            "Seconds for which clients have waited for a commit, without any commit",
            round(node.commit_waiting, 3),
        ),
    ]


ROUTES = [
    Endpoint("GET", "/metrics", metrics, access=Access.MONITORING),
    Endpoint("GET", "/metrics/detailed", metrics_detailed, access=Access.MONITORING),
    Endpoint("GET", "/metrics/per-object", metrics_per_object, access=Access.MONITORING),
]
