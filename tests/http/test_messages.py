"""The messages of a queue as an Arrow stream, while other clients are served."""

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pika
import pyarrow as pa
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.wire import closing, login

from jumpmq import RunningBroker


def test_all_there_is_to_know_of_a_message(api: API, channel: BlockingChannel) -> None:
    before = datetime.now(UTC)
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("ä", "fanout")
    channel.queue_bind("q", "ä")
    properties = pika.BasicProperties(content_type="text/plain", headers={"a": 1}, delivery_mode=2)
    channel.confirm_delivery()
    channel.basic_publish("ä", b"\xff\x00key", b"\x00\xfe body", properties)
    channel.basic_publish("", "q", b"")
    channel.basic_nack(channel.basic_get("q")[0].delivery_tag)
    while api.counts("q") != (2, 0):
        time.sleep(0.01)

    table = api.table("queues", "/", "q", "messages")
    assert table.schema == pa.schema(
        [
            ("seq", pa.int64()),
            ("exchange", pa.string()),
            ("routing_key", pa.binary()),
            ("properties", pa.binary()),
            ("body", pa.binary()),
            ("published_at", pa.timestamp("us", "UTC")),
            ("redelivered", pa.bool_()),
        ]
    )
    first, second = table.to_pylist()
    assert before <= first.pop("published_at") <= second.pop("published_at") <= datetime.now(UTC)
    headers = b"\x00\x00\x00\x07\x01aI\x00\x00\x00\x01"
    assert first == {
        "seq": 1,
        "exchange": "ä",
        "routing_key": b"\xff\x00key",
        "properties": b"\xb0\x00\x0atext/plain" + headers + b"\x02",
        "body": b"\x00\xfe body",
        "redelivered": True,
    }
    assert second == {
        "seq": 2,
        "exchange": "",
        "routing_key": b"q",
        "properties": b"\x00\x00",
        "body": b"",
        "redelivered": False,
    }
    assert api.counts("q") == (2, 0), "a snapshot consumes nothing"


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"from": 2, "to": 4}, [2, 3, 4]),
        ({"from": 5}, [5]),
        ({"to": 1}, [1]),
        ({"from": 6}, []),
        ({"from": 4, "to": 2}, []),
    ],
)
def test_a_range_of_messages(api: API, channel: BlockingChannel, query: dict[str, int], seqs: list[int]) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"body"] * 5)
    assert api.table("queues", "/", "q", "messages", columns="seq", **query)["seq"].to_pylist() == seqs


def test_columns_come_in_the_order_asked_for(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"one", b"two"])
    table = api.table("queues", "/", "q", "messages", columns="body,seq")
    assert table.to_pydict() == {"body": [b"one", b"two"], "seq": [1, 2]}
    assert table.column_names == ["body", "seq"]


def test_large_bodies_come_in_small_batches(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True)
    bodies = [bytes([number]) * 3_000_000 for number in range(4)]
    publish(channel, "q", bodies)
    table = api.table("queues", "/", "q", "messages")
    assert table["body"].to_pylist() == bodies
    assert len(table.to_batches()) == 4


def test_others_are_served_while_a_long_queue_is_read(
    api: API, broker: RunningBroker, channel: BlockingChannel
) -> None:
    """Small requests are answered while 300,000 messages go out."""
    channel.queue_declare("q")
    with closing(login(broker.port)) as connection:
        connection.send(connection.channel().publication("", "q", b"x" * 100) * 300_000)
        while api.counts("q") != (300_000, 0):
            time.sleep(0.05)
    api.table("queues", "/", "q", "messages", to=1)  # the first of all imports pyarrow
    answers, done = [], threading.Event()

    def ask() -> None:
        session = requests.Session()
        session.auth = api.session.auth
        while not done.is_set():
            answers.append(session.get(f"{api.address}/api/overview?columns=node", timeout=30).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    rows = len(api.table("queues", "/", "q", "messages"))
    done.set()
    thread.join()
    assert rows == 300_000
    assert len(answers) > 5
    assert set(answers) == {200}


def test_ranges_of_many_queues_and_of_none_that_is_another_connections(api: API, channel: BlockingChannel) -> None:
    """Ranges leave out missing queues and exclusive queues, and require a read permission."""
    channel.queue_declare("q")
    channel.queue_declare("mine", exclusive=True)
    channel.exchange_declare("x", "fanout")
    for queue in ("q", "mine"):
        channel.queue_bind(queue, "x")
    assert list(api.post("ranges", "/", body={"exchange": "x"})) == ["q"]
    assert api.request("POST", "ranges", "/", json={"queues": ["mine"]}).status_code == 400
    names = [f"no {number}" for number in range(20_000)]
    found = api.post("ranges", "/", body={"queues": [*names, "q"], "missing": True})
    assert found["q"]["messages"] == 0
    assert found.keys() == {*names, "q"}
    assert not any(found[name] for name in names)
    assert api.request("POST", "ranges", "/", json={"queues": ["q", "no"]}).status_code == 404


def test_numbers_of_another_queue_or_broker_are_not_read(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", [b"a"])
    told = api.request("POST", "ranges", "/", json={"queues": ["q"]})
    asked = {"slices": [["q", 0, 9]], "columns": ["body"], "ids": {"q": told.json()["q"]["id"]}}
    asked |= {"identity": told.headers.get("JumpMQ-Identity")}

    def status(**other: Any) -> int:
        return api.request("POST", "messages", "/", json=asked | other).status_code

    assert status() == 200
    assert status(identity="another") == 410
    wrong: list[Any] = [[], {"q": "1"}, {"q": -1}, {"q": None}]
    assert [status(ids=ids) for ids in wrong] == [400] * 4
    channel.queue_delete("q")
    channel.queue_declare("q")
    assert status() == 410
    assert status(ids={"other": 1}) == 200


def test_who_may_not_read_learns_of_no_queue(broker: RunningBroker, api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    api.request("PUT", "users", "u", json={"password": "p", "tags": "management"})
    api.request("PUT", "permissions", "/", "u", json={"configure": "", "write": "", "read": ""})
    api.session.auth = ("u", "p")
    for name in ("q", "no"):
        assert api.request("POST", "ranges", "/", json={"queues": [name]}).status_code == 401
        assert api.request("POST", "messages", "/", json={"slices": [[name, 0, 1]]}).status_code == 401
