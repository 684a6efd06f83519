"""Queues, exchanges, bindings and the overview, in the format of RabbitMQ's management API."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API

from jumpmq import RunningBroker


@pytest.fixture(autouse=True)
def definitions(channel: BlockingChannel) -> None:
    """An exchange with slashes in its name, bound to a queue and an exchange."""
    channel.exchange_declare("a/b c", "x-consistent-hash", durable=True, arguments={"hash-header": "id"})
    channel.exchange_declare("inner", "topic", auto_delete=True)
    channel.queue_declare("q/1", durable=True, arguments={"x-max-length": 7})
    channel.queue_declare("ä", exclusive=True)
    channel.queue_bind("q/1", "a/b c", "3")
    channel.exchange_bind("inner", "a/b c", "1")
    channel.queue_bind("q/1", "inner", "k.#", {"x": 1})


def test_queues(api: API, channel: BlockingChannel) -> None:
    channel.basic_publish("", "q/1", b"1")
    channel.basic_publish("", "q/1", b"2")
    channel.basic_get("q/1")
    shown = api.get("queues", "/", "q/1")
    assert {
        "name": "q/1",
        "vhost": "/",
        "type": "classic",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-max-length": 7},
        "state": "running",
        "consumers": 0,
        "messages": 2,
        "messages_ready": 1,
        "messages_unacknowledged": 1,
        "last_seq": 2,
    }.items() <= shown.items()
    counts = {name: shown["message_stats"][name] for name in ("publish", "deliver_get", "ack")}
    assert counts == {"publish": 2, "deliver_get": 1, "ack": 0}
    assert [queue["name"] for queue in api.get("queues")] == ["q/1", "ä"]
    assert [queue["name"] for queue in api.get("queues", "/")] == ["q/1", "ä"]
    assert api.get("queues", "/", "ä")["exclusive"]


def test_exchanges(api: API) -> None:
    shown = api.get("exchanges", "/", "a/b c")
    assert shown.pop("message_stats")["publish_in"] == 0
    assert shown == {
        "name": "a/b c",
        "vhost": "/",
        "type": "x-consistent-hash",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"hash-header": "id"},
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
    }
    assert api.get("exchanges", "/", "amq.default")["name"] == ""
    assert {exchange["name"] for exchange in api.get("exchanges", "/")} == {
        *("", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.topic"),
        *("a/b c", "inner"),
    }


def test_bindings(api: API) -> None:
    shown = api.get("exchanges", "/", "a/b c", "bindings", "source")
    columns = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments", "properties_key")
    assert [tuple(binding[column] for column in columns) for binding in shown] == [
        ("a/b c", "/", "inner", "exchange", "1", {}, "1"),
        ("a/b c", "/", "q/1", "queue", "3", {}, "3"),
    ]
    assert api.get("exchanges", "/", "inner", "bindings", "destination") == shown[:1]
    assert api.get("bindings", "/", "e", "a/b c", "q", "q/1") == shown[1:]
    assert api.get("bindings", "/", "e", "a/b c", "e", "inner") == shown[:1]
    to_queue = api.get("queues", "/", "q/1", "bindings")
    assert [(binding["source"], binding["arguments"]) for binding in to_queue] == [
        ("", {}),
        ("a/b c", {}),
        ("inner", {"x": 1}),
    ]
    every = api.get("bindings")
    assert len(every) == 5
    assert api.get("bindings", "/") == every


def test_the_default_exchange_is_bound_to_every_queue(api: API) -> None:
    shown = api.get("exchanges", "/", "amq.default", "bindings", "source")
    assert [(binding["destination"], binding["routing_key"]) for binding in shown] == [("q/1", "q/1"), ("ä", "ä")]


def test_overview(api: API, broker: RunningBroker, channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", "q/1", b"1")
    shown = api.get("overview")
    assert shown["product_name"] == "JumpMQ"
    assert shown["node"] == broker.node
    assert shown["object_totals"] == {"connections": 1, "channels": 1, "consumers": 0, "exchanges": 9, "queues": 2}
    totals = shown["queue_totals"]
    assert [totals[name] for name in ("messages", "messages_ready", "messages_unacknowledged")] == [1, 1, 0]
    assert {(listener["protocol"], listener["port"]) for listener in shown["listeners"]} == {
        ("amqp", broker.port),
        ("http", broker.http_port),
    }


def test_there_are_so_many_columns_at_most(api: API) -> None:
    columns = [f"c{number}" for number in range(199)]
    assert api.get("queues", "/", "q/1", columns=",".join(["name", *columns])) == {"name": "q/1"}
    refused = api.request("GET", "queues", params={"columns": ",".join(["name", "state", *columns])})
    assert (refused.status_code, refused.json()["reason"]) == (400, "there are more than 200 columns")


def test_columns_choose_parts_by_dotted_names(api: API) -> None:
    assert api.get("queues", "/", "q/1", columns="name,message_stats.publish,nothing,name.x") == {
        "name": "q/1",
        "message_stats": {"publish": 0},
    }
    assert api.get("queues", columns="name") == [{"name": "q/1"}, {"name": "ä"}]
    assert api.get("overview", columns="object_totals.queues") == {"object_totals": {"queues": 2}}


def test_argument_types_that_json_lacks_are_shown_as_text(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("odd", arguments={"x-octets": b"\xff\x00"})
    assert api.get("queues", "/", "odd")["arguments"] == {"x-octets": "\ufffd\x00"}


def test_queues_that_go_while_they_are_listed_are_left_out(
    api: API, broker: RunningBroker, channel: BlockingChannel
) -> None:
    """Other clients are served during a long listing."""
    for number in range(1500):
        channel.queue_declare(f"gone-{number}", exclusive=True)
    with ThreadPoolExecutor() as pool:
        listings = [pool.submit(API(broker.http_url).request, "GET", "queues", "/") for _ in range(4)]
        channel.connection.close()
        found = [one.result() for one in listings]
    assert {one.status_code for one in found} == {200}
    assert [queue["name"] for queue in api.get("queues", "/")] == ["q/1"]
