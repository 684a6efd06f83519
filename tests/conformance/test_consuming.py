"""Consumers: number and order of deliveries, and cancellation."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.wire import METHOD, Basic, Channel, ChannelClosed, Queue, Tx, WireChannel, login

from jumpmq.testing import BrokerProcess, RabbitMQ

Name = Callable[[str], str]


def fill(channel: WireChannel, queue: str, count: int) -> None:
    for number in range(count):
        channel.publish("", queue, str(number).encode())


def test_without_prefetch_everything_comes(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 300)
    channel.consume(queue)
    assert [int(delivery.body) for delivery in channel.take(300)] == list(range(300))


def test_prefetch_limits_each_consumer(channel: WireChannel, unique: Name) -> None:
    first, second = channel.queue(unique("first")), channel.queue(unique("second"))
    fill(channel, first, 10)
    fill(channel, second, 10)
    channel.call(Basic.Qos(prefetch_count=3))
    channel.consume(first, "first")
    channel.consume(second, "second")
    given = Counter(delivery.method.consumer_tag for delivery in channel.take(6))
    assert given == {"first": 3, "second": 3}
    assert channel.is_silent()


def test_global_prefetch_limits_the_channel(channel: WireChannel, unique: Name) -> None:
    first, second = channel.queue(unique("first")), channel.queue(unique("second"))
    fill(channel, first, 10)
    fill(channel, second, 10)
    channel.call(Basic.Qos(prefetch_count=3, global_=True))
    channel.consume(first, "first")
    channel.consume(second, "second")
    channel.take(3)
    assert channel.is_silent()
    channel.send(Basic.Ack(delivery_tag=3, multiple=True))
    channel.take(3)
    assert channel.is_silent()


def test_consumers_of_one_queue_hold_no_more_than_the_global_prefetch_together(
    channel: WireChannel, queue: str
) -> None:
    fill(channel, queue, 20)
    channel.call(Basic.Qos(prefetch_count=4, global_=True))
    channel.consume(queue, "first")
    channel.consume(queue, "second")
    given = [channel.next().method for _ in range(4)]
    assert channel.is_silent()
    for delivery in given:
        channel.send(Basic.Ack(delivery_tag=delivery.delivery_tag))
    channel.take(4)
    assert channel.is_silent()


def test_a_global_prefetch_serves_several_queues(broker: BrokerProcess, channel: WireChannel, unique: Name) -> None:
    """JumpMQ's queues take turns; the order of RabbitMQ's queues depends on the timing of its processes."""
    queues = [channel.queue(unique("turns")) for _ in range(3)]
    for queue in queues:
        fill(channel, queue, 10)
    channel.call(Basic.Qos(prefetch_count=1, global_=True))
    for tag, queue in zip("abc", queues, strict=True):
        channel.consume(queue, tag)
    given = []
    for _ in range(30):
        delivery = channel.next().method
        given.append(delivery.consumer_tag)
        channel.send(Basic.Ack(delivery_tag=delivery.delivery_tag))
    assert Counter(given) == {"a": 10, "b": 10, "c": 10}
    if not isinstance(broker, RabbitMQ):
        assert set(given[:12]) == {"a", "b", "c"}  # 4 each in turn; 10, 2 and 0 queue by queue


def test_a_consumer_that_does_not_acknowledge_waits_for_the_global_prefetch(channel: WireChannel, unique: Name) -> None:
    first, second = channel.queue(unique("acknowledged")), channel.queue(unique("automatic"))
    channel.call(Basic.Qos(prefetch_count=1, global_=True))
    channel.consume(first, "acknowledged")
    channel.consume(second, "automatic", no_ack=True)
    fill(channel, first, 1)
    held = channel.next().method
    fill(channel, second, 3)
    assert channel.is_silent()
    channel.send(Basic.Ack(delivery_tag=held.delivery_tag))
    assert [delivery.method.consumer_tag for delivery in channel.take(3)] == ["automatic"] * 3


def test_what_was_got_takes_no_room_of_the_global_prefetch(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 10)
    channel.call(Basic.Qos(prefetch_count=2, global_=True))
    got = []
    for _ in range(2):
        message = channel.get(queue, no_ack=False)
        assert message is not None
        got.append(message.method.delivery_tag)
    channel.consume(queue)
    channel.take(2)
    assert channel.is_silent()
    for tag in got:
        channel.send(Basic.Ack(delivery_tag=tag))
    assert channel.is_silent()


def test_room_of_the_global_prefetch_comes_with_the_commit(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 10)
    channel.call(Basic.Qos(prefetch_count=1, global_=True))
    channel.consume(queue)
    held = channel.next().method.delivery_tag
    channel.select_transactions()
    channel.send(Basic.Ack(delivery_tag=held))
    channel.publish("", queue, b"more")
    assert channel.is_silent()
    channel.call(Tx.Rollback())
    assert channel.is_silent()
    channel.send(Basic.Ack(delivery_tag=held))
    channel.call(Tx.Commit())
    channel.take(1)
    assert channel.is_silent()


def test_a_cancelled_consumers_deliveries_take_room_of_the_global_prefetch(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 10)
    channel.call(Basic.Qos(prefetch_count=1, global_=True))
    tag = channel.consume(queue)
    held = channel.next().method.delivery_tag
    channel.call(Basic.Cancel(consumer_tag=tag))
    channel.consume(queue)
    assert channel.is_silent()
    channel.send(Basic.Ack(delivery_tag=held))
    channel.take(1)
    assert channel.is_silent()


def test_prefetch_is_that_of_the_time_of_consuming(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 10)
    channel.call(Basic.Qos(prefetch_count=2))
    channel.consume(queue)
    channel.call(Basic.Qos(prefetch_count=100))
    channel.take(2)
    assert channel.is_silent()


@pytest.mark.parametrize(
    "settle",
    [Basic.Ack(delivery_tag=1), Basic.Reject(delivery_tag=1, requeue=False), Basic.Nack(delivery_tag=1, requeue=False)],
    ids=lambda method: method.name,
)
def test_every_settled_message_makes_room_for_one(channel: WireChannel, queue: str, settle: Basic.Ack) -> None:
    fill(channel, queue, 10)
    channel.call(Basic.Qos(prefetch_count=1))
    channel.consume(queue)
    assert channel.next().body == b"0"
    channel.send(settle)
    assert channel.next().body == b"1"
    assert channel.is_silent()


def test_prefetch_does_not_hold_back_automatic_acknowledgement(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 20)
    channel.call(Basic.Qos(prefetch_count=1))
    channel.consume(queue, no_ack=True)
    assert len(channel.take(20)) == 20


def test_consumers_take_turns(channel: WireChannel, queue: str) -> None:
    for tag in ("a", "b", "c"):
        channel.consume(queue, tag)
    fill(channel, queue, 30)
    turns = [delivery.method.consumer_tag for delivery in channel.take(30)]
    assert Counter(turns) == {"a": 10, "b": 10, "c": 10}


def test_a_consumer_of_higher_priority_comes_first(channel: WireChannel, queue: str) -> None:
    channel.call(Basic.Qos(prefetch_count=5))
    channel.consume(queue, "low", arguments={"x-priority": -1})
    channel.consume(queue, "high", arguments={"x-priority": 10})
    fill(channel, queue, 7)
    assert Counter(delivery.method.consumer_tag for delivery in channel.take(7)) == {"high": 5, "low": 2}


def test_a_server_named_consumer(channel: WireChannel, queue: str) -> None:
    assert channel.consume(queue).startswith("amq.ctag-")


def test_a_canceled_consumer_gets_no_more(channel: WireChannel, queue: str) -> None:
    channel.consume(queue, "reader")
    assert channel.call(Basic.Cancel(consumer_tag="reader")).consumer_tag == "reader"
    channel.publish("", queue)
    assert channel.is_silent()


def test_canceling_an_unknown_consumer_is_answered(channel: WireChannel) -> None:
    assert channel.call(Basic.Cancel(consumer_tag="ghost")).consumer_tag == "ghost"


def test_deleting_a_queue_cancels_its_consumers(channel: WireChannel, queue: str) -> None:
    channel.consume(queue, "reader")
    channel.call(Queue.Delete(queue=queue))
    notice = channel.next()
    assert (notice.name, notice.consumer_tag) == ("Basic.Cancel", "reader")


def test_clients_that_do_not_know_cancel_are_not_sent_it(broker: BrokerProcess, unique: Name) -> None:
    with login(broker.port, capabilities=()) as connection:
        channel = connection.channel()
        queue = channel.queue(unique("queue"))
        channel.consume(queue)
        channel.call(Queue.Delete(queue=queue))
        assert channel.is_silent()


def test_an_exclusive_consumer_leaves_room_when_it_goes(channel: WireChannel, queue: str) -> None:
    channel.consume(queue, "alone", exclusive=True)
    channel.call(Basic.Cancel(consumer_tag="alone"))
    channel.consume(queue, "next")


def test_a_tag_is_free_again_after_cancel(channel: WireChannel, queue: str) -> None:
    for _ in range(2):
        channel.consume(queue, "t")
        channel.call(Basic.Cancel(consumer_tag="t"))


def test_flow_is_answered(channel: WireChannel) -> None:
    assert channel.call(Channel.Flow(active=True)).active is True


def test_get_says_how_many_remain(channel: WireChannel, queue: str) -> None:
    fill(channel, queue, 3)
    remaining = [message.method.message_count for message in iter(lambda: channel.get(queue), None)]
    assert remaining == [2, 1, 0]


def test_an_answer_comes_straight_back_to_who_asked(broker: BrokerProcess, channel: WireChannel, queue: str) -> None:
    """Direct reply-to: the pseudo-queue `amq.rabbitmq.reply-to` belongs to its consumer's channel."""
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    channel.publish("", queue, b"question", Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    question = channel.get(queue)
    assert question is not None
    assert question.properties.reply_to is not None
    with login(broker.port) as server:
        server.channel().publish("", question.properties.reply_to, b"answer")
        assert channel.next().body == b"answer"


def declare_passively(channel: WireChannel, queue: str) -> Queue.DeclareOk:
    """Declare passively as pamqp, which refuses the characters of a reply-to address."""
    name = queue.encode()
    channel.send_frame(METHOD, b"\0\x32\0\x0a\0\0" + bytes([len(name)]) + name + b"\x01" + bytes(4))
    answer = channel.next()
    assert isinstance(answer, Queue.DeclareOk)
    return answer


@pytest.mark.usefixtures("in_one_process")
def test_a_declaration_tells_whether_who_asked_still_listens(
    broker: BrokerProcess, channel: WireChannel, queue: str
) -> None:
    requester = channel.connection.channel()
    requester.consume("amq.rabbitmq.reply-to", no_ack=True)
    requester.publish("", queue, b"question", Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    channel.consume(queue, no_ack=True)
    question = channel.next()
    address = question.properties.reply_to
    with login(broker.port) as server:
        assert declare_passively(server.channel(), "amq.rabbitmq.reply-to").consumer_count == 1
        assert declare_passively(server.channel(), address).consumer_count == 1
        requester.close()
        with pytest.raises(ChannelClosed) as closed:
            declare_passively(server.channel(), address)
    assert (closed.value.code, closed.value.text) == (404, f"NOT_FOUND - no queue '{address}' in vhost '/'")


def test_who_comes_waits_for_a_turn_behind_who_was_served(channel: WireChannel, queue: str) -> None:
    channel.call(Basic.Qos(prefetch_count=2))
    channel.consume(queue, "first")
    channel.publish("", queue, b"0")
    assert channel.next().method.consumer_tag == "first"
    channel.consume(queue, "second")
    for number in (b"1", b"2"):
        channel.publish("", queue, number)
    assert [(m.body, m.method.consumer_tag) for m in channel.take(2)] == [(b"1", "first"), (b"2", "second")]


def test_which_queue_is_meant_is_asked_before_whose_the_tag_is(channel: WireChannel, queue: str) -> None:
    other = channel.connection.channel()
    other.consume(queue, "tag")
    with pytest.raises(ChannelClosed) as closed:
        other.consume("", "tag")
    assert (closed.value.code, closed.value.text) == (404, "NOT_FOUND - no previously declared queue")
