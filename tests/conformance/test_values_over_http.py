"""Conversion of JSON values when queues, exchanges, bindings and messages are created over HTTP."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fuzzing.sessions.client import Client
from tests.conformance.operator import Operator
from tests.conformance.typed_fields import field, headers
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, WireChannel

from jumpmq.amqp import methods
from jumpmq.testing import BrokerProcess


def test_an_integer_is_a_long(channel: WireChannel, operator: Operator, unique: Callable[[str], str]) -> None:
    queue = unique("queue")
    body = {"durable": False, "auto_delete": False, "arguments": {"x-max-length": 3}}
    assert operator.ask("PUT", "queues", "/", queue, json=body).status_code == 201
    try:
        with pytest.raises(ChannelClosed) as refused:
            channel.queue(queue, exclusive=False)
        assert refused.value.text.endswith("received none but current is the value '3' of type 'long'")
    finally:
        operator.ask("DELETE", "queues", "/", queue)


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [(3, "l", 3), (1.5, "d", 1.5), (True, "t", True), ([1, "a"], "A", [("l", 1), ("S", "61")])],
)
def test_a_header_published(broker: BrokerProcess, operator: Operator, value: Any, kind: str, written: Any) -> None:
    client = Client(broker.port)
    client.send_method(1, methods.ChannelOpen())
    client.send_method(1, methods.QueueDeclare(auto_delete=True))
    declared = client.call(1, methods.QueueDeclareOk)
    assert isinstance(declared, methods.QueueDeclareOk)
    message = {
        "routing_key": declared.queue,
        "payload": "",
        "payload_encoding": "string",
        "properties": {"headers": {"h": value}},
    }
    answer = operator.ask("POST", "exchanges", "/", "amq.default", "publish", json=message)
    assert answer.json() == {"routed": True}
    client.send_method(1, methods.BasicGet(queue=declared.queue, no_ack=True))
    got = client.wait(lambda event: isinstance(event.method, methods.BasicGetOk))
    client.send_method(1, methods.QueueDelete(queue=declared.queue))
    client.call(1, methods.QueueDeleteOk)
    client.hang_up()
    assert got is not None
    assert got.properties == headers(field("h", kind, written))


def test_a_time_is_shown_in_seconds(channel: WireChannel, operator: Operator, unique: Callable[[str], str]) -> None:
    times: dict[str, Any] = {"when": datetime(2017, 7, 14, 2, 40, tzinfo=UTC)}
    queue = channel.queue(unique("queue"), exclusive=False, arguments=times)
    channel.publish("", queue, b"", Basic.Properties(headers=times))
    wanted = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    until(lambda: operator.see("queues", "/", queue).get("arguments") == {"when": 1_500_000_000})
    (got,) = operator.ask("POST", "queues", "/", queue, "get", json=wanted).json()
    assert got["properties"] == {"headers": {"when": 1_500_000_000}}


@pytest.mark.parametrize(("place", "body"), [("queues", {}), ("exchanges", {"type": "fanout"})])
@pytest.mark.parametrize("value", [None, [None], {"inner": None}])
def test_null_is_refused(
    operator: Operator, unique: Callable[[str], str], place: str, body: dict[str, Any], value: Any
) -> None:
    answer = operator.ask("PUT", place, "/", unique("refused"), json={**body, "arguments": {"x-any": value}})
    assert (answer.status_code, answer.json()["reason"]) == (400, "null_not_allowed")


def test_an_exclusive_queue_is_got_from_by_a_client_of_amqp(
    channel: WireChannel, operator: Operator, unique: Callable[[str], str]
) -> None:
    queue = unique("queue")
    channel.queue(queue, exclusive=True)
    wanted = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    for ask, beginning in (
        (operator.ask("POST", "queues", "/", queue, "get", json=wanted), "405 RESOURCE_LOCKED - cannot obtain"),
        (operator.ask("DELETE", "queues", "/", queue, "contents"), "cannot obtain"),
    ):
        assert ask.status_code == 400
        assert ask.json()["reason"].startswith(f"{beginning} exclusive access to locked queue '{queue}' in vhost '/'.")
