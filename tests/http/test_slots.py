"""The slots of a queue over HTTP: statistics, reasons of an undelivered message, definitions, readers."""

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API

from jumpmq.queues.slots import slot_of

ARGUMENTS = {"x-slots": 16, "x-in-flight-per-slot": 1}


def reason(api: Any, **asked: object) -> str:
    shown = api.get("queues", "/", "q", "explain", **{name: str(value) for name, value in asked.items()})
    return str(shown["reason"])


def test_figures_and_reasons(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments=ARGUMENTS)
    assert reason(api) == "the queue is empty"
    channel.queue_bind("q", "amq.topic", "#")
    channel.confirm_delivery()
    for key in "aab":
        channel.basic_publish("amq.topic", key, b"x")
    assert reason(api, key="b") == "the queue has no consumer"
    a, b = slot_of(b"a", 16), slot_of(b"b", 16)
    assert channel.basic_get("q")[0].routing_key == "a"
    slots = {one["slot"]: one for one in api.get("queues", "/", "q", "slots")}
    figures = {
        slot: (one["state"], one["messages_ready"], one["messages_unacknowledged"]) for slot, one in slots.items()
    }
    assert figures == {a: ("blocked", 1, 1), b: ("waiting", 1, 0)}
    assert slots[a]["oldest_published_at"] > 1_600_000_000
    assert reason(api, key="a") == (
        f"slot {a} has 1 unacknowledged messages, and x-in-flight-per-slot is 1: "
        "the slot continues when a consumer acknowledges, rejects or returns a message"
    )
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("q", lambda *_: None)
    assert reason(api, slot=b) == f"nothing is ready in slot {b}, and 1 of its messages are unacknowledged"
    assert reason(api).startswith("no consumer has room")


@pytest.mark.parametrize("slots", [{}, {"x-slots": 16}])
def test_where_one_message_is(api: API, channel: BlockingChannel, slots: dict[str, int]) -> None:
    channel.queue_declare("q", arguments=slots)
    assert reason(api, message=1) == "no message of the queue has number 1: the queue has not received a message"
    channel.confirm_delivery()
    for _ in range(4):
        channel.basic_publish("", "q", b"x")
    ready = "is ready in slot" if slots else "is ready, behind at most 1 other messages"
    assert reason(api, message=2).startswith(f"message 2 {ready}")
    assert reason(api, message=2).endswith("the queue has no consumer")
    assert reason(api, message=9).endswith("the latest message has number 4")
    channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    assert channel.basic_get("q")[0] is not None
    assert "message 2 was delivered to a basic.get of connection 127.0.0.1:" in reason(api, message=2)
    channel.basic_qos(prefetch_count=1)
    tag = channel.basic_consume("q", lambda *_: None)
    assert f"message 3 was delivered to consumer '{tag}' of connection" in reason(api, message=3)
    assert reason(api, message=1).startswith("message 1 is no longer in the queue")
    assert "no consumer has room" in reason(api, message=4)
    with pytest.raises(AssertionError):
        reason(api, message="first")


def test_where_a_message_of_a_stream_is(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    assert "no consumer group reads it" in reason(api, message=1)
    channel.basic_qos(prefetch_count=2)
    taken = []
    arguments = {"x-consumer-group": "g", "x-stream-offset": "first", "x-rebalance-delay": 50}
    channel.basic_consume("q", lambda _, method, *__: taken.append(method.delivery_tag), arguments=arguments)
    while len(taken) < 2:
        channel.connection.process_data_events(0.05)
    channel.basic_ack(taken[1])
    while len(taken) < 3:
        channel.connection.process_data_events(0.05)
    assert reason(api, message=0).endswith("consumer group 'g' has it at a member, which has not settled it")
    assert "consumer group 'g' has settled it" in reason(api, message=1)
    assert "number 3: the latest message has number 2" in reason(api, message=3)


def test_what_cannot_be_explained(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    assert api.get("queues", "/", "q", "slots") == []
    with pytest.raises(AssertionError, match="has no slots"):
        reason(api, slot=0)
    assert reason(api, key="a") == "the queue is empty"
    channel.queue_declare("slotted", arguments=ARGUMENTS)
    with pytest.raises(AssertionError, match="has slots 0 to 15, not 16"):
        api.get("queues", "/", "slotted", "explain", slot="16")
    with pytest.raises(AssertionError, match="no queue 'none'"):
        api.get("queues", "/", "none", "explain")


def test_slots_are_exported_and_imported(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments=ARGUMENTS | {"x-slot-key": "header:tenant"})
    definitions = api.get("definitions")
    channel.queue_delete("q")
    api.post("definitions", body=definitions)
    assert api.get("queues", "/", "q")["arguments"] == ARGUMENTS | {"x-slot-key": "header:tenant"}
    assert api.get("queues", "/", "q", "slots") == []


def test_readers_that_reserve_are_refused_where_few_may_be_in_flight(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments=ARGUMENTS)
    with pytest.raises(AssertionError, match="bind a queue without it, and read that"):
        api.post("readers", "/", "g", "reserve", body={"queues": {"q": None}})


def test_readers_get_messages_of_all_slots_in_order(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-slots": 16})
    channel.queue_bind("q", "amq.topic", "#")
    channel.confirm_delivery()
    for number in range(30):
        channel.basic_publish("amq.topic", str(number % 7), b"%d" % number)
    api.post("readers", "/", "g", "reserve", body={"queues": {"q": None}, "max_messages": 20})
    table = api.table("readers", "/", "g", "queues", "q", "messages", upto=1)
    assert [int(body) for body in table["body"].to_pylist()] == list(range(20))
