"""Streams: valid declarations and operations, start offsets of readers, and deliveries."""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pamqp.frame import marshal
from tests.conformance.operator import Operator
from tests.wire import Basic, ChannelClosed, Closed, ConnectionClosed, Content, Exchange, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]
Declare = Callable[..., str]


@pytest.fixture
def stream(broker: BrokerProcess, unique: Name) -> Iterator[Declare]:
    """Declare streams with the messages 0, 1, 2 ... confirmed one by one; deleted at the end."""
    names = []
    with login(broker.port) as connection:

        def declare(count: int = 0, **arguments: Any) -> str:
            named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
            channel, name = connection.channel(), unique("stream")
            channel.queue(name, durable=True, exclusive=False, arguments={"x-queue-type": "stream", **named})
            names.append(name)
            channel.confirm_select()
            for number in range(count):
                channel.publish("", name, b"%d" % number)
                channel.wait_for_confirms()
            return name

        yield declare
        for name in names:
            with contextlib.suppress(Closed):
                connection.channel().call(Queue.Delete(queue=name))
        connection.close()


def read(channel: WireChannel, queue: str, offset: Any = None, prefetch: int = 100) -> None:
    """Consume from a stream."""
    channel.call(Basic.Qos(prefetch_count=prefetch))
    channel.consume(queue, arguments={} if offset is None else {"x-stream-offset": offset})


def seen(messages: list[Content]) -> list[tuple[bytes, Any]]:
    return [(message.body, (message.properties.headers or {})["x-stream-offset"]) for message in messages]


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"x-max-length": 5}, "invalid arg 'x-max-length' {} of queue type rabbit_stream_queue"),
    ({"x-message-ttl": 5}, "invalid arg 'x-message-ttl' {} of queue type rabbit_stream_queue"),
    ({"x-expires": 5}, "invalid arg 'x-expires' {} of queue type rabbit_stream_queue"),
    ({"x-max-priority": 5}, "invalid arg 'x-max-priority' {} of queue type rabbit_stream_queue"),
    ({"x-single-active-consumer": True}, "invalid arg 'x-single-active-consumer' {} of queue type rabbit_stream_queue"),
    ({"x-max-age": "1x"}, "invalid arg 'x-max-age' {}: invalid_max_age"),
    ({"x-max-age": "0D"}, "invalid arg 'x-max-age' {}: invalid_max_age"),
    ({"x-max-age": True}, "invalid arg 'x-max-age' {}: {{unacceptable_type,bool}}"),
    ({"x-max-length-bytes": -1}, "invalid arg 'x-max-length-bytes' {}: {{value_negative,-1}}"),
    ({"x-initial-cluster-size": 0}, "invalid arg 'x-initial-cluster-size' {}: {{value_zero,0}}"),
    ({"x-stream-max-segment-size-bytes": 3_000_000_001}, "Exceeded max value for x-stream-max-segment-size-bytes"),
]


@pytest.mark.parametrize(("arguments", "text"), ARGUMENTS)
def test_it_takes_arguments_of_its_own(channel: WireChannel, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ChannelClosed) as refused:
        channel.queue("refused", durable=True, exclusive=False, arguments={"x-queue-type": "stream", **arguments})
    expected = text.format("for queue 'refused' in vhost '/'")
    assert refused.value.text == f"PRECONDITION_FAILED - {expected}"


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda channel, queue: channel.get(queue), "basic.get"),
        (lambda channel, queue: channel.call(Queue.Purge(queue=queue)), "queue.purge"),
    ],
)
def test_what_it_does_not_do(channel: WireChannel, stream: Declare, act: Any, what: str) -> None:
    queue = stream(1)
    with pytest.raises(ConnectionClosed) as refused:
        act(channel, queue)
    assert (refused.value.code, refused.value.text) == (
        540, f"NOT_IMPLEMENTED - {what} not supported by stream queues queue '{queue}' in vhost '/'",
    )  # fmt: skip


def test_the_retention_of_a_policy_counts_before_the_arguments(
    channel: WireChannel, stream: Declare, operator: Operator
) -> None:
    operator.set_policy("retention", "stream", {"max-length-bytes": 1_000_000})
    queue = stream(max_length_bytes=30_000, stream_max_segment_size_bytes=10_000)
    channel.confirm_select()
    for number in range(50):
        channel.publish("", queue, b"%0*d" % (3000, number))
        channel.wait_for_confirms()
    read(channel, queue, "first", 50)
    assert [int(message.body) for message in channel.take(50)] == list(range(50))


def test_it_is_not_consumed_without_acknowledgement(channel: WireChannel, stream: Declare) -> None:
    queue = stream(1)
    channel.call(Basic.Qos(prefetch_count=1))
    with pytest.raises(ConnectionClosed) as refused:
        channel.consume(queue, no_ack=True)
    assert (refused.value.code, refused.value.text) == (
        540, f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue '{queue}' in vhost '/'",
    )  # fmt: skip


def test_it_is_not_consumed_without_acknowledgement_wherever_one_begins(
    broker: BrokerProcess, channel: WireChannel, stream: Declare
) -> None:
    """Consuming a stream without acknowledgements is refused at any offset; RabbitMQ reports an offset's error
    first.
    """
    queue = stream(1)
    channel.call(Basic.Qos(prefetch_count=1))
    with pytest.raises(ConnectionClosed) as refused:
        channel.consume(queue, no_ack=True, arguments={"x-stream-offset": "nowhere"})
    assert refused.value.code == (541 if broker.name == "RabbitMQ" else 540)


@pytest.mark.parametrize("again", [False, True])
def test_rejecting_a_delivery_makes_room_for_the_next(channel: WireChannel, stream: Declare, again: bool) -> None:
    queue = stream(2)
    read(channel, queue, "first", prefetch=1)
    first = channel.next()
    channel.send(Basic.Nack(delivery_tag=first.method.delivery_tag, requeue=again))
    assert channel.next().properties.headers["x-stream-offset"] == first.properties.headers["x-stream-offset"] + 1


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_prefetch_is_required(channel: WireChannel, stream: Declare, no_ack: bool) -> None:
    queue = stream()
    with pytest.raises(ChannelClosed) as refused:
        channel.consume(queue, no_ack=no_ack)
    assert refused.value.text == (
        f"PRECONDITION_FAILED - consumer prefetch count is not set for stream queue '{queue}' in vhost '/'"
    )


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ({"x-priority": 5}, "invalid arg 'x-priority' {} of queue type rabbit_stream_queue"),
        (
            {"x-stream-offset": "5x"},
            "invalid arg 'x-stream-offset' {}: {{invalid_stream_offset_arg,{{longstr,<<\"5x\">>}}}}",
        ),
    ],
)  # fmt: skip
def test_consumer_arguments(channel: WireChannel, stream: Declare, argument: dict[str, Any], text: str) -> None:
    queue = stream()
    channel.call(Basic.Qos(prefetch_count=5))
    with pytest.raises(ChannelClosed) as refused:
        channel.consume(queue, arguments=argument)
    expected = text.format(f"for queue '{queue}' in vhost '/'")
    assert refused.value.text == f"PRECONDITION_FAILED - {expected}"


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("first", 0), ("last", 4), ("next", 5), (None, 5), (2, 2), (0, 0), (-3, 0), ("1h", 0), ("2D", 0),
        (NOW - timedelta(hours=1), 0), (NOW + timedelta(hours=1), 5),
    ],
)  # fmt: skip
def test_where_a_reader_begins(channel: WireChannel, stream: Declare, offset: Any, first: int) -> None:
    queue = stream(5)
    read(channel, queue, offset)
    channel.publish("", queue, b"5")
    assert seen(channel.take(6 - first)) == [(b"%d" % number, number) for number in range(first, 6)]
    assert channel.is_silent()


def test_a_reader_may_wait_for_an_offset(channel: WireChannel, stream: Declare) -> None:
    queue = stream(3)
    read(channel, queue, 5)
    for number in range(3, 7):
        channel.publish("", queue, b"%d" % number)
    assert seen(channel.take(2)) == [(b"5", 5), (b"6", 6)]


def test_a_prefetch_limits_and_acknowledging_makes_room(channel: WireChannel, stream: Declare) -> None:
    queue = stream(7)
    read(channel, queue, "first", prefetch=3)
    assert seen(channel.take(3)) == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert channel.is_silent()
    channel.send(Basic.Ack(delivery_tag=2, multiple=True))
    assert seen(channel.take(2)) == [(b"3", 3), (b"4", 4)]
    assert channel.is_silent()


def test_readers_do_not_take_from_each_other(channel: WireChannel, stream: Declare) -> None:
    queue = stream(20)
    readers = [channel.connection.channel() for _ in range(3)]
    for reader in readers:
        read(reader, queue, "first", prefetch=50)
    for reader in readers:
        assert [body for body, _ in seen(reader.take(20))] == [b"%d" % number for number in range(20)]
    assert channel.ready(queue) in (0, 20)  # RabbitMQ counts now and then


def test_messages_come_as_they_were_published(channel: WireChannel, stream: Declare, unique: Name) -> None:
    queue, exchange = stream(), channel.exchange(unique("exchange"), "topic")
    channel.bind(queue, exchange, "a.#")
    sent = Basic.Properties(
        content_type="text/plain", content_encoding="utf-8", headers={"a": 1}, delivery_mode=1, priority=5,
        correlation_id="c", expiration="10", message_id="m", timestamp=datetime(2020, 1, 1, tzinfo=UTC), app_id="x",
    )  # fmt: skip
    channel.confirm_select()
    channel.publish(exchange, "a.b", b"long" * 100_000, sent)
    channel.publish(exchange, "a", b"")
    channel.wait_for_confirms()
    time.sleep(0.1)
    read(channel, queue, "first")
    first, second = channel.take(2)
    assert (first.method.exchange, first.method.routing_key, first.method.redelivered) == (exchange, "a.b", False)
    assert first.body == b"long" * 100_000
    assert first.properties.headers == {"a": 1, "x-stream-offset": 0}
    for name in ("content_type", "content_encoding", "delivery_mode", "priority", "expiration", "message_id", "app_id"):
        assert getattr(first.properties, name) == getattr(sent, name)
    assert (second.method.routing_key, second.body, second.properties.headers) == ("a", b"", {"x-stream-offset": 1})
    channel.call(Exchange.Delete(exchange=exchange))


def test_it_may_be_deleted_whatever_it_holds(channel: WireChannel, stream: Declare) -> None:
    queue = stream(3)
    channel.call(Queue.Delete(queue=queue, if_empty=True))
    with pytest.raises(ChannelClosed) as missing:
        channel.ready(queue)
    assert missing.value.code == 404


def test_an_offset_that_came_along_is_replaced(channel: WireChannel, stream: Declare) -> None:
    queue = stream()
    channel.publish("", queue, b"x", Basic.Properties(headers={"x-stream-offset": "mine", "a": "b"}))
    read(channel, queue, "first")
    assert channel.next().properties.headers == {"a": "b", "x-stream-offset": 0}


# --- filters ---


@pytest.mark.usefixtures("since_4_0")
def test_a_filter_may_have_octets_that_are_not_utf8(
    broker: BrokerProcess, channel: WireChannel, stream: Declare
) -> None:
    """A filter may contain invalid UTF-8; RabbitMQ closes the connection."""
    queue = stream()
    if broker.name != "RabbitMQ":
        assert _filtered_by_octets(channel, queue) == [0, 3]
        return
    with pytest.raises(ConnectionClosed) as refused:
        _filtered_by_octets(channel, queue)
    assert refused.value.code == 541


def _filtered_by_octets(channel: WireChannel, queue: str) -> list[int]:
    """Numbers of the two messages delivered to a consumer with the octet 0xFF as filter."""
    channel.confirm_select()
    for number, value in enumerate(("\x7f", "a", "\x7fa", "\x7f")):
        properties = Basic.Properties(headers={"x-stream-filter-value": value})
        octets = channel.publication("", queue, str(number).encode(), properties)
        channel.connection.send(octets.replace(b"\x7f", b"\xff"))  # clients cannot encode it
        assert isinstance(channel.next(), Basic.Ack)  # a chunk per message: RabbitMQ filters by chunks
    channel.call(Basic.Qos(prefetch_count=4))
    arguments: dict[str, Any] = {"x-stream-offset": "first", "x-stream-filter": "\x7f"}
    consume = marshal(Basic.Consume(queue=queue, arguments=arguments), channel.number)
    channel.connection.send(consume.replace(b"\x7f", b"\xff"))
    assert isinstance(channel.next(), Basic.ConsumeOk)
    found = [channel.next() for _ in range(2)]
    return [int(one.body) for one in found if isinstance(one, Content)]


@pytest.mark.usefixtures("since_4_0")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x-stream-filter": "a"}, [0, 4]),
        ({"x-stream-filter": ["a", 5, "b"]}, [0, 1, 4]),
        ({"x-stream-filter": "a", "x-stream-match-unfiltered": True}, [0, 2, 3, 4]),
        ({"x-stream-filter": "a", "x-stream-match-unfiltered": "yes"}, [0, 4]),
        ({"x-stream-filter": ""}, [2, 3]),
        ({"x-stream-filter": 5}, [0, 1, 2, 3, 4]),
        ({"x-stream-match-unfiltered": True}, [0, 1, 2, 3, 4]),
    ],
)
def test_a_consumer_filters_by_the_value_of_messages(
    channel: WireChannel, stream: Declare, arguments: dict[str, Any], expected: list[int]
) -> None:
    queue = stream()
    channel.confirm_select()
    values: list[Any] = ["a", "b", None, {"x-stream-filter-value": "a"}, "a"]
    for number, value in enumerate(values):
        name = "x-stream-filter-value" if isinstance(value, str) else "other"
        headers = {} if value is None else {name: value}
        channel.publish("", queue, str(number).encode(), Basic.Properties(headers=headers))
        assert isinstance(channel.next(), Basic.Ack)  # a chunk per message: RabbitMQ filters by chunks
    channel.call(Basic.Qos(prefetch_count=2))
    channel.consume(queue, arguments={"x-stream-offset": "first", **arguments})
    found = []
    for _ in expected:
        delivery = channel.next()
        found.append((int(delivery.body), delivery.properties.headers["x-stream-offset"]))
        channel.send(Basic.Ack(delivery.method.delivery_tag))
    assert [body for body, _ in found] == expected
    assert all(body == offset for body, offset in found)
    assert channel.is_silent()
