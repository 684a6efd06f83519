"""The keys that dashboards and clients read exist, and show the past operations."""

import contextlib
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from tests.http.api import API, publish

import jumpmq


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(tls=True, data_dir=tmp_path_factory.mktemp("keys") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def api(broker: jumpmq.RunningBroker) -> API:
    return API(broker.http_url)


@pytest.fixture(scope="module")
def seen(broker: jumpmq.RunningBroker, api: API) -> Iterator[dict[str, Any]]:
    """The shown values of every object, after some operations on all of them."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "e")
    channel.queue_declare("gone")
    channel.queue_delete("gone")
    publish(channel, "q", [b"12345"] * 4, timestamp=1_500_000_000)
    channel.basic_publish("e", "", b"67")
    channel.basic_publish("", "nowhere", b"dropped")
    with contextlib.suppress(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"returned", mandatory=True)
    channel.basic_nack(channel.basic_get("q")[0].delivery_tag)
    channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    channel.basic_get("q", auto_ack=True)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("q", lambda *_: None, consumer_tag="reader")
    connection.process_data_events(0.5)
    end = time.monotonic() + 20
    while api.get("queues", "/", "q")["messages_unacknowledged"] != 1:
        assert time.monotonic() < end
    (one,) = api.get("channels")
    yield {
        "overview": api.get("overview"),
        "queue": api.get("queues", "/", "q"),
        "exchange": api.get("exchanges", "/", "e"),
        "channel": api.get("channels", one["name"]),
        "connection": api.get("connections", one["connection_details"]["name"]),
        "node": api.get("nodes", broker.node),
    }
    connection.close()


STATS = {"publish": 5, "get": 2, "get_no_ack": 1, "redeliver": 1, "ack": 1, "deliver": 1, "deliver_get": 4}
"""Statistics of the queue; all messages published on the channel reached it, except two."""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overview", STATS | {"publish": 7, "confirm": 7, "return_unroutable": 1, "drop_unroutable": 1}),
        ("channel", STATS | {"publish": 7, "confirm": 7, "return_unroutable": 1, "drop_unroutable": 1}),
        ("queue", STATS),
        ("exchange", {"publish_in": 1, "publish_out": 1}),
    ],
)
def test_messages_are_counted_by_what_became_of_them(seen: dict[str, Any], kind: str, expected: dict[str, int]) -> None:
    stats = seen[kind]["message_stats"]
    assert {name: stats[name] for name in expected} == expected
    assert all(set(stats[f"{name}_details"]) == {"rate"} for name in expected)


def test_the_overview(seen: dict[str, Any]) -> None:
    churn, totals = seen["overview"]["churn_rates"], seen["overview"]["queue_totals"]
    for what in ("connection", "channel"):
        assert churn[f"{what}_created"] == 1 and churn[f"{what}_closed"] == 0
        assert set(churn[f"{what}_created_details"]) == {"rate"}
    assert (churn["queue_declared"], churn["queue_created"], churn["queue_deleted"]) == (2, 2, 1)
    expected = {"messages": 3, "messages_ready": 2, "messages_unacknowledged": 1}
    assert {name: totals[name] for name in expected} == expected
    assert all(set(totals[f"{name}_details"]) == {"rate"} for name in expected)


def test_a_queue(seen: dict[str, Any]) -> None:
    expected = {
        "message_bytes": 12, "message_bytes_ready": 7, "message_bytes_unacknowledged": 5, "message_bytes_ram": 12,
        "message_bytes_persistent": 10, "message_bytes_paged_out": 0, "messages_ram": 3, "messages_ready_ram": 2,
        "messages_unacknowledged_ram": 1, "messages_persistent": 2, "messages_paged_out": 0,
        "head_message_timestamp": 1_500_000_000, "exclusive_consumer_tag": None,
    }  # fmt: skip
    assert {name: seen["queue"][name] for name in expected} == expected
    (consumer,) = seen["queue"]["consumer_details"]
    assert (consumer["consumer_tag"], consumer["prefetch_count"], consumer["ack_required"]) == ("reader", 1, True)
    assert consumer["channel_details"]["name"] == seen["channel"]["name"]
    assert 0 <= seen["queue"]["consumer_utilisation"] <= 1
    assert 0 <= seen["queue"]["consumer_capacity"] <= 1
    assert abs((datetime.now(UTC) - datetime.fromisoformat(seen["queue"]["idle_since"])).total_seconds()) < 60


def test_a_channel(seen: dict[str, Any]) -> None:
    expected = {"messages_unconfirmed": 0, "messages_unacknowledged": 1, "prefetch_count": 1, "confirm": True}
    assert {name: seen["channel"][name] for name in expected} == expected
    assert datetime.fromisoformat(seen["channel"]["idle_since"])


def test_a_connection(seen: dict[str, Any]) -> None:
    shown = seen["connection"]
    assert (shown["ssl"], shown["ssl_protocol"], shown["send_pend"]) == (False, None, 0)
    for name in ("recv_oct", "send_oct"):
        assert shown[name] > 0 and set(shown[f"{name}_details"]) == {"rate"}


def test_a_connection_with_tls(broker: jumpmq.RunningBroker, api: API) -> None:
    context = ssl.create_default_context(cafile=str(broker.tls_ca))
    parameters = pika.URLParameters(broker.amqps_url)
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    with contextlib.closing(pika.BlockingConnection(parameters)):
        (shown,) = [one for one in api.get("connections") if one["ssl"]]
    assert shown["ssl_protocol"].startswith("TLSv1.")
    assert shown["ssl_cipher"]
    assert shown["peer_cert_subject"] is None


def test_the_node(seen: dict[str, Any]) -> None:
    shown = seen["node"]
    assert shown["disk_free"] > shown["disk_free_limit"] > 0
    assert shown["mem_limit"] > 0 and shown["mem_used"] > 0
    assert shown["sockets_total"] >= shown["sockets_used"] == 1
    assert shown["fd_total"] > shown["fd_used"] > 0
    for name in ("mem_used", "disk_free", "sockets_used"):
        assert isinstance(shown[f"{name}_details"]["rate"], float)


def test_rates_have_two_decimals_at_most(seen: dict[str, Any]) -> None:
    """Rates have at most two decimals, as RabbitMQ's: 0.2, never 0.20000000000000001."""
    rates = [value for shown in seen.values() for value in rates_in(shown)]
    assert len(rates) > 50
    assert all(value == round(value, 2) and len(repr(value).partition(".")[2]) <= 2 for value in rates)


def rates_in(shown: Any) -> Iterator[float]:
    if isinstance(shown, dict):
        for name, inner in shown.items():
            yield from [inner] if name == "rate" else rates_in(inner)


def test_no_number_has_the_noise_of_floats(broker: jumpmq.RunningBroker, api: API) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.exchange_declare("thirds", "x-consistent-hash")
    channel.exchange_declare("sharded", "x-modulus-hash", durable=True)
    policy = {"pattern": "^sharded$", "definition": {"shards-per-node": 3}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "three", json=policy)
    for number in range(3):
        channel.queue_declare(f"third-{number}", exclusive=True)
        channel.queue_bind(f"third-{number}", "thirds", "1")
    channel.confirm_delivery()
    for number in range(100):
        for exchange in ("thirds", "sharded"):
            channel.basic_publish(exchange, f"key-{number}", b"x")
    paths = ("thirds", "ring"), ("thirds", "ring", "traffic"), ("sharded", "shards")
    shown = [api.get("exchanges", "/", *path) for path in paths]
    shown += [
        api.get(path) for path in ("overview", "nodes", "queues", "channels", "connections", "vhosts", "warnings")
    ]
    found = [value for one in shown for value in floats_in(one)]
    assert len(found) > 100
    assert [value for value in found if value != round(value, 6)] == []
    connection.close()


def floats_in(shown: Any) -> Iterator[float]:
    if isinstance(shown, float):
        yield shown
    for inner in shown.values() if isinstance(shown, dict) else shown if isinstance(shown, list) else ():
        yield from floats_in(inner)
