"""Times of expiry of messages and queues; expired messages are never delivered."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.waiting import punctually, until
from tests.wire import Basic, Queue, Tx, WireChannel, WireConnection

Name = Callable[[str], str]


def expiring(milliseconds: int) -> Any:
    return Basic.Properties(expiration=str(milliseconds))


def test_what_expired_behind_another_message_is_never_delivered(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"long", expiring(60_000))
    channel.publish("", queue, b"short", expiring(20))
    channel.publish("", queue, b"for ever")
    until(lambda: channel.ready(queue) == 3)
    assert channel.is_silent(0.1)
    channel.consume(queue, no_ack=True)
    assert [message.body for message in channel.take(2)] == [b"long", b"for ever"]
    assert channel.is_silent(0.05)


def test_what_expired_behind_another_message_is_never_got(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"long", expiring(60_000))
    channel.publish("", queue, b"short", expiring(20))
    channel.publish("", queue, b"for ever")
    until(lambda: channel.ready(queue) == 3)
    assert channel.is_silent(0.1)
    assert channel.bodies(queue) == [b"long", b"for ever"]


def test_what_expired_behind_another_message_is_dead_lettered_when_that_is_gone(
    channel: WireChannel, queue: str, unique: Name
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    source = channel.queue(unique("source"), arguments=arguments)
    channel.publish("", source, b"long")
    channel.publish("", source, b"short", expiring(20))
    until(lambda: channel.ready(source) == 2)
    assert channel.is_silent(0.1)
    assert channel.ready(source) == 2
    assert channel.bodies(source) == [b"long"]
    channel.consume(queue, no_ack=True)
    assert channel.next().body == b"short"


@pytest.mark.parametrize("arguments", [{"x-message-ttl": 0}, {}], ids=["queue", "message"])
def test_a_time_to_live_of_0_is_enough_for_a_consumer_that_is_ready(
    channel: WireChannel, unique: Name, arguments: dict[str, Any]
) -> None:
    queue = channel.queue(unique("now"), arguments=arguments)
    properties = Basic.Properties() if arguments else expiring(0)
    channel.consume(queue, "ready")
    channel.publish("", queue, b"in time", properties)
    message = channel.next()
    assert message.body == b"in time"
    channel.call(Basic.Cancel(consumer_tag="ready"))
    channel.send(Basic.Nack(delivery_tag=message.method.delivery_tag, requeue=True))
    assert channel.is_silent(0.05)
    assert channel.bodies(queue) == []


def test_a_time_to_live_counts_from_the_commit(connection: WireConnection, unique: Name) -> None:
    def trial() -> None:
        channel = connection.channel()
        queue = channel.queue(unique("queue"))
        channel.call(Tx.Select())
        channel.publish("", queue, b"in time", expiring(150))
        assert channel.is_silent(0.2)
        channel.call(Tx.Commit())
        assert channel.bodies(queue) == [b"in time"]

    punctually(0.35, trial)


def test_to_ask_for_a_queue_renews_its_lease(connection: WireConnection, operator: Operator, unique: Name) -> None:
    def trial() -> None:
        channel = connection.channel()
        queue = channel.queue(unique("leased"), exclusive=False, arguments={"x-expires": 500})
        for _ in range(4):
            assert channel.is_silent(0.3)
            channel.call(Queue.Declare(queue=queue, passive=True))
        until(lambda: not operator.finds_queue(queue))

    punctually(1.4, trial)


def test_a_queue_with_a_consumer_keeps_its_lease_until_that_leaves(
    channel: WireChannel, operator: Operator, unique: Name
) -> None:
    queue = channel.queue(unique("leased"), exclusive=False, arguments={"x-expires": 300})
    channel.consume(queue, "tenant")
    assert channel.is_silent(0.5)
    assert operator.finds_queue(queue)
    channel.call(Basic.Cancel(consumer_tag="tenant"))
    until(lambda: not operator.finds_queue(queue))


def test_a_ladder_of_queues_is_climbed_without_waiting_for_a_tick(channel: WireChannel, unique: Name) -> None:
    """Messages pass five queues of 5 ms without loss; their latency is a benchmark's subject."""
    end = channel.queue(unique("end"))
    following = end
    for number in range(5):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following, "x-message-ttl": 5}
        following = channel.queue(unique(f"step-{number}"), arguments=arguments)
    channel.consume(end, no_ack=True)
    for number in range(50):
        channel.publish("", following, b"%d" % number)
    assert [message.body for message in channel.take(50)] == [b"%d" % number for number in range(50)]


def test_messages_expire_each_at_its_time(channel: WireChannel, unique: Name, queue: str) -> None:
    source = channel.queue(
        unique("source"), arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    )
    channel.consume(queue, no_ack=True)
    started = time.monotonic()
    for milliseconds in (100, 150, 200):
        channel.publish("", source, b"%d" % milliseconds, expiring(milliseconds))
    for milliseconds in (100, 150, 200):
        assert channel.next().body == b"%d" % milliseconds
        assert time.monotonic() - started >= milliseconds / 1000 - 0.002


def test_what_expired_behind_a_message_that_made_room_goes_too(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("queue"), arguments={"x-max-length": 2})
    channel.publish("", queue, b"long")
    channel.publish("", queue, b"short", expiring(0))
    channel.publish("", queue, b"one too many")
    until(lambda: channel.ready(queue) == 1)
    assert channel.bodies(queue) == [b"one too many"]


def test_what_expired_behind_a_message_that_is_got_is_not_counted(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"long")
    channel.publish("", queue, b"short", expiring(0))
    message = channel.get(queue)
    assert message is not None
    assert (message.body, message.method.message_count) == (b"long", 0)
