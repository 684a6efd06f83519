"""Queues with priorities: the order of deliveries, of returned messages, and of dropped messages."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import until
from tests.wire import Basic, Content, Queue, WireChannel

Name = Callable[[str], str]
Put = tuple[int | None, bytes]


def declare(channel: WireChannel, **arguments: Any) -> str:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return channel.queue(arguments={"x-max-priority": 5, **named})


def fill(channel: WireChannel, queue: str, *messages: Put) -> None:
    channel.confirm_select()
    channel._confirmed.clear()
    for priority, body in messages:
        channel.publish("", queue, body, Basic.Properties(priority=priority, delivery_mode=2))
    channel.wait_for_confirms()


def get(channel: WireChannel, queue: str) -> Content:
    message = channel.get(queue, no_ack=False)
    assert message is not None
    return message


def test_the_higher_come_first_and_equals_in_order(channel: WireChannel) -> None:
    queue = declare(channel)
    fill(
        channel, queue,
        (None, b"none"), (0, b"0"), (1, b"1"), (5, b"5"), (9, b"9"), (255, b"255"), (5, b"5 again"), (3, b"3"),
    )  # fmt: skip
    assert channel.bodies(queue) == [b"5", b"9", b"255", b"5 again", b"3", b"1", b"none", b"0"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 0}])
def test_without_priorities_they_mean_nothing(channel: WireChannel, arguments: dict[str, Any]) -> None:
    queue = channel.queue(arguments=arguments)
    fill(channel, queue, (0, b"0"), (5, b"5"), (3, b"3"))
    assert channel.bodies(queue) == [b"0", b"5", b"3"]


def test_what_comes_back_has_its_place_in_its_priority(channel: WireChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, (1, b"1a"), (1, b"1b"), (3, b"3a"), (3, b"3b"))
    first, second, third = (get(channel, queue) for _ in range(3))
    for message in (second, third, first):
        channel.send(Basic.Nack(delivery_tag=message.method.delivery_tag, requeue=True))
    again = [get(channel, queue) for _ in range(4)]
    assert [(one.body, one.method.redelivered) for one in again] == [
        (b"3a", True), (b"3b", True), (b"1a", True), (b"1b", False),
    ]  # fmt: skip


def test_too_much_drops_the_highest_first(channel: WireChannel) -> None:
    dead = channel.queue()
    queue = declare(channel, max_length=3, dead_letter_exchange="", dead_letter_routing_key=dead)
    fill(channel, queue, (5, b"5"), (1, b"1"), (3, b"3"), (2, b"2"), (4, b"4"), (0, b"0"))
    until(lambda: channel.ready(dead) == 3)
    assert channel.bodies(queue) == [b"2", b"1", b"0"]
    assert channel.bodies(dead) == [b"5", b"4", b"3"]


def test_a_consumer_gets_what_is_higher_by_then(channel: WireChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, (1, b"1a"), (1, b"1b"))
    channel.call(Basic.Qos(prefetch_count=1))
    channel.consume(queue)
    first = channel.next()
    other = channel.connection.channel()
    fill(other, queue, (4, b"4"))
    bodies = [first.body]
    for tag in (1, 2):
        channel.send(Basic.Ack(delivery_tag=tag))
        bodies.append(channel.next().body)
    assert bodies == [b"1a", b"4", b"1b"]


def test_purging_counts_all(channel: WireChannel) -> None:
    queue = declare(channel)
    fill(channel, queue, (1, b"1"), (3, b"3"), (3, b"3"))
    assert channel.call(Queue.Purge(queue=queue)).message_count == 3
    assert channel.get(queue) is None


def test_what_has_expired_behind_a_higher_one_is_not_delivered(channel: WireChannel) -> None:
    dead = channel.queue()
    queue = declare(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.confirm_select()
    channel.publish("", queue, b"low", Basic.Properties(priority=1, expiration="50"))
    channel.publish("", queue, b"high", Basic.Properties(priority=5))
    channel.wait_for_confirms()
    time.sleep(0.3)
    assert channel.bodies(queue) == [b"high"]
    until(lambda: channel.ready(dead) == 1)
    assert channel.bodies(dead) == [b"low"]
