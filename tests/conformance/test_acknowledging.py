"""Delivered, unsettled messages, and the methods that settle them."""

from collections.abc import Callable

import pytest
from tests.wire import Basic, Channel, ChannelClosed, Content, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess


@pytest.fixture
def delivered(channel: WireChannel, queue: str) -> list[Content]:
    """Five messages, 0 to 4, delivered to a consumer of the channel with delivery tags 1 to 5."""
    for number in range(5):
        channel.publish("", queue, str(number).encode())
    channel.consume(queue, "reader")
    deliveries = channel.take(5)
    assert [delivery.method.delivery_tag for delivery in deliveries] == [1, 2, 3, 4, 5]
    return deliveries


def bodies(deliveries: list[Content]) -> list[int]:
    return [int(delivery.body) for delivery in deliveries]


def left_after_cancel(channel: WireChannel, queue: str) -> list[tuple[int, bool]]:
    """Numbers and redelivered flags of the queue's messages, after the channel has returned all messages."""
    channel.call(Basic.Cancel(consumer_tag="reader"))
    channel.call(Basic.Recover(requeue=True))
    messages = iter(lambda: channel.get(queue), None)
    return [(int(message.body), message.method.redelivered) for message in messages]


@pytest.mark.usefixtures("delivered")
class TestSettling:
    def test_ack_settles_one(self, channel: WireChannel, queue: str) -> None:
        channel.send(Basic.Ack(delivery_tag=3))
        assert left_after_cancel(channel, queue) == [(0, True), (1, True), (3, True), (4, True)]

    def test_ack_multiple_settles_all_up_to_the_tag(self, channel: WireChannel, queue: str) -> None:
        channel.send(Basic.Ack(delivery_tag=3, multiple=True))
        assert left_after_cancel(channel, queue) == [(3, True), (4, True)]

    def test_ack_multiple_of_zero_settles_all(self, channel: WireChannel, queue: str) -> None:
        channel.send(Basic.Ack(delivery_tag=0, multiple=True))
        assert left_after_cancel(channel, queue) == []

    def test_reject_drops(self, channel: WireChannel, queue: str) -> None:
        channel.send(Basic.Reject(delivery_tag=1, requeue=False))
        assert left_after_cancel(channel, queue) == [(1, True), (2, True), (3, True), (4, True)]

    def test_nack_multiple_drops_all_up_to_the_tag(self, channel: WireChannel, queue: str) -> None:
        channel.send(Basic.Nack(delivery_tag=4, multiple=True, requeue=False))
        assert left_after_cancel(channel, queue) == [(4, True)]

    def test_an_acknowledged_tag_below_a_multiple_is_passed_over(self, channel: WireChannel, queue: str) -> None:
        channel.send(Basic.Ack(delivery_tag=2))
        channel.send(Basic.Nack(delivery_tag=3, multiple=True, requeue=False))
        assert left_after_cancel(channel, queue) == [(3, True), (4, True)]

    def test_ack_multiple_of_an_unknown_tag(self, channel: WireChannel) -> None:
        channel.send(Basic.Ack(delivery_tag=9, multiple=True))
        with pytest.raises(ChannelClosed) as closed:
            channel.next()
        assert closed.value.text == "PRECONDITION_FAILED - unknown delivery tag 9"

    def test_reject_requeues_to_the_same_consumer(self, channel: WireChannel) -> None:
        channel.send(Basic.Reject(delivery_tag=3, requeue=True))
        again = channel.next()
        assert (again.body, again.method.redelivered, again.method.delivery_tag) == (b"2", True, 6)

    def test_nack_multiple_requeues_in_order(self, channel: WireChannel) -> None:
        channel.send(Basic.Nack(delivery_tag=3, multiple=True, requeue=True))
        assert bodies(channel.take(3)) == [0, 1, 2]

    def test_recover_delivers_again(self, channel: WireChannel) -> None:
        channel.call(Basic.Recover(requeue=True))
        again = channel.take(5)
        assert bodies(again) == [0, 1, 2, 3, 4]
        assert all(delivery.method.redelivered for delivery in again)

    def test_cancel_keeps_what_was_delivered(self, channel: WireChannel, queue: str) -> None:
        channel.call(Basic.Cancel(consumer_tag="reader"))
        assert channel.get(queue) is None
        channel.send(Basic.Ack(delivery_tag=5, multiple=True))
        assert left_after_cancel(channel, queue) == []

    def test_purge_leaves_what_was_delivered(self, channel: WireChannel, queue: str) -> None:
        channel.publish("", queue, b"5")
        channel.next()
        channel.call(Basic.Cancel(consumer_tag="reader"))
        channel.publish("", queue, b"6")
        assert channel.call(Queue.Purge(queue=queue)).message_count == 1
        assert [number for number, _ in left_after_cancel(channel, queue)] == [0, 1, 2, 3, 4, 5]


def test_a_requeued_message_keeps_its_place(channel: WireChannel, queue: str) -> None:
    for number in range(6):
        channel.publish("", queue, str(number).encode())
    first, second, third = (channel.get(queue, no_ack=False) for _ in range(3))
    assert first and second and third
    for message in (third, first, second):
        channel.send(Basic.Reject(delivery_tag=message.method.delivery_tag, requeue=True))
    flags = [(int(m.body), m.method.redelivered) for m in iter(lambda: channel.get(queue), None)]
    assert flags == [(0, True), (1, True), (2, True), (3, False), (4, False), (5, False)]


def test_closing_a_channel_gives_its_messages_back(channel: WireChannel, queue: str) -> None:
    other = channel.connection.channel()
    channel.publish("", queue, b"kept")
    assert channel.get(queue, no_ack=False)
    channel.call(Channel.Close(200, "bye", 0, 0))
    message = other.get(queue)
    assert message is not None
    assert (message.body, message.method.redelivered) == (b"kept", True)


def test_losing_a_connection_gives_its_messages_back(
    broker: BrokerProcess, channel: WireChannel, unique: Callable[[str], str]
) -> None:
    shared = channel.queue(unique("shared"), exclusive=False, auto_delete=True)
    channel.publish("", shared, b"kept")
    lost = login(broker.port)
    lost.channel().consume(shared)
    channel.consume(shared)
    lost.hang_up()
    message = channel.next()
    assert (message.body, message.method.redelivered) == (b"kept", True)


def test_messages_of_automatic_acknowledgement_need_none(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"gone")
    channel.consume(queue, "reader", no_ack=True)
    assert channel.next().body == b"gone"
    assert left_after_cancel(channel, queue) == []


def test_tags_of_get_and_consume_are_one_sequence(channel: WireChannel, queue: str) -> None:
    for _ in range(3):
        channel.publish("", queue)
    got = channel.get(queue, no_ack=False)
    assert got is not None
    channel.consume(queue)
    assert [got.method.delivery_tag, *(delivery.method.delivery_tag for delivery in channel.take(2))] == [1, 2, 3]


def test_a_queue_that_refuses_beyond_its_length_keeps_what_returns_to_it(
    channel: WireChannel, unique: Callable[[str], str]
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = channel.queue(unique("queue"), arguments=arguments)
    channel.consume(queue, "reader")
    for number in range(3):
        channel.publish("", queue, str(number).encode())
        channel.next()
    assert left_after_cancel(channel, queue) == [(0, True), (1, True), (2, True)]
