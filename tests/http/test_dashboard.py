"""RabbitMQ's dashboard "RabbitMQ-Overview": each of its panels finds in our metrics what it asks for.

The table is what the panels' expressions name, of the dashboard for RabbitMQ 3.8 (``channel_``) and of later ones
(``global_``). All join ``rabbitmq_identity_info`` by its node and cluster.
"""

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

PANELS = {
    "Ready messages": ["queue_messages_ready"],
    "Unacknowledged messages": ["queue_messages_unacked"],
    "Incoming messages / s": ["channel_messages_published_total", "global_messages_received_total"],
    "Outgoing messages / s": [
        *("channel_messages_redelivered_total", "channel_messages_delivered_total", "channel_get_total"),
        *("channel_messages_delivered_ack_total", "channel_get_ack_total", "global_messages_redelivered_total"),
        *("global_messages_delivered_consume_auto_ack_total", "global_messages_delivered_consume_manual_ack_total"),
        *("global_messages_delivered_get_auto_ack_total", "global_messages_delivered_get_manual_ack_total"),
    ],
    "Publishers": ["channels", "channel_consumers", "global_publishers"],
    "Consumers": ["channel_consumers", "global_consumers"],
    "Connections": ["connections"],
    "Channels": ["channels"],
    "Queues": ["queues"],
    "Nodes": ["build_info"],
    "Memory available before publishers blocked": ["resident_memory_limit_bytes", "process_resident_memory_bytes"],
    "Disk space available before publishers blocked": ["disk_space_available_bytes"],
    "File descriptors available": ["process_max_fds", "process_open_fds"],
    "TCP sockets available": ["process_max_tcp_sockets", "process_open_tcp_sockets"],
    "Messages confirmed to publishers / s": ["channel_messages_confirmed_total", "global_messages_confirmed_total"],
    "Messages routed to queues / s": ["queue_messages_published_total", "global_messages_routed_total"],
    "Unconfirmed messages": ["channel_messages_unconfirmed", "global_messages_received_confirm_total"],
    "Unroutable messages dropped / s": [
        *("channel_messages_unroutable_dropped_total", "global_messages_unroutable_dropped_total"),
    ],
    "Unroutable messages returned / s": [
        *("channel_messages_unroutable_returned_total", "global_messages_unroutable_returned_total"),
    ],
    "Messages acknowledged / s": ["channel_messages_acked_total", "global_messages_acknowledged_total"],
    "Polling operations that yield no result / s": ["channel_get_empty_total", "global_messages_get_empty_total"],
    "Queues declared / s": ["queues_declared_total"],
    "Queues created / s": ["queues_created_total"],
    "Queues deleted / s": ["queues_deleted_total"],
    "Channels opened / s": ["channels_opened_total"],
    "Channels closed / s": ["channels_closed_total"],
    "Connections opened / s": ["connections_opened_total"],
    "Connections closed / s": ["connections_closed_total"],
}


def samples(api, path="metrics", **query):
    answer = api.session.get(f"{api.address}/{path}", params=query, timeout=30)
    assert answer.status_code == 200, answer.text
    families = text_string_to_metric_families(answer.text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def sums(found):
    totals = {}
    for (name, _), value in found.items():
        totals[name] = totals.get(name, 0) + value
    return totals


@pytest.fixture
def traffic(channel):
    """Something of everything; the channel goes on."""
    channel.queue_declare("q")
    channel.queue_declare("gone")
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


def test_every_panel_has_data(api, traffic):
    found = samples(api)
    names = {name for name, _ in found}
    assert {panel for panel, metrics in PANELS.items() if {f"rabbitmq_{one}" for one in metrics} - names} == set()
    (identity,) = [dict(labels) for name, labels in found if name == "rabbitmq_identity_info"]
    assert set(identity) == {"rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"}


def test_messages_are_counted_as_they_went(api, traffic):
    total = {name.removeprefix("rabbitmq_"): value for name, value in sums(samples(api)).items()}
    assert total["global_messages_received_total"] == 7
    assert total["global_messages_confirmed_total"] == 7
    assert total["global_messages_unroutable_dropped_total"] == 1
    assert total["global_messages_unroutable_returned_total"] == 1
    assert total["global_messages_delivered_get_manual_ack_total"] == 2
    assert total["global_messages_delivered_get_auto_ack_total"] == 1
    assert total["global_messages_get_empty_total"] == 1
    assert total["global_messages_redelivered_total"] == 1
    assert total["global_messages_acknowledged_total"] == 1
    assert total["queues_created_total"] == total["queues_declared_total"] == 3
    assert (total["queues_deleted_total"], total["connections_opened_total"]) == (1, 1)
    assert total["channels_opened_total"] == 1


def test_details_are_of_the_families_and_virtual_hosts_that_are_asked_for(api, traffic):
    found = samples(api, "metrics/detailed", family=["queue_coarse_metrics", "queue_consumer_count"], vhost="/")
    assert ("rabbitmq_detailed_queue_messages_ready", (("queue", "q"), ("vhost", "/"))) in found
    assert {name for name, _ in found if name.startswith("rabbitmq_detailed")} == {
        f"rabbitmq_detailed_queue_{one}" for one in ("messages_ready", "messages_unacked", "messages", "consumers")
    }
    assert not sums(samples(api, "metrics/detailed", family="queue_coarse_metrics", vhost="other")).keys() - {
        "rabbitmq_build_info", "rabbitmq_identity_info",
    }  # fmt: skip


@pytest.mark.parametrize(
    "family",
    [
        *("connection_churn_metrics", "node_coarse_metrics", "node_metrics", "auth_attempt_metrics", "queue_metrics"),
        *("connection_coarse_metrics", "connection_metrics", "channel_metrics"),
    ],
)
def test_every_family_has_something(api, traffic, family):
    found = samples(api, "metrics/detailed", family=family)
    assert [name for name, _ in found if name.startswith("rabbitmq_detailed")]
