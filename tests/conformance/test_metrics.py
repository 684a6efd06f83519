"""The families of ``/metrics/detailed`` have RabbitMQ's metrics, with named exceptions."""

from collections.abc import Iterator

import pika
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from jumpmq.testing import HOST, BrokerProcess, JumpMQ, RabbitMQ, free_ports

FAMILIES = {
    "connection_churn_metrics": set(),
    "node_coarse_metrics": {
        *("erlang_processes_used", "erlang_gc_runs", "erlang_gc_reclaimed_bytes", "erlang_scheduler_context_switches"),
    },
    "node_metrics": {"erlang_processes_limit", "erlang_scheduler_run_queue", "erlang_net_ticktime_seconds"},
    "auth_attempt_metrics": set(),
    "queue_coarse_metrics": {"queue_process_reductions"},
    "queue_consumer_count": set(),
    "queue_metrics": {"queue_disk_reads", "queue_disk_writes", "queue_head_message_timestamp"},
    "channel_metrics": set(),
    "channel_exchange_metrics": set(),
    "channel_queue_metrics": set(),
    "channel_queue_exchange_metrics": set(),
    "connection_coarse_metrics": {"connection_process_reductions"},
    "connection_metrics": {"connection_incoming_packets", "connection_outgoing_packets"},
    "vhost_status": set(),
    "exchange_bindings": set(),
    "exchange_names": set(),
}
"""Metrics of RabbitMQ only: figures of Erlang, and counts specific to a process per queue."""

LABELS = {
    "channel_exchange_metrics": {"vhost", "exchange"},
    "channel_queue_metrics": {"vhost", "queue"},
    "channel_queue_exchange_metrics": {"channel", "exchange", "exchange_vhost"},
    "connection_coarse_metrics": {"channel"},
    "connection_metrics": {"channel"},
}
"""Labels of RabbitMQ only: JumpMQ counts a channel as a whole, and names a connection differently."""

pytestmark = pytest.mark.reference

KINDS = {"gauge", "untyped", "unknown"}


class Measured(RabbitMQ):
    plugins = (*RabbitMQ.plugins, "rabbitmq_prometheus")


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, str]]:
    """Metrics endpoints of both brokers, after operations of every kind."""
    if not RabbitMQ.available():
        pytest.skip(RabbitMQ.available().reason)
    (port,) = free_ports(1)
    settings = [f"prometheus.tcp.port = {port}", "collect_statistics_interval = 500"]
    with Measured(settings=settings) as theirs, JumpMQ() as ours:
        connections = [work(broker) for broker in (theirs, ours)]
        yield {
            "RabbitMQ": f"http://{HOST}:{port}/metrics",
            "JumpMQ": f"http://guest:guest@{HOST}:{ours.http_port}/metrics",
        }
        for connection in connections:
            connection.close()


def work(broker: BrokerProcess) -> pika.BlockingConnection:
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port))
    channel = connection.channel()
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "e")
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("e", "", b"x", pika.BasicProperties(delivery_mode=2))
    channel.basic_publish("e", "", b"x")
    channel.basic_get("q")
    channel.basic_get("q", auto_ack=True)
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("q", lambda *_: None)
    connection.process_data_events(1)
    return connection


def shown(address: str, family: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of the metrics of a family, at least one."""
    answer = requests.get(f"{address}/detailed", params={"family": family}, timeout=30)
    assert answer.status_code == 200, answer.text
    return {
        one.name.removeprefix("rabbitmq_"): (
            "gauge" if one.type in KINDS else one.type,
            frozenset().union(*(sample.labels for sample in one.samples)),
        )
        for one in text_string_to_metric_families(answer.text)
        if one.name.startswith(("rabbitmq_detailed_", "rabbitmq_cluster_")) and one.samples
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_rabbitmqs_metrics(endpoints: dict[str, str], family: str) -> None:
    theirs, ours = (shown(endpoints[name], family) for name in ("RabbitMQ", "JumpMQ"))
    lacking = {name.removeprefix("detailed_") for name in theirs.keys() - ours.keys()}
    assert lacking <= FAMILIES[family]
    assert ours.keys() <= theirs.keys()
    for name, (kind, labels) in ours.items():
        assert kind == theirs[name][0], name
        assert theirs[name][1] - labels == LABELS.get(family, set()), name


def test_the_totals_are_rabbitmqs(endpoints: dict[str, str]) -> None:
    """Totals under RabbitMQ's names have RabbitMQ's labels."""
    found = []
    for name in ("RabbitMQ", "JumpMQ"):
        text = requests.get(endpoints[name], timeout=30).text
        families = [one for one in text_string_to_metric_families(text) if one.name.startswith("rabbitmq_global_")]
        found.append({one.name: {frozenset(sample.labels.items()) for sample in one.samples} for one in families})
    theirs, ours = found
    assert {name for name in theirs.keys() - ours.keys() if "stream" not in name} == set()
    for name, labels in ours.items():
        assert {one for one in theirs[name] if "stream" not in str(one)} <= labels | theirs[name], name
        assert labels <= theirs[name], name
