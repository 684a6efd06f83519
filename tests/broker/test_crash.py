"""A killed broker loses no confirmed message; a stopped broker keeps its exact state."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest
from tests.broker.traffic import Consumer, Letter, Publisher, contents, key_of, kill_under, letter_of
from tests.brokers import config_of, copied, in_loop, queue_of, started, stopped, with_channel
from tests.brokers import declare as declare_queue
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Content, Exchange, Queue, WireChannel, login

from jumpmq.broker import BrokerError
from jumpmq.store.stream_end import segment_path
from jumpmq.testing import JumpMQ

QUEUES = {"q1": "1", "q2": "1", "q3": "2", "q4": "2"}
ROUNDS = (0.4, 1.2, 4.5, 0.8)
"""Approximate seconds of load before each kill."""
NOTED_AFTER = 3.0
"""Seconds until an acknowledgement surely survives a kill: acknowledgements are recorded about once a second."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JumpMQ]:
    """A broker in a separate process, for kills and restarts."""
    with JumpMQ(tmp_path / "data") as running:
        yield running


def declare(channel: WireChannel) -> None:
    """A durable hash exchange over durable queues."""
    channel.call(Exchange.Declare(exchange="flights", exchange_type="x-consistent-hash", durable=True))
    for queue, weight in QUEUES.items():
        channel.queue(queue, durable=True, exclusive=False)
        channel.bind(queue, "flights", weight)


class Account:
    """Messages required in the queues, and messages required to be absent."""

    def __init__(self) -> None:
        self.publishers = [Publisher(number, "flights") for number in range(3)]
        self.confirmed: set[Letter] = set()
        self.acknowledged: dict[Letter, float] = {}
        self.maybe_acknowledged: set[Letter] = set()
        self.delivered: set[Letter] = set()
        self.queue_of_key: dict[str, str] = {}

    def load(self, broker: JumpMQ, seconds: float) -> float:
        """Keep the broker busy, then kill it; return the time of the kill."""
        self.publishers = [Publisher(one.number, "flights", one.sent) for one in self.publishers]
        consumer = Consumer(list(QUEUES))
        killed_at = kill_under(broker, [*self.publishers, consumer], seconds)
        for publisher in self.publishers:
            self.confirmed |= {(publisher.number, number) for number in publisher.confirmed}
        self.acknowledged |= consumer.acknowledged
        self.maybe_acknowledged |= consumer.maybe_acknowledged
        self.delivered |= consumer.delivered
        return killed_at

    def check(self, found: dict[str, list[Content]], killed_at: float) -> None:
        everything = [letter_of(message) for messages in found.values() for message in messages]
        assert len(everything) == len(set(everything)), "twice in the queues"
        assert self.confirmed - self.maybe_acknowledged <= set(everything), "lost"
        assert {number for number, _ in everything} <= {0, 1, 2}
        assert all(number <= self.publishers[publisher].sent for publisher, number in everything), "never sent"
        gone = {letter for letter, at in self.acknowledged.items() if killed_at - at > NOTED_AFTER}
        assert not gone & set(everything), "acknowledged long ago"
        for queue, messages in found.items():
            self._check_queue(queue, messages)
        # A message present now must stay until acknowledged again; a missing message must never return.
        self.maybe_acknowledged -= set(everything)
        self.acknowledged = dict.fromkeys(self.acknowledged.keys() - set(everything), 0.0)

    def _check_queue(self, queue: str, messages: list[Content]) -> None:
        last = dict.fromkeys(range(3), 0)
        for message in messages:
            publisher, number = letter_of(message)
            assert number > last[publisher], "out of order"
            last[publisher] = number
            assert message.method.redelivered or (publisher, number) not in self.delivered, "not marked"
            assert self.queue_of_key.setdefault(key_of(message), queue) == queue, "a key in two queues"


def test_killed_in_mid_load(broker: JumpMQ) -> None:
    with login(broker.port) as connection:
        declare(connection.channel())
    account, acknowledged_long_ago = Account(), 0
    for seconds in ROUNDS:
        killed_at = account.load(broker, seconds)
        acknowledged_long_ago += sum(0 < at < killed_at - NOTED_AFTER for at in account.acknowledged.values())
        broker.start()
        account.check(contents(broker.port, list(QUEUES)), killed_at)
    assert len(account.confirmed) > 1000
    assert len(account.queue_of_key) > 30  # of 60; the consumer may have had all of a key
    assert acknowledged_long_ago > 100  # enough messages for the check
    account.check(contents(broker.port, list(QUEUES), acknowledge=True), killed_at)
    assert broker.stop() == 0
    broker.start()
    assert not any(contents(broker.port, list(QUEUES)).values())


def destinations(channel: WireChannel, keys: list[str]) -> dict[str, str]:
    """Return the queue of every key, by publishing to the exchange ``ring`` and searching the queues."""
    channel.confirm_select()
    for key in keys:
        channel.publish("ring", key, key.encode())
    channel.wait_for_confirms()
    return {body.decode(): queue for queue in ("r1", "r2", "r3") for body in channel.bodies(queue)}


def declare_ring(channel: WireChannel) -> None:
    """Declare a ring with a removed queue: the ring's state is more than its bindings."""
    channel.call(Exchange.Declare(exchange="ring", exchange_type="x-consistent-hash", durable=True))
    for queue, weight in (("r1", "3"), ("r2", "2"), ("gone", "4"), ("r3", "5")):
        channel.queue(queue, durable=True, exclusive=False)
        channel.bind(queue, "ring", weight)
    channel.call(Queue.Unbind(queue="gone", exchange="ring", routing_key="4"))


def exists(broker: JumpMQ, method: Queue.Declare | Exchange.Declare) -> bool:
    """Return True if a passive declare succeeds."""
    with login(broker.port) as connection:
        try:
            connection.channel().call(method)
        except ChannelClosed as closed:
            assert closed.code == 404
            return False
        return True


def test_definitions_and_decisions_survive_a_kill_and_what_is_transient_does_not(broker: JumpMQ) -> None:
    keys = [str(number) for number in range(500)]
    with login(broker.port) as connection:
        channel = connection.channel()
        declare_ring(channel)
        channel.exchange("through", "topic", durable=True, auto_delete=False)
        channel.call(Exchange.Bind(destination="through", source="amq.direct", routing_key="k"))
        channel.bind("r1", "through", "#")
        channel.exchange("passing", "fanout", durable=False, auto_delete=False)
        channel.queue("passing", durable=False, exclusive=False)
        channel.bind("r1", "passing")
        channel.bind("passing", "amq.fanout")
        before = destinations(channel, keys)
        channel.publish("amq.direct", "k", b"transient")
        assert channel.ready("r1") == 1
    broker.kill()
    broker.start()
    with login(broker.port) as connection:
        channel = connection.channel()
        assert channel.bodies("r1") == []
        assert destinations(channel, keys) == before
        channel.publish("amq.direct", "k", b"through two exchanges")
        assert channel.bodies("r1") == [b"through two exchanges"]
        channel.queue("r1", durable=True, exclusive=False)
    assert set(before.values()) == {"r1", "r2", "r3"}
    assert not exists(broker, Queue.Declare(queue="passing", passive=True))
    assert not exists(broker, Exchange.Declare(exchange="passing", passive=True))
    assert exists(broker, Queue.Declare(queue="gone", passive=True))


@pytest.mark.slow
def test_a_stopped_broker_redelivers_exactly_what_was_not_acknowledged(broker: JumpMQ) -> None:
    with login(broker.port) as connection:
        channel = connection.channel()
        channel.queue("orders", durable=True, exclusive=False)
        channel.confirm_select()
        for number in range(1, 11):
            channel.publish("", "orders", b"%d" % number, Basic.Properties(delivery_mode=2))
        channel.publish("", "orders", b"transient")
        channel.wait_for_confirms()
        channel.call(Basic.Qos(prefetch_count=6))
        channel.consume("orders")
        channel.take(6)
        for tag in (2, 5):
            channel.send(Basic.Ack(delivery_tag=tag))
        channel.call(Basic.Qos(prefetch_count=6))
        assert broker.stop() == 0
    broker.start()
    (messages,) = contents(broker.port, ["orders"]).values()
    assert [(one.body, one.method.redelivered) for one in messages] == [
        (b"1", True), (b"3", True), (b"4", True), (b"6", True), (b"7", True), (b"8", True),
        (b"9", False), (b"10", False),
    ]  # fmt: skip
    broker.kill()
    broker.start()
    (messages,) = contents(broker.port, ["orders"]).values()
    assert [one.method.redelivered for one in messages] == [True] * 8


@pytest.mark.parametrize("crash", [True, False])
@in_loop
async def test_a_start_that_fails_changes_nothing_of_what_was_delivered(tmp_path: Path, crash: bool) -> None:
    """A failed start, as with a used port, changes no record of deliveries."""
    persistent = pika.BasicProperties(delivery_mode=2)

    def publish(channel: Any) -> None:
        channel.confirm_delivery()
        for _ in range(2):
            channel.basic_publish("", "q", b"", persistent)
        channel.basic_get("q")

    broker = await started(config_of(1, 1, tmp_path / "stopped"))
    await declare_queue(broker, "q")
    await with_channel(broker, publish)
    await broker.committed()
    copied(tmp_path / "stopped", tmp_path / "killed")
    await stopped(broker)
    config = config_of(1, 1, tmp_path / ("killed" if crash else "stopped"))
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(BrokerError, match="in use"):
        await started(replace(config, port=other.getsockname()[1]))
    broker = await started(config)
    assert [message.redelivered for message in queue_of(broker, "q").take(2)] == [True, crash]


STRATEGIES = ("at-most-once", "at-least-once")


@pytest.mark.slow
def test_a_message_is_kept_until_its_letter_is_on_disk_in_a_stream(broker: JumpMQ, tmp_path: Path) -> None:
    """A message stays until its dead letter is on disk in a stream, whose files may fail or be late."""
    with login(broker.port) as connection:
        channel = connection.channel()
        channel.queue("grave", durable=True, exclusive=False, arguments={"x-queue-type": "stream"})
        (stream,) = (tmp_path / "data" / "streams").iterdir()
        in_the_way = segment_path(stream, 0)
        in_the_way.mkdir()
        for strategy in STRATEGIES:
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
            surely = {"x-queue-type": "quorum", "x-dead-letter-strategy": strategy, "x-overflow": "reject-publish"}
            channel.queue(strategy, durable=True, exclusive=False, arguments=arguments | surely)
        channel.confirm_select()
        for strategy in STRATEGIES:
            channel.publish("", strategy, b"dead")
        channel.wait_for_confirms()
        for strategy in STRATEGIES:
            channel.send(Basic.Reject(arrival(channel, strategy).method.delivery_tag, requeue=False))
        time.sleep(1.5)  # settlements are on disk by now
    broker.kill()
    in_the_way.rmdir()
    broker.start()
    with login(broker.port) as connection:
        channel = connection.channel()
        for strategy in STRATEGIES:
            channel.send(Basic.Reject(arrival(channel, strategy).method.delivery_tag, requeue=False))
        until(lambda: channel.ready("grave") == 2)
        connection.close()
    assert broker.stop() == 0
    broker.start()
    with login(broker.port) as connection:
        channel = connection.channel()
        assert [channel.ready(strategy) for strategy in STRATEGIES] == [0, 0]


def arrival(channel: WireChannel, queue: str) -> Content:
    """The next message of a queue, to be settled."""
    return until(lambda: channel.get(queue, no_ack=False))
