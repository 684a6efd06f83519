"""Sorting, pages, and live statistics in lists."""

import random
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.waiting import until

from jumpmq import RunningBroker


@pytest.fixture
def queues(api: API) -> None:
    for name, length in (("b", 3), ("a", 20), ("C", 1)):
        api.request("PUT", "queues", "/", name, json={"arguments": {"x-max-length": length}})


def names(found: list[dict[str, Any]]) -> list[str]:
    return [queue["name"] for queue in found]


def test_lists_are_sorted_by_name_or_as_asked(api: API, queues: None) -> None:
    assert names(api.get("queues")) == ["C", "a", "b"]
    assert names(api.get("queues", sort="arguments.x-max-length")) == ["C", "b", "a"]
    assert names(api.get("queues", sort="name", sort_reverse="true")) == ["b", "a", "C"]
    assert names(api.get("queues", sort="nothing")) == ["C", "a", "b"]


def test_pages(api: API, queues: None) -> None:
    page = api.get("queues", page=2, page_size=2, columns="name")
    assert page == {
        "filtered_count": 3,
        "item_count": 1,
        "items": [{"name": "b"}],
        "page": 2,
        "page_count": 2,
        "page_size": 2,
        "total_count": 3,
    }
    assert names(api.get("queues", page=1, name="c")["items"]) == ["C"]
    assert names(api.get("queues", page=1, name="^[ab]$", use_regex="true")["items"]) == ["a", "b"]
    assert api.get("queues", page=1, name="none")["items"] == []
    endless = "(.|.|.|.|.|.|.|.)*!"  # takes Python's own expressions longer than the broker lives
    assert api.get("queues", page=1, name=endless, use_regex="true")["items"] == []


def test_pages_beyond_those_that_are_looked_for_are_sorted(api: API, channel: BlockingChannel) -> None:
    names = [f"q{number:04}" for number in range(2_600)]
    for name in random.sample(names, len(names)):
        channel.queue_declare(name)

    def page(number: int, **query: str) -> list[str]:
        found = api.get("queues", page=number, page_size=500, columns="name", **query)
        assert (found["total_count"], found["page_count"]) == (2_600, 6)
        return [queue["name"] for queue in found["items"]]

    assert [name for number in range(1, 7) for name in page(number)] == names
    assert [name for number in range(1, 7) for name in page(number, sort_reverse="true")] == names[::-1]
    assert [name for number in (1, 5) for name in page(number, sort="messages")] == names[:500] + names[2_000:2_500]
    found = api.get("queues", page=2, page_size=3, name="7", sort="name", sort_reverse="true")
    expected = [name for name in names[::-1] if "7" in name]
    assert [queue["name"] for queue in found["items"]] == expected[3:6]
    assert found["filtered_count"] == len(expected)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("page=9&page_size=2", "Page out of range, page: 9 page size: 2, len: 3"),
        ("page=x", "Pagination parameters are invalid"),
        ("page=0", "Invalid pagination parameters: page number 0, page size 100"),
        ("page=1&page_size=501", "Invalid pagination parameters: page number 1, page size 501"),
        ("page=1&name=(&use_regex=true", "Pagination parameters are invalid: missing ): ("),
        ("sort_reverse=maybe", "'sort_reverse' must be true or false, not 'maybe'"),
    ],
)
def test_a_wrong_page_is_refused(api: API, queues: None, query: str, reason: str) -> None:
    response = api.session.get(f"{api.address}/api/queues?{query}", timeout=30)
    assert (response.status_code, response.json()["reason"]) == (400, reason)


def test_connections_channels_and_consumers_are_shown_and_closed(api: API, broker: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=7)
    channel.queue_declare("q")
    channel.basic_consume("q", print, consumer_tag="tag")
    (shown,) = api.get("connections")
    assert (shown["user"], shown["vhost"], shown["channels"], shown["port"]) == ("guest", "/", 1, broker.port)
    assert shown["client_properties"]["product"] == "Pika Python Client Library"
    (its_channel,) = api.get("channels")
    assert its_channel["name"] == f"{shown['name']} (1)"
    assert api.get("channels", its_channel["name"])["consumer_details"][0]["consumer_tag"] == "tag"
    (consumer,) = api.get("consumers", "/")
    assert (consumer["queue"]["name"], consumer["prefetch_count"], consumer["ack_required"]) == ("q", 7, True)
    assert api.request("DELETE", "connections", shown["name"], headers={"X-Reason": "time for bed"}).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(60)
    assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - time for bed")
    until(lambda: api.request("DELETE", "connections", shown["name"]).status_code == 404)


def test_rates_are_of_the_last_seconds(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")

    def rates() -> bool:
        for _ in range(100):
            channel.basic_publish("", "q", b"x")
        shown = [
            api.get(*path)["message_stats"]["publish_details"]["rate"] for path in (("queues", "/", "q"), ("overview",))
        ]
        return bool(min(shown) > 10)

    until(rates)


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("alarms", 200),
        ("local-alarms", 200),
        ("virtual-hosts", 200),
        ("node-is-mirror-sync-critical", 200),
        ("protocol-listener/amqp", 200),
        ("protocol-listener/mqtt", 503),
        ("port-listener/1", 503),
        ("port-listener/x", 400),
        ("certificate-expiration/1/months", 200),
        ("certificate-expiration/1/eons", 400),
    ],
)
def test_health_checks(api: API, check: str, status: int) -> None:
    assert api.request("GET", "health", "checks", *check.split("/")).status_code == status


def test_the_port_that_is_listened_on_is_well_and_messages_come_through(api: API, broker: RunningBroker) -> None:
    assert api.get("health", "checks", "port-listener", str(broker.port)) == {"status": "ok", "port": broker.port}
    assert api.get("aliveness-test", "/") == {"status": "ok"}
