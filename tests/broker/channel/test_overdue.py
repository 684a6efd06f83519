"""Unacknowledged deliveries close their channel after a timeout, as in RabbitMQ."""

from collections.abc import Iterator
from itertools import product

import pytest
from tests.wire import Basic, ChannelClosed, Content, WireChannel, WireConnection, closing, login

import jumpmq


@pytest.fixture(scope="module")
def connection() -> Iterator[WireConnection]:
    with jumpmq.running(consumer_timeout=2) as broker, closing(login(broker.port)) as opened:
        yield opened


def test_the_channel_is_closed_and_what_it_held_comes_back(connection: WireConnection) -> None:
    other = connection.channel()
    queue = other.queue()
    lazy = connection.channel()
    lazy.call(Basic.Qos(prefetch_count=2))
    lazy.consume(queue)
    for body in (b"1", b"2", b"3"):
        other.publish("", queue, body)
    assert [message.body for message in lazy.take(2)] == [b"1", b"2"]
    with pytest.raises(ChannelClosed) as closed:
        lazy.next()
    assert closed.value.code == 406
    assert closed.value.text == (
        f"PRECONDITION_FAILED - delivery acknowledgement on channel {lazy.number} timed out. Timeout value used: 2000 "
        "ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
    assert closed.value.method == (0, 0)
    assert other.bodies(queue) == [b"1", b"2", b"3"]


def test_who_acknowledges_is_left_alone(connection: WireConnection) -> None:
    channel = connection.channel()
    queue = channel.queue()
    channel.call(Basic.Qos(prefetch_count=1))
    channel.consume(queue)
    channel.publish("", queue)
    for _ in range(8):
        delivery = channel.next()
        assert isinstance(delivery, Content)
        assert channel.is_silent(0.3)
        channel.publish("", queue)
        channel.send(Basic.Ack(delivery.method.delivery_tag))
    channel.call(Basic.Recover(True))


def test_a_queue_or_consumer_has_a_timeout_of_its_own(connection: WireConnection) -> None:
    """A timeout of the queue or consumer replaces the broker's, and the error shows the value in force."""
    patient, hasty = list[WireChannel](), list[WireChannel]()
    for kind, where in product(("classic", "quorum", "stream"), ("queue", "consumer")):
        for channels, timeout in ((patient, 60_000), (hasty, 900)):
            channels.append(channel := connection.channel())
            timeouts = {"x-consumer-timeout": timeout}
            arguments = {"x-queue-type": kind, **(timeouts if where == "queue" else {})}
            queue = channel.queue(f"{kind}-{where}-{timeout}", durable=True, exclusive=False, arguments=arguments)
            channel.publish("", queue)
            channel.call(Basic.Qos(prefetch_count=1))
            offset = {"x-stream-offset": "first"} if kind == "stream" else {}
            channel.consume(queue, arguments=offset | (timeouts if where == "consumer" else {}))
            assert isinstance(channel.next(), Content)
    for channel in hasty:
        with pytest.raises(ChannelClosed, match="Timeout value used: 900 ms"):
            channel.next()
    assert patient[0].is_silent(1.5)  # the short timeouts took more than a second
    for channel in patient:
        assert channel.is_silent(0.02)
        channel.close()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_comes_back_to_a_slot_is_the_first_of_its_key(connection: WireConnection, kind: str) -> None:
    lazy, other = connection.channel(), connection.channel()
    slots = {"x-slots": 4, "x-in-flight-per-slot": 1, "x-queue-type": kind, "x-consumer-timeout": 900}
    queue = other.queue(f"{kind}-slots", durable=True, exclusive=False, arguments=slots)
    lazy.consume(queue)
    other.publish("", queue, b"1")
    other.publish("", queue, b"2")
    assert lazy.next().body == b"1"
    with pytest.raises(ChannelClosed, match="Timeout value used: 900 ms"):
        lazy.next()
    other.consume(queue)
    for body in (b"1", b"2"):
        delivery = other.next()
        assert (delivery.body, delivery.method.redelivered) == (body, body == b"1")
        assert other.is_silent(0.05)
        other.send(Basic.Ack(delivery.method.delivery_tag))


@pytest.mark.slow
@pytest.mark.parametrize("late", ["plain", "member"])
def test_a_plain_consumer_and_a_member_of_a_group_have_timeouts_of_their_own(
    connection: WireConnection, late: str
) -> None:
    """An overdue delivery of one consumer counts, though an older delivery has a longer timeout."""
    channel = connection.channel()
    plain, shared = channel.queue(), channel.queue()
    patient, hasty = {"x-consumer-timeout": 60_000}, {"x-consumer-timeout": 900}
    group = {"x-consumer-group": "g"}
    channel.call(Basic.Qos(prefetch_count=1))
    consumers = [
        (plain, patient if late == "member" else hasty),
        (shared, group | (patient if late == "plain" else hasty)),
    ]
    for queue, arguments in reversed(consumers) if late == "plain" else consumers:
        channel.publish("", queue, queue.encode())
        channel.consume(queue, queue, arguments=arguments)
        delivery = channel.next()
        assert isinstance(delivery, Content)
        assert delivery.body == queue.encode()
    if late == "plain":
        with pytest.raises(ChannelClosed, match="Timeout value used: 900 ms"):
            channel.next()
    else:
        cancelled = channel.next()
        assert isinstance(cancelled, Basic.Cancel)
        assert cancelled.consumer_tag == shared
        assert channel.is_silent(0.5)
        channel.close()
