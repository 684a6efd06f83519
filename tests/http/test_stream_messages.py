"""A stream over HTTP: ranges of offsets as Arrow, cut from its files, from any offset and any time on."""

import time

import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish


@pytest.fixture
def stream(channel: BlockingChannel) -> str:
    """A stream with the messages 0 to 9, a commit per message."""
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    publish(channel, "s", [b"%d" % number for number in range(10)])
    return "s"


def test_all_there_is_to_know_of_a_message(api: API, channel: BlockingChannel, stream: str) -> None:
    table = api.table("queues", "/", stream, "messages")
    assert table.column_names == [
        "seq", "exchange", "routing_key", "properties", "body", "published_at", "redelivered",
    ]  # fmt: skip
    assert table["body"].to_pylist() == [b"%d" % number for number in range(10)]
    assert table["seq"].to_pylist() == list(range(10))
    assert set(table["routing_key"].to_pylist()) == {b"s"}
    assert not any(table["redelivered"].to_pylist())
    assert len(table.to_batches()) == 1, "small commits are joined"
    assert api.counts(stream) == (10, 0), "reading takes nothing"


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({"from": 2, "to": 4}, [2, 3, 4]),
        ({"from": 8}, [8, 9]),
        ({"to": 0}, [0]),
        ({"from": 10}, []),
        ({"from": 4, "to": 2}, []),
    ],
)
def test_a_range_of_offsets(api: API, stream: str, query: dict[str, int], offsets: list[int]) -> None:
    assert api.table("queues", "/", stream, "messages", columns="seq", **query)["seq"].to_pylist() == offsets


def test_a_range_across_commits_of_many_messages(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(20_000):
        channel.basic_publish("", "s", b"%d" % number)
    while api.counts("s") != (20_000, 0):
        time.sleep(0.01)
    table = api.table("queues", "/", "s", "messages", **{"from": 3_000, "to": 17_000, "columns": "seq,body"})
    assert table["seq"].to_pylist() == list(range(3_000, 17_001))
    assert table["body"].to_pylist() == [b"%d" % number for number in range(3_000, 17_001)]


def test_since_a_time(api: API, channel: BlockingChannel, stream: str) -> None:
    time.sleep(0.01)
    between = time.time()
    publish(channel, stream, [b"later"])
    assert api.table("queues", "/", stream, "messages", columns="body", since=between)["body"].to_pylist() == [b"later"]
    (found,) = api.post("ranges", "/", body={"queues": [stream], "timestamp": between}).values()
    assert found.pop("id") > 0
    assert found == {"first_seq": 0, "last_seq": 10, "messages": 11, "type": "stream", "seq_at": 10}
    (later,) = api.post("ranges", "/", body={"queues": [stream], "timestamp": time.time() + 60}).values()
    assert later["seq_at"] == 11


def test_several_streams_and_other_queues_in_one_answer(api: API, channel: BlockingChannel, stream: str) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"a", b"b"])
    slices = [[stream, 8, 9], ["q", None, None], [stream, 0, 0]]
    response = api.request("POST", "messages", "/", json={"slices": slices, "columns": ["queue", "seq"]})
    table = pa.ipc.open_stream(response.content).read_all()
    assert list(zip(table["queue"].to_pylist(), table["seq"].to_pylist(), strict=True)) == [
        ("s", 8), ("s", 9), ("q", 1), ("q", 2), ("s", 0),
    ]  # fmt: skip


def test_what_retention_has_let_go_of_is_gone_where_all_is_wanted(api: API, channel: BlockingChannel) -> None:
    arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000, "x-max-length-bytes": 3000}
    channel.queue_declare("short", durable=True, arguments=arguments)
    publish(channel, "short", [b"%0*d" % (800, number) for number in range(10)])
    first = api.post("ranges", "/", body={"queues": ["short"]})["short"]["first_seq"]
    assert 0 < first < 10
    asked = {"slices": [["short", 0, 9]], "columns": ["seq"]}
    there = pa.ipc.open_stream(api.request("POST", "messages", "/", json=asked).content).read_all()
    assert there["seq"].to_pylist() == list(range(first, 10))
    refused = api.request("POST", "messages", "/", json=asked | {"whole": True})
    assert (refused.status_code, refused.json()["reason"]) == (
        410,
        f"stream 'short' in vhost '/' has offsets {first} to 9, not 0 to 9",
    )


def test_what_makes_no_sense_is_refused(api: API, channel: BlockingChannel, stream: str) -> None:
    channel.queue_declare("q", durable=True)
    for response, reason in (
        (api.request("GET", "queues", "/", "q", "messages", params={"since": 1}), "only streams are read by time"),
        (api.request("GET", "queues", "/", stream, "messages", params={"since": "now"}), "'since' must be a number"),
        (api.request("POST", "ranges", "/", json={"queues": [stream], "timestamp": "now"}), "'timestamp' must be"),
        (api.request("POST", "ranges", "/", json={"queues": True}), "'queues' must be a list of names, not True"),
        (api.request("POST", "messages", "/", json={"slices": [], "columns": [{}]}), "'columns' must be some of"),
        (api.request("POST", "messages", "/", json={"slices": [["q", 1, 1]], "whole": True}), "may have gaps"),
        (api.request("POST", "readers", "/", "g", "reserve", json={"queues": {stream: None}}), "are read by offsets"),
    ):
        assert response.status_code == 400
        assert reason in response.json()["reason"]
    missing = api.request("POST", "ranges", "/", json={"queues": [stream, "none"]})
    assert missing.status_code == 404
    assert api.post("ranges", "/", body={"queues": [stream, "none"], "missing": True})["none"] is None


def test_reading_needs_the_permission_to_read(api: API, stream: str) -> None:
    api.request("PUT", "users", "reader", json={"password": "secret", "tags": "management"})
    api.request("PUT", "permissions", "/", "reader", json={"configure": "", "write": "", "read": "^other$"})
    api.session.auth = ("reader", "secret")
    for response in (
        api.request("GET", "queues", "/", stream, "messages"),
        api.request("POST", "ranges", "/", json={"queues": [stream]}),
        api.request("POST", "ranges", "/", json={"queues": [stream, "none"], "missing": True}),
        api.request("POST", "messages", "/", json={"slices": [[stream, 0, 9]]}),
    ):
        assert response.status_code == 401
        assert "access to queue 's' in vhost '/' refused for user 'reader'" in response.json()["reason"]
