"""RabbitMQ's dashboard "RabbitMQ-Overview": Prometheus scrapes JumpMQ and evaluates the queries of its panels.

The table has the query of every panel of the dashboard for RabbitMQ 3.10; further tables have the differing queries for
3.13 and 4.3. ``@NAME`` stands for a metric, and ``~NAME`` for its rate, joined with the node's identity as in the
dashboard.
"""

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from prometheus_client.parser import text_string_to_metric_families
from tests.http.api import API

from jumpmq import RunningBroker

PANELS = {
    "Ready messages": "sum(@queue_messages_ready)",
    "Unacknowledged messages": "sum(@queue_messages_unacked)",
    "Incoming messages / s": "sum(~global_messages_received)",
    "Outgoing messages / s": "sum(~global_messages_redelivered) + sum(~global_messages_delivered_consume_auto_ack)"
    " + sum(~global_messages_delivered_consume_manual_ack) + sum(~global_messages_delivered_get_auto_ack)"
    " + sum(~global_messages_delivered_get_manual_ack)",
    "Publishers": "sum(@channels) - sum(@channel_consumers)",
    "Consumers": "sum(@consumers)",
    "Connections": "sum(@connections)",
    "Queues": "sum(@queues)",
    "Channels": "sum(@channels)",
    "Nodes": "sum(@build_info)",
    "Versions": "@build_info",
    "Memory available before publishers blocked": "(@resident_memory_limit_bytes) - (@process_resident_memory_bytes)",
    "Disk space available before publishers blocked": "@disk_space_available_bytes",
    "File descriptors available": "(@process_max_fds) - (@process_open_fds)",
    "TCP sockets available": "(@process_max_tcp_sockets) - (@process_open_tcp_sockets)",
    "Messages ready to be delivered to consumers": "sum(@queue_messages_ready) by(rabbitmq_node)",
    "Messages pending consumer acknowledgement": "sum(@queue_messages_unacked) by(rabbitmq_node)",
    "Messages published / s": "sum(~global_messages_received) by(rabbitmq_node)",
    "Messages confirmed to publishers / s": "sum(~global_messages_confirmed) by(rabbitmq_node)",
    "Messages routed to queues / s": "sum(~global_messages_routed) by(rabbitmq_node)",
    "Messages unconfirmed to publishers / s": "sum(~global_messages_received_confirm - ~global_messages_confirmed)"
    " by(rabbitmq_node)",
    "Unroutable messages dropped / s": "sum(~global_messages_unroutable_dropped) by(rabbitmq_node)",
    "Unroutable messages returned to publishers / s": "sum(~global_messages_unroutable_returned) by(rabbitmq_node)",
    "Messages delivered / s": "sum((~global_messages_delivered_consume_auto_ack) +"
    " (~global_messages_delivered_consume_manual_ack)) by(rabbitmq_node)",
    "Messages redelivered / s": "sum(~global_messages_redelivered) by(rabbitmq_node)",
    "Messages delivered with manual ack / s": "sum(~global_messages_delivered_consume_manual_ack) by(rabbitmq_node)",
    "Messages delivered auto ack / s": "sum(~global_messages_delivered_consume_auto_ack) by(rabbitmq_node)",
    "Messages acknowledged / s": "sum(~global_messages_acknowledged) by(rabbitmq_node)",
    "Polling operations with auto ack / s": "sum(~global_messages_delivered_get_auto_ack) by(rabbitmq_node)",
    "Polling operations that yield no result / s": "sum(~global_messages_get_empty) by(rabbitmq_node)",
    "Polling operations with manual ack / s": "sum(~global_messages_delivered_get_manual_ack) by(rabbitmq_node)",
    "Total queues": "@queues",
    "Queues declared / s": "sum(~queues_declared) by(rabbitmq_node)",
    "Queues created / s": "sum(~queues_created) by(rabbitmq_node)",
    "Queues deleted / s": "sum(~queues_deleted) by(rabbitmq_node)",
    "Total channels": "@channels",
    "Channels opened / s": "sum(~channels_opened) by(rabbitmq_node)",
    "Channels closed / s": "sum(~channels_closed) by(rabbitmq_node)",
    "Total connections": "@connections",
    "Connections opened / s": "sum(~connections_opened) by(rabbitmq_node)",
    "Connections closed / s": "sum(~connections_closed) by(rabbitmq_node)",
}
IN_3_13 = {"Publishers": "sum(@global_publishers)"}
IN_4_3 = IN_3_13 | {
    "Incoming messages / s": "sum(i~global_messages_received)",
    "Outgoing messages / s": "sum(i~global_messages_delivered)",
    "Consumers": "sum(@global_consumers)",
    "Nodes": "count(IDENTITY)",
    "Versions": "rabbitmq_erlang_uptime_seconds"
    " * on(instance, job) group_left(rabbitmq_version, erlang_version) @build_info",
    "Disk space available before publishers blocked": "(rabbitmq_disk_space_available_bytes"
    " - rabbitmq_disk_space_available_limit_bytes)JOINED",
    "File descriptors available": "(rabbitmq_process_max_fds - rabbitmq_process_open_fds)JOINED",
    "Avg Size": "sum(increase(rabbitmq_message_size_bytes_sum[60s])JOINED)"
    " / sum(increase(rabbitmq_message_size_bytes_count[60s])JOINED)",
    "Message Size Distribution": 'sum(increase(rabbitmq_message_size_bytes_bucket{le="100.0"}[60s])JOINED)'
    ' / sum(increase(rabbitmq_message_size_bytes_bucket{le="+Inf"}[60s])JOINED)',
}
WITHOUT_DATA = {"Avg Size", "Message Size Distribution"}
"""JumpMQ does not measure the size of every message."""


def rendered(expression: str, joined_on: str, chosen: str) -> str:
    """The Prometheus query of a panel."""
    identity = f"rabbitmq_identity_info{{{chosen}}}"
    joined = f" * on({joined_on}) group_left(rabbitmq_cluster, rabbitmq_node) {identity}"
    if not expression.endswith(("by(rabbitmq_node)", "JOINED")) and expression.startswith("sum"):
        joined = joined.replace(", rabbitmq_node", "")
    expression = re.sub(r"@(\w+)", rf"rabbitmq_\1{joined}", expression)
    expression = re.sub(r"~(\w+)", rf"rate(rabbitmq_\1_total[60s]){joined}", expression)
    return expression.replace("JOINED", joined).replace("IDENTITY", identity)


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by metric name and sorted labels."""


def samples(api: API, path: str = "metrics", **query: Any) -> Samples:
    answer = api.session.get(f"{api.address}/{path}", params=query, timeout=30)
    assert answer.status_code == 200, answer.text
    families = text_string_to_metric_families(answer.text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def sums(found: Samples) -> dict[str, float]:
    totals: dict[str, float] = {}
    for (name, _), value in found.items():
        totals[name] = totals.get(name, 0) + value
    return totals


@pytest.fixture
def traffic(channel: BlockingChannel) -> BlockingChannel:
    """Operations of all kinds; the channel stays open."""
    channel.queue_declare("q")
    channel.queue_declare("gone")
    channel.basic_publish("", "gone", b"got, and then the queue goes")
    channel.basic_get("gone", auto_ack=True)
    channel.queue_delete("gone")
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "q", b"x")
    channel.basic_publish("", "nowhere", b"dropped")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"returned", mandatory=True)
    channel.basic_nack(channel.basic_get("q")[0].delivery_tag)
    channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    channel.basic_get("q", auto_ack=True)
    channel.basic_get(channel.queue_declare("", exclusive=True).method.queue)
    for _ in zip(range(1), channel.consume("q", auto_ack=True), strict=False):
        pass
    channel.cancel()
    return channel


@pytest.fixture
def prometheus(broker: RunningBroker, tmp_path: Path) -> Iterator[str]:
    """Address of a Prometheus that has scraped the broker several times, every second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (apt-get install prometheus)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = tmp_path / "prometheus.yaml"
    config.write_text(
        f"""
scrape_configs:
  - job_name: jumpmq
    scrape_interval: 1s
    basic_auth: {{username: guest, password: guest}}
    static_configs: [{{targets: ["127.0.0.1:{broker.http_port}"]}}]
"""
    )
    options = {"config.file": config, "storage.tsdb.path": tmp_path / "tsdb", "web.listen-address": address}
    command = [program, *(f"--{name}={value}" for name, value in options.items()), "--log.level=error"]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        try:
            until(lambda: ask(address, "count_over_time(rabbitmq_build_info[60s]) >= 3"))
            yield address
        finally:
            process.kill()


def until(found: Callable[[], object], seconds: int = 30) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.1)


def ask(address: str, expression: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of every series of an expression."""
    with contextlib.suppress(requests.ConnectionError):
        answer = requests.get(f"http://{address}/api/v1/query", params={"query": expression}, timeout=30)
        if answer.status_code != 503:  # not ready yet
            assert answer.status_code == 200, (expression, answer.text)
            return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]
    return []


@pytest.mark.slow
def test_every_panel_has_data(broker: RunningBroker, traffic: BlockingChannel, prometheus: str) -> None:
    cluster = f'rabbitmq_cluster="{broker.node}", namespace=""'
    missing = {
        (version, panel)
        for version, panels, joined_on, chosen in (
            ("3.10", PANELS, "instance", cluster),
            ("3.13", PANELS | IN_3_13, "instance, job", cluster),
            ("4.3", PANELS | IN_4_3, "instance, job", f'{cluster}, rabbitmq_endpoint="aggregated"'),
        )
        for panel, expression in panels.items()
        if not ask(prometheus, rendered(expression, joined_on, chosen))
    }
    assert missing == {("4.3", panel) for panel in WITHOUT_DATA}


@pytest.mark.slow
def test_panels_show_what_there_is(broker: RunningBroker, traffic: BlockingChannel, prometheus: str) -> None:
    def shown(panel: str) -> float:
        ((_, value),) = ask(prometheus, rendered(PANELS[panel], "instance", f'rabbitmq_cluster="{broker.node}"'))
        return value

    traffic.basic_publish("", "q", b"one more")
    until(lambda: shown("Ready messages") == 1)
    until(lambda: shown("Incoming messages / s") > 0)
    assert (shown("Queues"), shown("Connections"), shown("Nodes")) == (2, 1, 1)
    ((labels, _),) = ask(prometheus, rendered(PANELS["Versions"], "instance", ""))
    assert (labels["product_name"], labels["rabbitmq_node"]) == ("JumpMQ", broker.node)


def test_messages_are_counted_as_they_went(api: API, traffic: BlockingChannel) -> None:
    total = {name.removeprefix("rabbitmq_"): value for name, value in sums(samples(api)).items()}
    assert total["global_messages_received_total"] == 8
    assert total["global_messages_routed_total"] == 6
    assert total["global_messages_confirmed_total"] == 7
    assert total["global_messages_unroutable_dropped_total"] == 1
    assert total["global_messages_unroutable_returned_total"] == 1
    assert total["global_messages_delivered_get_manual_ack_total"] == 2
    assert total["global_messages_delivered_get_auto_ack_total"] == 2, "that of a queue that is gone among them"
    assert total["global_messages_get_empty_total"] == 1
    assert total["global_messages_redelivered_total"] == 1
    assert total["global_messages_acknowledged_total"] == 1
    assert total["queues_created_total"] == total["queues_declared_total"] == 3
    assert (total["queues_deleted_total"], total["connections_opened_total"]) == (1, 1)
    assert total["channels_opened_total"] == 1


def test_counters_outlive_a_virtual_host(api: API, broker: RunningBroker) -> None:
    api.request("PUT", "vhosts", "passing")
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.virtual_host = "passing"
    with contextlib.suppress(pika.exceptions.AMQPError), contextlib.closing(pika.BlockingConnection(parameters)) as one:
        channel = one.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"x")
        channel.basic_get("q", auto_ack=True)
        before = sums(samples(api))
        api.request("DELETE", "vhosts", "passing")
    until(lambda: sums(samples(api))["rabbitmq_connections_closed_total"] == 1)
    after = sums(samples(api))
    assert before["rabbitmq_global_messages_received_total"] == 1
    for name in ("received", "confirmed", "routed", "delivered", "delivered_get_auto_ack"):
        counter = f"rabbitmq_global_messages_{name}_total"
        assert after[counter] == before[counter], name


def test_what_queues_deliver_is_told_apart_by_their_kind(api: API, channel: BlockingChannel) -> None:
    arguments = {kind: {"x-queue-type": kind} for kind in ("classic", "quorum", "stream")}
    for kind, given in arguments.items():
        channel.queue_declare(kind, durable=True, arguments=given)
    channel.confirm_delivery()
    channel.basic_publish("", "classic", b"x")
    channel.basic_publish("", "quorum", b"x")
    channel.basic_get("classic", auto_ack=True)
    channel.basic_get("quorum")
    by_kind = {
        dict(labels)["queue_type"]: value
        for (name, labels), value in samples(api).items()
        if name == "rabbitmq_global_messages_delivered_total"
    }
    assert by_kind == {"rabbit_classic_queue": 1, "rabbit_quorum_queue": 1, "rabbit_stream_queue": 0}


def test_dead_letters_are_told_apart_by_reason_and_strategy(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("lost", arguments={"x-max-length": 1})
    channel.queue_declare("kept", arguments={"x-max-length": 1, "x-dead-letter-exchange": ""})
    channel.confirm_delivery()
    for queue in ("lost", "lost", "lost", "kept", "kept"):
        channel.basic_publish("", queue, b"x")
    found = samples(api)

    def dead(reason: str, strategy: str) -> float:
        labels = {"queue_type": "rabbit_classic_queue", "dead_letter_strategy": strategy}
        return found[f"rabbitmq_global_messages_dead_lettered_{reason}_total", tuple(sorted(labels.items()))]

    assert (dead("maxlen", "disabled"), dead("maxlen", "at_most_once"), dead("expired", "disabled")) == (2, 1, 0)


def test_details_are_of_the_families_and_virtual_hosts_that_are_asked_for(api: API, traffic: BlockingChannel) -> None:
    found = samples(api, "metrics/detailed", family=["queue_coarse_metrics", "queue_consumer_count"], vhost="/")
    assert ("rabbitmq_detailed_queue_messages_ready", (("queue", "q"), ("vhost", "/"))) in found
    assert {name for name, _ in found if name.startswith("rabbitmq_detailed")} == {
        f"rabbitmq_detailed_queue_{one}" for one in ("messages_ready", "messages_unacked", "messages", "consumers")
    }
    assert not sums(samples(api, "metrics/detailed", family="queue_coarse_metrics", vhost="other")).keys() - {
        "rabbitmq_build_info", "rabbitmq_identity_info",
    }  # fmt: skip


def test_each_object_is_shown_under_the_names_of_the_totals(api: API, traffic: BlockingChannel) -> None:
    of_each, of_all = samples(api, "metrics/per-object"), sums(samples(api))
    assert of_each["rabbitmq_queue_messages_ready", (("queue", "q"), ("vhost", "/"))] == 0
    totals = sums(of_each)
    for name in ("queue_messages_ready", "queue_consumers", "channel_consumers", "connection_channels"):
        assert totals[f"rabbitmq_{name}"] == of_all[f"rabbitmq_{name}"], name
