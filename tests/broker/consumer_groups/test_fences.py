"""An exchange that grows while a consumer group shares it, as seen by clients and operators."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import requests
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher, until
from tests.broker.consumer_groups.operating import SOON, Api, jumpmqctl

import jumpmq
from jumpmq.testing import JumpMQ

KEYS = 30


def grow(port: int, exchange: str, *numbers: int) -> None:
    """Bind more queues."""
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        channel = connection.channel()
        for number in numbers:
            channel.queue_declare(f"{exchange}-{number}", durable=True)
            channel.queue_bind(f"{exchange}-{number}", exchange, "1")


def test_a_moved_key_waits_and_operators_see_why(broker: jumpmq.RunningBroker, unique: Callable[[str], str]) -> None:
    exchange, checker, api = unique("growing"), Checker(), Api(broker)
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        connection.channel().exchange_declare(exchange, "x-consistent-hash", durable=True)
    grow(broker.port, exchange, 0, 1)
    publisher = Publisher(broker.port, exchange, checker)
    with Member(broker.port, exchange, "g", "first", checker, prefetch=1000, arguments=SOON) as member:
        publisher.publish(KEYS, 3)
        until(lambda: len(member.held) == 3 * KEYS, member)
        grow(broker.port, exchange, 2)
        publisher.publish(KEYS, 2)
        new = f"{exchange}-2"
        until(lambda: _queue(broker, new).get("messages_fenced"), member)
        until(lambda: {one["queue"] for one in api.group(exchange)["units"]} >= {new}, member)
        fences = [one for one in _get(broker, "fences/%2F") if one["queue"] == new]
        held = _queue(broker, new)["messages_fenced"]
        assert held == sum(one["messages_held"] for one in fences) == api.group(exchange)["fenced"]
        assert {one["source"] for one in fences} == {f"{exchange}-0", f"{exchange}-1"}
        assert sum(one["remaining"] for one in fences) == 3 * KEYS
        assert "wait until older messages there are settled" in api.explain(new)
        listed = json.loads(jumpmqctl(broker, "list_fences", "--formatter", "json"))
        assert sum(one["messages_held"] for one in listed if one["queue"] == new) == held
        metrics = requests.get(f"{api.url.removesuffix('/api')}/metrics", auth=("guest", "guest"), timeout=30).text
        assert f'jumpmq_fence_messages_held{{vhost="/",queue="{new}",source="{exchange}-0"}}' in metrics
        key = next(str(one) for one in range(KEYS) if "the key moved from another" in api.explain(new, key=str(one)))
        assert f"of queue '{exchange}-" in api.explain(new, key=key)
        assert not any(queue == new for _, _, queue in member.held.values())
        until(lambda: checker.left == 0, member, settle=True)
        assert _queue(broker, new).get("messages_fenced", 0) == 0
    checker.check()
    publisher.close()


def test_a_moved_key_waits_also_where_the_exchange_was_declared_again(
    broker: jumpmq.RunningBroker, unique: Callable[[str], str]
) -> None:
    exchange, checker = unique("again"), Checker()
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "x-consistent-hash")
        grow(broker.port, exchange, 0)
        with Member(broker.port, exchange, "g", "first", checker, prefetch=1000, arguments=SOON) as member:
            channel.exchange_delete(exchange)
            channel.exchange_declare(exchange, "x-consistent-hash")
            grow(broker.port, exchange, 0)
            publisher = Publisher(broker.port, exchange, checker)
            publisher.publish(KEYS, 2)
            until(lambda: len(member.held) == 2 * KEYS, member)
            grow(broker.port, exchange, 1)
            publisher.publish(KEYS, 2)
            until(lambda: _queue(broker, f"{exchange}-1").get("messages_fenced"), member)
            until(lambda: checker.left == 0, member, settle=True)
            publisher.close()
    checker.check()


def test_a_queue_that_was_unbound_is_emptied_by_members_that_come_later(
    broker: jumpmq.RunningBroker, unique: Callable[[str], str]
) -> None:
    exchange, checker = unique("shrunk"), Checker()
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "x-consistent-hash", durable=True, arguments={"ordered-scaling": True})
        grow(broker.port, exchange, 0, 1)
        publisher = Publisher(broker.port, exchange, checker)
        with Member(broker.port, exchange, "g", "first", checker, prefetch=1000, arguments=SOON) as member:
            publisher.publish(KEYS, 2)
            until(lambda: len(member.held) == 2 * KEYS, member)
            channel.queue_unbind(f"{exchange}-0", exchange, "1")
            publisher.publish(KEYS, 1)
    with Member(broker.port, exchange, "g", "second", checker, arguments=SOON) as member:
        until(lambda: checker.left == 0, member, settle=True)
        assert f"{exchange}-0" in member.queues
    checker.check()
    publisher.close()


def test_a_fence_is_lifted_by_an_operator(broker: jumpmq.RunningBroker, unique: Callable[[str], str]) -> None:
    exchange = unique("lifted")
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "x-modulus-hash", durable=True, arguments={"ordered-scaling": True})
        grow(broker.port, exchange, 0)
        for key in map(str, range(KEYS)):
            channel.basic_publish(exchange, key, b"old")
        until(lambda: _queue(broker, f"{exchange}-0")["messages"] == KEYS)
        grow(broker.port, exchange, 1)
        for key in map(str, range(KEYS)):
            channel.basic_publish(exchange, key, b"new")
        new = f"{exchange}-1"
        assert channel.basic_get(new) == (None, None, None)
        jumpmqctl(broker, "lift_fence", new, f"{exchange}-0")
        until(lambda: channel.basic_get(new, auto_ack=True)[2] == b"new")
        assert not [one for one in _get(broker, "fences") if one["queue"] == new]


def test_a_killed_broker_goes_on_where_it_was(tmp_path: Path) -> None:
    checker = Checker()
    with JumpMQ(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
            arguments = {"ordered-scaling": True}
            connection.channel().exchange_declare("orders", "x-consistent-hash", durable=True, arguments=arguments)
        grow(broker.port, "orders", 0, 1)
        publisher = Publisher(broker.port, "orders", checker)
        publisher.channel.confirm_delivery()
        publisher.publish(KEYS, 3)
        grow(broker.port, "orders", 2, 3)
        publisher.publish(KEYS, 2)
        broker.kill()
        broker.start()
        publisher = Publisher(broker.port, "orders", checker)
        publisher.channel.confirm_delivery()
        publisher.publish(KEYS, 1)
        with Member(broker.port, "orders", "g", "only", checker, prefetch=7, arguments=SOON) as member:
            until(lambda: checker.left == 0, member, settle=True)
        publisher.close()
    checker.check()


def _get(broker: jumpmq.RunningBroker, path: str) -> Any:
    return requests.get(f"{Api(broker).url}/{path}", auth=("guest", "guest"), timeout=30).json()


def _queue(broker: jumpmq.RunningBroker, name: str) -> Any:
    return _get(broker, f"queues/%2F/{name}")
