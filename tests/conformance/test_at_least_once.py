"""Quorum queues with at-least-once dead-lettering: an unroutable dead letter is kept and retried."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, Closed, Content, Exchange, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess, RabbitMQ

Name = Callable[[str], str]


@pytest.fixture(scope="module", autouse=True)
def impatient(broker: BrokerProcess) -> None:
    """Shorten RabbitMQ's retries of unroutable dead letters (three minutes) and its counting (five seconds)."""
    if isinstance(broker, RabbitMQ):
        times = {"dead_letter_worker_publisher_confirm_timeout": 500, "quorum_tick_interval": 300}
        broker.ctl(
            "eval", " ".join(f"application:set_env(rabbit, {name}, {time})," for name, time in times.items()) + " ok."
        )


class World:
    """A fanout exchange of dead letters without queues, and quorum queues that are deleted at the end."""

    def __init__(self, channel: WireChannel, operator: Operator, unique: Name) -> None:
        self.channel, self._operator, self._unique = channel, operator, unique
        self.exchange = channel.exchange(unique("dead"), "fanout", durable=True, auto_delete=False)
        self.queues: list[str] = []
        channel.confirm_select()

    def queue(self, **arguments: Any) -> str:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        name = self._unique("queue")
        self.queues.append(name)
        arguments = {"x-queue-type": "quorum", **named}
        return self.channel.queue(name, durable=True, exclusive=False, arguments=arguments)

    def source(self, overflow: str = "reject-publish", **arguments: Any) -> str:
        """A queue with at-least-once dead-lettering, which requires an overflow of ``reject-publish``."""
        surely = {"dead_letter_strategy": "at-least-once", "dead_letter_exchange": self.exchange}
        return self.queue(**surely, overflow=overflow, **arguments)

    def target(self, **arguments: Any) -> str:
        """A queue for dead letters."""
        name = self.queue(**arguments)
        self.channel.bind(name, self.exchange)
        return name

    def publish(self, queue: str, *bodies: bytes) -> None:
        for body in bodies:
            self.channel.publish("", queue, body)
        self.channel.wait_for_confirms()

    def publish_until_refused(self, queue: str) -> None:
        """Publish one by one, three messages at most, until the queue refuses a message."""
        for _ in range(3):
            self.channel.publish("", queue, b"too much")
            if isinstance(self.channel.next(), Basic.Nack):
                return
        raise AssertionError("none was refused")

    def reject(self, queue: str, *bodies: bytes) -> None:
        """Dead-letter messages by rejection."""
        for body in bodies:
            self.publish(queue, body)
            self.channel.send(Basic.Reject(self.arrival(queue).method.delivery_tag, False))

    def arrival(self, queue: str) -> Content:
        return until(lambda: self.channel.get(queue, no_ack=False))

    def waits(self, queue: str, count: int) -> None:
        """Wait until the management API shows the number of waiting dead letters."""
        until(lambda: self._operator.see("queues", "/", queue).get("messages_dlx") == count)


@pytest.fixture
def world(broker: BrokerProcess, channel: WireChannel, operator: Operator, unique: Name) -> Iterator[World]:
    world = World(channel, operator, unique)
    yield world
    with login(broker.port) as connection, contextlib.suppress(Closed):
        cleaner = connection.channel()
        for queue in world.queues:
            cleaner.call(Queue.Delete(queue=queue))
        cleaner.call(Exchange.Delete(exchange=world.exchange))
        connection.close()


@pytest.mark.parametrize("reason", ["rejected", "expired", "delivery_limit"])
def test_a_letter_says_why_it_died(world: World, reason: str) -> None:
    target = world.target()
    arguments: dict[str, dict[str, Any]] = {"expired": {"message_ttl": 20}, "delivery_limit": {"delivery_limit": 1}}
    source = world.source(**arguments.get(reason, {}))
    if reason == "rejected":
        world.reject(source, b"1")
    else:
        world.publish(source, b"1")
    for _ in range(2 if reason == "delivery_limit" else 0):
        world.channel.send(Basic.Nack(world.arrival(source).method.delivery_tag, requeue=True))
    letter = world.arrival(target)
    headers = letter.headers
    assert letter.body == b"1"
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == (source, reason)
    (death,) = headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == (source, reason, 1)
    world.waits(source, 0)


def test_letters_keep_their_order(world: World) -> None:
    source, target = world.source(), world.target()
    world.reject(source, b"1", b"2", b"3")
    assert [world.arrival(target).body for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_letter_without_a_queue_waits_for_one(world: World) -> None:
    source = world.source()
    world.reject(source, b"1", b"2")
    world.waits(source, 2)
    assert world.channel.ready(source) == 0
    target = world.target()
    assert sorted(world.arrival(target).body for _ in range(2)) == [b"1", b"2"]
    world.waits(source, 0)


def test_a_letter_without_an_exchange_waits_for_one(world: World) -> None:
    source = world.source()
    world.channel.call(Exchange.Delete(exchange=world.exchange))
    world.reject(source, b"1")
    world.waits(source, 1)
    world.channel.exchange(world.exchange, "fanout", durable=True, auto_delete=False)
    target = world.target()
    assert world.arrival(target).body == b"1"
    world.waits(source, 0)


def test_a_queue_that_is_full_gets_it_later(world: World) -> None:
    source, target = world.source(), world.target(max_length=1, overflow="reject-publish")
    world.reject(source, b"1")
    until(lambda: world.channel.ready(target) == 1)
    world.reject(source, b"2")
    world.reject(source, b"3")
    until(lambda: world.channel.ready(source) == 0)
    world.channel.purge(target)
    assert world.arrival(target).body in (b"2", b"3")


def test_letters_that_wait_are_gone_with_their_queue(world: World) -> None:
    source = world.source()
    world.reject(source, b"1")
    world.waits(source, 1)
    world.channel.call(Queue.Delete(queue=source))
    target = world.target()
    assert world.channel.is_silent(1)
    assert world.channel.get(target) is None


def test_purging_leaves_the_letters_that_wait(world: World) -> None:
    source = world.source()
    world.reject(source, b"1")
    world.waits(source, 1)
    assert world.channel.purge(source) == 0
    target = world.target()
    assert world.arrival(target).body == b"1"


def test_letters_that_wait_count_towards_the_length(world: World) -> None:
    source = world.source(max_length=2)
    world.reject(source, b"1", b"2")
    world.waits(source, 2)
    world.publish_until_refused(source)
    assert world.channel.ready(source) <= 1  # RabbitMQ's quorum queues exceed their limit by one
    world.waits(source, 2)


def test_a_queue_that_drops_what_is_too_much_keeps_no_dead(world: World) -> None:
    source = world.source(overflow="drop-head")
    world.reject(source, b"1")
    world.waits(source, 0)
    target = world.target()
    assert world.channel.is_silent(1)
    assert world.channel.get(target) is None
