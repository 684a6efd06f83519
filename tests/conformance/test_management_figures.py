"""The management API's figures of queues, channels and connections are correct, with a delay in RabbitMQ."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, Exchange, WireChannel, WireConnection, login

from jumpmq.testing import BrokerProcess

PERSISTENT = Basic.Properties(delivery_mode=2, timestamp=datetime(2017, 7, 14, 2, 40, tzinfo=UTC))


def shows(operator: Operator, *path: str, **expected: Any) -> None:
    """Wait until a resource has the given values; ``__`` in a key stands for a nested key."""

    def found() -> dict[str, Any]:
        answer = operator.see(*path)
        values = {}
        for key in expected:
            value: Any = answer
            for part in key.split("__"):
                value = value.get(part) if isinstance(value, dict) else None
            values[key] = value
        return values

    try:
        until(lambda: found() == expected)
    except AssertionError:
        assert found() == expected


def test_octets_of_a_queue(channel: WireChannel, operator: Operator, unique: Callable[[str], str]) -> None:
    queue = channel.queue(unique("queue"), durable=True, exclusive=False)
    channel.publish("", queue, b"kept", PERSISTENT)
    channel.publish("", queue, b"transient")
    for body in (b"one", b"three"):
        channel.publish("", queue, body, PERSISTENT)
    assert channel.get(queue, no_ack=False) is not None
    assert channel.get(queue, no_ack=False) is not None
    shows(
        operator, "queues", "/", queue,
        messages=4, messages_ready=2, messages_unacknowledged=2, messages_persistent=3, messages_ram=4,
        messages_ready_ram=2, messages_unacknowledged_ram=2, message_bytes=21, message_bytes_ready=8,
        message_bytes_unacknowledged=13, message_bytes_persistent=12, message_bytes_ram=21, messages_paged_out=0,
        message_bytes_paged_out=0,
    )  # fmt: skip
    channel.send(Basic.Ack(2))
    channel.send(Basic.Nack(1, requeue=True))
    shows(
        operator, "queues", "/", queue,
        messages=3, messages_persistent=3, message_bytes=12, message_bytes_persistent=12,
        message_bytes_unacknowledged=0, head_message_timestamp=1_500_000_000,
    )  # fmt: skip
    channel.send(Basic.Nack(0, multiple=True, requeue=False))


def test_a_transient_queue_has_nothing_persistent(channel: WireChannel, operator: Operator, queue: str) -> None:
    channel.publish("", queue, b"12345", PERSISTENT)
    shows(operator, "queues", "/", queue, message_bytes=5, messages_persistent=0, message_bytes_persistent=0)


def test_what_is_purged_counts_no_more(channel: WireChannel, operator: Operator, unique: Callable[[str], str]) -> None:
    queue = channel.queue(unique("queue"), durable=True, exclusive=False)
    for properties in (None, None, PERSISTENT, PERSISTENT):
        channel.publish("", queue, b"body", properties)
    assert channel.get(queue, no_ack=False) is not None
    channel.purge(queue)
    shows(operator, "queues", "/", queue, messages=1, message_bytes=4, messages_persistent=0, message_bytes_ready=0)


def test_kinds_of_delivery_are_counted(channel: WireChannel, operator: Operator, queue: str) -> None:
    for number in range(6):
        channel.publish("", queue, b"%d" % number)
    channel.get(queue)
    channel.get(queue, no_ack=False)
    channel.send(Basic.Reject(2, requeue=True))
    channel.call(Basic.Qos(prefetch_count=2))
    channel.consume(queue, "asks")
    channel.take(2)
    channel.call(Basic.Cancel("asks"))
    channel.consume(queue, "does not", no_ack=True)
    channel.take(3)
    channel.call(Basic.Cancel("does not"))
    assert channel.get(queue) is None
    channel.send(Basic.Ack(4, multiple=True))
    stats = {
        "publish": 6, "deliver": 2, "deliver_no_ack": 3, "get": 1, "get_no_ack": 1, "get_empty": 1, "redeliver": 1,
        "ack": 2, "deliver_get": 7,
    }  # fmt: skip
    shows(operator, "queues", "/", queue, **{f"message_stats__{name}": count for name, count in stats.items()})
    (name,) = wait_for(lambda: [one["name"] for one in operator.see("channels") if counted(one, "deliver_no_ack") == 3])
    shows(operator, "channels", name, **{f"message_stats__{kind}": count for kind, count in stats.items()})


def test_unroutable_messages_are_counted(
    channel: WireChannel, operator: Operator, unique: Callable[[str], str]
) -> None:
    exchange = channel.exchange(unique("exchange"), "fanout", auto_delete=False)
    queue = channel.queue(unique("queue"))
    channel.confirm_select()
    channel.publish(exchange, "", mandatory=True)
    channel.publish(exchange, "")
    channel.publish(exchange, "")
    channel.bind(queue, exchange)
    channel.publish(exchange, "")
    (name,) = wait_for(
        lambda: [one["name"] for one in operator.see("channels") if counted(one, "drop_unroutable") == 2]
    )
    shows(
        operator, "channels", name,
        message_stats__publish=4, message_stats__confirm=4, message_stats__return_unroutable=1,
        message_stats__drop_unroutable=2,
    )  # fmt: skip
    shows(operator, "exchanges", "/", exchange, message_stats__publish_in=4, message_stats__publish_out=1)
    channel.call(Exchange.Delete(exchange=exchange))


def counted(channel: dict[str, Any], kind: str) -> int:
    return int(channel.get("message_stats", {}).get(kind, 0))


def wait_for(look: Callable[[], list[str]]) -> list[str]:
    until(lambda: bool(look()))
    return look()


def test_what_a_transaction_holds(channel: WireChannel, operator: Operator, queue: str) -> None:
    channel.publish("", queue)
    assert channel.get(queue, no_ack=False) is not None
    channel.select_transactions()
    for _ in range(3):
        channel.publish("", queue)
    channel.send(Basic.Ack(1))
    held = {"messages_uncommitted": 3, "acks_uncommitted": 1, "transactional": True}
    until(lambda: any(one.items() >= held.items() for one in operator.see("channels")))


def test_who_consumes_is_told(
    channel: WireChannel, operator: Operator, queue: str, unique: Callable[[str], str]
) -> None:
    channel.consume(queue, "alone", exclusive=True)
    shows(operator, "queues", "/", queue, exclusive_consumer_tag="alone", single_active_consumer_tag=None)
    single = channel.queue(unique("single"), arguments={"x-single-active-consumer": True})
    channel.consume(single, "first")
    channel.consume(single, "second")
    shows(operator, "queues", "/", single, exclusive_consumer_tag=None, single_active_consumer_tag="first")
    until(lambda: len(operator.see("queues", "/", single)["consumer_details"]) == 2)
    tags = {one["consumer_tag"]: one["active"] for one in operator.see("queues", "/", single)["consumer_details"]}
    assert tags == {"first": True, "second": False}


def test_who_owns_an_exclusive_queue_is_told(channel: WireChannel, operator: Operator, queue: str) -> None:
    until(lambda: bool(operator.see("queues", "/", queue).get("owner_pid_details")))
    owner = operator.see("queues", "/", queue)["owner_pid_details"]
    assert owner["name"] in [one["name"] for one in operator.see("connections")]
    assert owner["name"].startswith(f"{owner['peer_host']}:{owner['peer_port']} -> ")


def test_capacity_is_none_without_consumers_and_full_with_idle_ones(
    channel: WireChannel, operator: Operator, queue: str
) -> None:
    shows(operator, "queues", "/", queue, consumer_capacity=0, consumer_utilisation=0)
    channel.consume(queue)
    until(lambda: operator.see("queues", "/", queue)["consumer_capacity"] > 0.9)


def test_since_when_a_queue_is_idle(channel: WireChannel, operator: Operator, queue: str) -> None:
    until(lambda: "idle_since" in operator.see("queues", "/", queue))
    since = datetime.fromisoformat(operator.see("queues", "/", queue)["idle_since"])
    assert abs((datetime.now(UTC) - since).total_seconds()) < 60


def test_the_connections_of_a_user(broker: BrokerProcess, operator: Operator) -> None:
    operator.ask("PUT", "users", "alice", json={"password": "secret", "tags": ""})
    operator.ask("PUT", "permissions", "/", "alice", json={"configure": ".*", "write": ".*", "read": ".*"})
    connection = login(broker.port, user="alice", password="secret")
    until(lambda: bool(operator.see("connections", "username", "alice")))
    (shown,) = operator.see("connections", "username", "alice")
    assert {key: shown[key] for key in ("user", "vhost")} == {"user": "alice", "vhost": "/"}
    assert operator.see("connections", "username", "nobody") == []
    assert operator.ask("DELETE", "connections", "username", "nobody").status_code == 204
    assert operator.ask("DELETE", "connections", "username", "alice").status_code == 204
    assert connection.refusal() == (320, "CONNECTION_FORCED - Closed via management plugin")
    operator.ask("DELETE", "users", "alice")


def test_parameters_are_policies_and_limits(operator: Operator) -> None:
    operator.ask("PUT", "vhosts", "parameters")
    operator.ask("PUT", "vhost-limits", "parameters", "max-queues", json={"value": 7})
    body = {"pattern": "^q$", "definition": {"max-length": 5}, "apply-to": "queues"}
    for kind in ("policies", "operator-policies"):
        operator.ask("PUT", kind, "parameters", "p", json=body)
    limit = {"vhost": "parameters", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 7}}
    policy = {"vhost": "parameters", "component": "operator_policy", "name": "p", "value": body | {"priority": 0}}
    both = [one for one in operator.see("parameters") if one["vhost"] == "parameters"]
    assert sorted(both, key=lambda one: one["name"]) == [limit, policy]
    assert operator.see("parameters", "vhost-limits", "parameters") == [limit]
    assert operator.see("parameters", "operator_policy", "parameters", "p") == policy
    assert operator.see("parameters", "policy", "parameters") == [policy | {"component": "policy"}]
    assert operator.see("parameters", "nothing", "parameters") == []
    assert operator.ask("GET", "parameters", "nothing", "nowhere").status_code == 404
    assert operator.ask("GET", "parameters", "policy", "parameters", "other").status_code == 404
    operator.ask("DELETE", "vhosts", "parameters")


def test_the_connection_that_was_used(connection: WireConnection, operator: Operator) -> None:
    until(lambda: any(one.get("send_pend") == 0 and one["user"] == "guest" for one in operator.see("connections")))


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("page=0", "invalid_pagination_parameters"),
        ("page=1&page_size=501", "invalid_pagination_parameters"),
        ("page=9", "page_out_of_range"),
    ],
)
def test_a_page_that_cannot_be_is_refused(operator: Operator, query: str, error: str) -> None:
    refused = operator.ask("GET", "queues", params=query)
    assert (refused.status_code, refused.json()["error"]) == (400, error)
