"""The page's figures of a single virtual host, and of consumers, beyond RabbitMQ's figures."""

from collections.abc import Iterator
from typing import Any, Literal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.waiting import until

from jumpmq import RunningBroker


@pytest.fixture
def hosts(api: API, broker: RunningBroker) -> Iterator[tuple[BlockingChannel, BlockingChannel]]:
    """A channel in each of two virtual hosts; the first has a queue with 7 messages."""
    connections = []
    for name in ("one", "two"):
        api.request("PUT", "vhosts", name)
        api.request("PUT", "permissions", name, "guest", json=dict.fromkeys(("configure", "write", "read"), ".*"))
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port, name, heartbeat=0)
        connections.append(pika.BlockingConnection(parameters))
    one, two = (connection.channel() for connection in connections)
    one.queue_declare("q", durable=True)
    one.queue_declare("kept", durable=True, arguments={"x-queue-type": "stream"})
    publish(one, "q", [b"x"] * 7)
    publish(one, "kept", [b"x"] * 3)
    yield one, two
    for connection in connections:
        connection.close()


def test_totals_of_a_virtual_host(api: API, hosts: tuple[BlockingChannel, BlockingChannel]) -> None:
    def totals(name: str) -> tuple[list[int], int]:
        shown = api.get("overview", vhost=name)
        objects = [shown["object_totals"][kind] for kind in ("connections", "channels", "queues", "consumers")]
        return objects, shown["queue_totals"]["messages"]

    hosts[0].basic_consume("q", lambda *_: None)
    assert totals("one") == ([1, 1, 2, 1], 10)
    assert totals("two") == ([1, 1, 0, 0], 0)
    refused = api.request("GET", "overview", params={"vhost": "none"})
    assert (refused.status_code, refused.json()["reason"]) == (404, "no vhost 'none' visible to the user")


@pytest.mark.slow
def test_the_history_of_a_virtual_host_is_there_before_it_is_asked_for(
    api: API, hosts: tuple[BlockingChannel, BlockingChannel]
) -> None:
    until(lambda: len(api.get("history")["at"]) > 4)
    shown = until(lambda: (one := api.get("history", "vhosts", "one"))["ready"][-1:] == [7] and one)
    assert len(shown["at"]) > 2, "it was followed unasked"
    assert api.get("history", "vhosts", "two")["ready"][-1] == 0
    hosts[0].basic_get("q", auto_ack=True)
    until(lambda: sum(api.get("history", "vhosts", "one")["ack"]) > 0)
    assert sum(api.get("history", "vhosts", "two")["ack"]) == 0
    assert api.request("GET", "history", "vhosts", "none").status_code == 404


def test_what_streams_keep_is_not_a_backlog(api: API, hosts: tuple[BlockingChannel, BlockingChannel]) -> None:
    until(lambda: api.get("vhosts", "one")["backlog"] == {"ready": 7, "unacknowledged": 0})
    assert api.get("vhosts", "one")["messages_ready"] == 10, "as RabbitMQ counts"


def test_consumers_are_searched_by_queue_client_and_tag(api: API, broker: RunningBroker) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "printer"}
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for queue, tag in (("invoices", "first"), ("letters", "second")):
            channel.queue_declare(queue, exclusive=True)
            channel.basic_consume(queue, lambda *_: None, consumer_tag=tag)

        def found(name: str) -> list[str]:
            return sorted(one["consumer_tag"] for one in api.get("consumers", page=1, name=name)["items"])

        until(lambda: found("print") == ["first", "second"])
        assert (found("invoi"), found("secon"), found("none")) == (["first"], ["second"], [])


def test_which_consumer_is_slow(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("work")
    channel.basic_qos(prefetch_count=3)
    slow = channel.basic_consume("work", lambda *_: None, consumer_tag="slow")
    fast = channel.connection.channel()
    fast.basic_consume("work", lambda _, method, *__: fast.basic_ack(method.delivery_tag), consumer_tag="fast")

    def work() -> None:
        for _ in range(20):
            channel.basic_publish("", "work", b"x")
        channel.connection.process_data_events(0.1)

    def by_rate() -> list[str] | Literal[False]:
        work()
        found = api.get("consumers", page=1, sort="messages_delivered_details.rate", sort_reverse="true")["items"]
        rates = [one["messages_delivered_details"]["rate"] for one in found]
        return rates[0] > 3 * rates[1] and [one["consumer_tag"] for one in found]

    def details() -> dict[str, Any] | Literal[False]:
        work()
        found = {one["consumer_tag"]: one for one in api.get("queues", "/", "work")["consumer_details"]}
        return found["fast"]["messages_delivered_details"]["rate"] > 0 and found

    assert until(by_rate) == ["fast", slow]
    assert until(details)["slow"]["messages_unacknowledged"] == 3
