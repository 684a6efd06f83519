"""Prometheus metrics, with the balance of hash rings."""

import time
from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from prometheus_client.parser import text_string_to_metric_families
from tests.http.api import API


def samples(api: API, path: str = "/metrics") -> Callable[..., float]:
    """A function that returns the value of a sample by name and labels."""
    response = api.session.get(f"{api.address}{path}", timeout=30)
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(response.text))
    found = {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}
    return lambda name, **labels: found[name, *sorted(labels.items())]


def test_totals_have_rabbitmqs_names(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    channel.basic_get("q")
    value = samples(api)
    assert value("rabbitmq_connections") == 1
    assert value("rabbitmq_channels") == 1
    assert value("rabbitmq_consumers") == 0
    assert value("rabbitmq_queues") == 1
    assert value("rabbitmq_queue_messages_ready") == 2
    assert value("rabbitmq_queue_messages_unacked") == 1
    assert value("rabbitmq_queue_messages") == 3
    assert value("rabbitmq_queue_messages_published_total") == 3
    assert value("rabbitmq_process_resident_memory_bytes") > 1e7
    of_each = samples(api, "/metrics/per-object")
    assert of_each("rabbitmq_queue_messages_ready", vhost="/", queue="q") == 2


def test_a_clock_that_is_put_back_does_not_make_a_node_start_in_the_future(
    api: API, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    assert 0 < samples(api)("rabbitmq_erlang_uptime_seconds") < 600
    (node,) = api.get("nodes")
    assert 0 < node["uptime"] < 600_000


def test_a_ring_shows_its_balance_and_what_lacks_the_header(api: API, channel: BlockingChannel) -> None:
    channel.exchange_declare("ring", "x-consistent-hash", arguments={"hash-header": "id"})
    weights = {"light": 1, "heavy": 3}
    for queue, weight in weights.items():
        channel.queue_declare(queue)
        channel.queue_bind(queue, "ring", str(weight))
    channel.confirm_delivery()
    for _ in range(4):
        channel.basic_publish("ring", "", b"no header: all to one queue")
    value, place = samples(api), {"vhost": "/", "exchange": "ring"}
    assert value("jumpmq_ring_missing_total", **place) == 4
    counts = {queue: value("jumpmq_ring_messages_total", **place, destination=queue) for queue in weights}
    assert sorted(counts.values()) == [0, 4]
    for queue, weight in weights.items():
        assert value("jumpmq_ring_buckets", **place, destination=queue) == weight
        assert value("jumpmq_ring_messages_per_bucket", **place, destination=queue) == counts[queue] / weight
        assert value("jumpmq_ring_share_ratio", **place, destination=queue) == round(
            (counts[queue] / 4) / (weight / 4), 6
        )


def test_groups_of_readers_show_how_far_they_are_behind(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.confirm_delivery()
    for body in (b"x", b"xy", b"xyz"):
        channel.basic_publish("", "q", body)
    api.post("readers", "/", "g", "reserve", body={"queues": {"q": None}, "max_messages": 1})
    for path in ("/metrics", "/metrics/per-object"):
        value, place = samples(api, path), {"vhost": "/", "group": "g", "user": "guest", "queue": "q"}
        assert value("jumpmq_reader_messages_reserved", **place) == 1
        assert value("jumpmq_reader_oldest_reserved_seconds", **place) < 3600
        assert value("jumpmq_reader_messages_ready", **place) == 2
        assert value("jumpmq_reader_messages_ready_bytes", **place) == 5
        assert value("jumpmq_reader_alive", **place) == 0
