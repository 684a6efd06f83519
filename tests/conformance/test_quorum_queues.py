"""Quorum queues: valid declarations, order of returned messages, and delivery limits."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Closed, ConnectionClosed, Content, Queue, WireChannel, closing, login

from jumpmq.testing import BrokerProcess, JumpMQ

Name = Callable[[str], str]
Declare = Callable[..., str]


@pytest.fixture
def quorum(broker: BrokerProcess, unique: Name) -> Iterator[Declare]:
    """Declare quorum queues, deleted at the end; ``quorum(delivery_limit=2)`` is the argument ``x-delivery-limit``."""
    names = []
    with login(broker.port) as connection:

        def declare(**arguments: Any) -> str:
            named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
            name = unique("quorum")
            connection.channel().queue(
                name, durable=True, exclusive=False, arguments={"x-queue-type": "quorum", **named}
            )
            names.append(name)
            return name

        yield declare
        for name in names:
            with contextlib.suppress(Closed):
                connection.channel().call(Queue.Delete(queue=name))
        connection.close()


def fill(channel: WireChannel, queue: str, *bodies: bytes) -> None:
    channel.confirm_select()
    for body in bodies:
        channel.publish("", queue, body)
    channel.wait_for_confirms()


def get(channel: WireChannel, queue: str) -> Content:
    """Get a message, which may be redelivered with a delay."""
    return until(lambda: channel.get(queue, no_ack=False))


def count(message: Content) -> Any:
    return (message.properties.headers or {}).get("x-delivery-count", 0)  # RabbitMQ 4 leaves a 0 out


def requeue(channel: WireChannel, *messages: Content, ready: int | None = None) -> None:
    """Return messages to the queue; with ``ready``, wait for that number of ready messages."""
    for message in messages:
        channel.send(Basic.Nack(delivery_tag=message.method.delivery_tag, requeue=True))
    if ready is not None:
        until(lambda: channel.ready(messages[0].method.routing_key) == ready)


ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("quorum", {"x-max-priority": 5}, "invalid arg 'x-max-priority' {} of queue type rabbit_quorum_queue"),
    ("quorum", {"x-queue-mode": "lazy"}, "invalid arg 'x-queue-mode' {} of queue type rabbit_quorum_queue"),
    ("quorum", {"x-max-age": "1h"}, "invalid arg 'x-max-age' {} of queue type rabbit_quorum_queue"),
    ("quorum", {"x-dead-letter-strategy": "so"}, "invalid arg 'x-dead-letter-strategy' {}: invalid_dlx_strategy"),
    ("quorum", {"x-max-in-memory-length": -1}, "invalid arg 'x-max-in-memory-length' {}: {{value_negative,-1}}"),
    ("quorum", {"x-quorum-initial-group-size": 0}, "invalid arg 'x-quorum-initial-group-size' {}: {{value_zero,0}}"),
    ("quorum", {"x-queue-leader-locator": "x"}, "invalid arg 'x-queue-leader-locator' {}: invalid_queue_locator_arg"),
    (
        "quorum",
        {"x-queue-leader-locator": True},
        "invalid arg 'x-queue-leader-locator' {}: {{unacceptable_type,bool}}",
    ),
    ("classic", {"x-delivery-limit": 2}, "invalid arg 'x-delivery-limit' {} of queue type rabbit_classic_queue"),
    (
        "classic",
        {"x-max-in-memory-bytes": 1},
        "invalid arg 'x-max-in-memory-bytes' {} of queue type rabbit_classic_queue",
    ),
    ("lost", {}, "invalid arg 'x-queue-type' {}: \"unsupported queue type 'lost'\""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "text"), ARGUMENTS)
def test_each_kind_takes_its_own_arguments(
    channel: WireChannel, kind: str, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ChannelClosed) as refused:
        channel.queue("refused", durable=True, exclusive=False, arguments={"x-queue-type": kind, **arguments})
    expected = text.format("for queue 'refused' in vhost '/'")
    assert (refused.value.code, refused.value.text) == (406, f"PRECONDITION_FAILED - {expected}")


def test_another_kind_is_another_queue(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    with pytest.raises(ChannelClosed) as refused:
        channel.queue(queue, durable=True, exclusive=False)
    assert refused.value.text == (
        f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue '{queue}' in vhost '/': "
        "received 'classic' but current is 'quorum'"
    )


def test_a_global_prefetch_is_refused(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    channel.call(Basic.Qos(prefetch_count=5, global_=True))
    with pytest.raises(ConnectionClosed) as refused:
        channel.consume(queue)
    assert (refused.value.code, refused.value.text) == (
        540, f"NOT_IMPLEMENTED - queue '{queue}' in vhost '/' does not support global qos",
    )  # fmt: skip


def test_each_delivery_says_how_many_failed(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    channel.confirm_select()
    channel.publish("", queue, b"x", Basic.Properties(headers={"a": 1, "x-delivery-count": "mine"}, delivery_mode=1))
    channel.wait_for_confirms()
    seen = []
    for _ in range(3):
        message = get(channel, queue)
        seen.append((message.properties.headers, message.method.redelivered))
        requeue(channel, message)
    assert seen == [
        ({"a": 1, "x-delivery-count": 0}, False),
        ({"a": 1, "x-delivery-count": 1}, True),
        ({"a": 1, "x-delivery-count": 2}, True),
    ]
    channel.consume(queue)
    delivery = channel.next()
    assert (delivery.properties.headers, delivery.properties.delivery_mode) == ({"a": 1, "x-delivery-count": 3}, 1)


def test_without_a_limit_what_is_put_back_goes_to_the_end(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    fill(channel, queue, b"1", b"2", b"3", b"4")
    first, second, _third = (get(channel, queue) for _ in range(3))
    requeue(channel, first, second, ready=3)
    again = [get(channel, queue) for _ in range(3)]
    assert [(message.body, count(message)) for message in again] == [(b"4", 0), (b"1", 1), (b"2", 1)]


def test_with_a_limit_what_is_put_back_comes_next(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum(delivery_limit=5)
    fill(channel, queue, b"1", b"2", b"3", b"4")
    first, second, _third = (get(channel, queue) for _ in range(3))
    requeue(channel, first, second, ready=3)
    again = [get(channel, queue) for _ in range(3)]
    assert [(message.body, count(message)) for message in again] == [(b"1", 1), (b"2", 1), (b"4", 0)]


def test_what_a_channel_leaves_behind_comes_next(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    fill(channel, queue, b"1", b"2", b"3")
    other = channel.connection.channel()
    get(other, queue)
    get(other, queue)
    other.close()
    until(lambda: channel.ready(queue) == 3)
    again = [get(channel, queue) for _ in range(3)]
    assert [(message.body, count(message)) for message in again] == [(b"1", 1), (b"2", 1), (b"3", 0)]


@pytest.mark.parametrize("limit", [0, 2])
def test_what_comes_back_too_often_is_dead_lettered(channel: WireChannel, quorum: Declare, limit: int) -> None:
    dead = channel.queue()
    queue = quorum(delivery_limit=limit, dead_letter_exchange="", dead_letter_routing_key=dead)
    fill(channel, queue, b"poison")
    for number in range(limit + 1):
        message = get(channel, queue)
        assert count(message) == number
        requeue(channel, message)
    letter = get(channel, dead)
    headers = letter.headers
    assert "x-delivery-count" not in headers
    assert (headers["x-first-death-reason"], headers["x-death"][0]["queue"]) == ("delivery_limit", queue)
    assert channel.get(queue) is None


@pytest.mark.usefixtures("since_4_0")
def test_a_message_comes_back_20_times_from_consumers_that_are_gone(channel: WireChannel, quorum: Declare) -> None:
    dead = channel.queue()
    queue = quorum(dead_letter_exchange="", dead_letter_routing_key=dead)
    fill(channel, queue, b"poison")
    for number in range(21):
        other = channel.connection.channel()
        assert count(get(other, queue)) == number
        other.close()
    letter = get(channel, dead)
    headers = letter.headers
    assert headers["x-death"][0]["reason"] == headers["x-last-death-reason"] == "delivery_limit"
    assert (headers["x-last-death-queue"], headers["x-last-death-exchange"]) == (queue, "")


@pytest.mark.usefixtures("since_4_0")
def test_below_0_there_is_no_limit(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum(delivery_limit=-1)
    fill(channel, queue, b"poison")
    for number in range(25):
        message = get(channel, queue)
        assert count(message) == number
        requeue(channel, message)


@pytest.mark.usefixtures("since_4_0")
@pytest.mark.parametrize(("policy", "operator_policy"), [(-1, 1), (1, -1)])
def test_of_two_policies_a_delivery_limit_counts_before_none(
    channel: WireChannel, quorum: Declare, operator: Operator, policy: int, operator_policy: int
) -> None:
    operator.set_policy("limit", "quorum", {"delivery-limit": policy})
    operator.set_policy("limit", "quorum", {"delivery-limit": operator_policy}, "operator-policies")
    dead = channel.queue()
    queue = quorum(dead_letter_exchange="", dead_letter_routing_key=dead)
    fill(channel, queue, b"poison")
    for _ in range(2):
        requeue(channel, get(channel, queue))
    assert get(channel, dead).body == b"poison"


def test_what_consumers_put_back_comes_as_often_as_they_like(jumpmq: JumpMQ) -> None:
    """Messages returned with requeue have no limit of deliveries; RabbitMQ 4.0 drops a message after the 20th time."""
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    with closing(login(jumpmq.port)) as connection:
        channel = connection.channel()
        queue = channel.call(Queue.Declare(queue="put-back", durable=True, arguments=arguments)).queue
        fill(channel, queue, b"patient", b"other")
        for _ in range(50):
            requeue(channel, get(channel, queue), ready=2)
        assert {get(channel, queue).body for _ in range(2)} == {b"patient", b"other"}
        channel.call(Queue.Delete(queue=queue))


def test_what_is_too_much_leaves_at_the_front(channel: WireChannel, quorum: Declare) -> None:
    dead = channel.queue()
    queue = quorum(max_length=2, dead_letter_exchange="", dead_letter_routing_key=dead)
    fill(channel, queue, b"1", b"2", b"3")
    assert get(channel, dead).body == b"1"
    assert [get(channel, queue).body for _ in range(2)] == [b"2", b"3"]


@pytest.mark.usefixtures("since_4_0")
def test_the_overflow_of_a_policy_counts_before_the_arguments(
    channel: WireChannel, quorum: Declare, operator: Operator
) -> None:
    operator.set_policy("overflow", "quorum", {"overflow": "reject-publish"})
    queue = quorum(max_length=2, overflow="drop-head")
    publisher = channel.connection.channel()
    publisher.confirm_select()
    for number in range(8):
        publisher.publish("", queue, b"%d" % number)
        answer = publisher.next()
    assert isinstance(answer, Basic.Nack)
    assert get(channel, queue).body == b"0"


def test_purging_counts(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    fill(channel, queue, b"1", b"2")
    assert channel.call(Queue.Purge(queue=queue)).message_count == 2
    assert channel.get(queue) is None


@pytest.mark.parametrize(("extra", "kept"), [({}, [b"2"]), ({"queue-mode": "lazy"}, [b"1", b"2"])])
def test_a_policy_that_another_kind_is_meant_by_is_not_in_force(
    channel: WireChannel, quorum: Declare, operator: Any, unique: Name, extra: dict[str, Any], kept: list[bytes]
) -> None:
    queue = quorum()
    operator.set_policy(unique("policy"), f"^{queue}$", {"max-length": 1, **extra})
    time.sleep(0.3)
    fill(channel, queue, b"1", b"2")
    until(lambda: channel.ready(queue) == len(kept))
    assert [get(channel, queue).body for _ in kept] == kept


def test_get_is_refused_where_one_consumer_is_to_be_active(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum(single_active_consumer=True)
    with pytest.raises(ChannelClosed) as closed:
        channel.call(Basic.Get(queue=queue))
    assert (closed.value.code, closed.value.text) == (
        405,
        f"RESOURCE_LOCKED - cannot obtain access to locked queue '{queue}' in vhost '/'. "
        "basic.get operations are not supported by quorum queues with single active consumer",
    )


def fill_by_priority(channel: WireChannel, queue: str, *messages: tuple[int | None, bytes]) -> None:
    channel.confirm_select()
    for priority, body in messages:
        channel.publish("", queue, body, Basic.Properties(priority=priority))
    channel.wait_for_confirms()


def test_two_of_a_priority_above_4_are_delivered_for_each_that_is_older(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum()
    priorities = (0, 5, None, 9, 4, 5, 4, 9, 255, 5, 5)
    fill_by_priority(channel, queue, *((one, b"%d" % place) for place, one in enumerate(priorities)))
    assert [int(get(channel, queue).body) for _ in priorities] == [1, 3, 0, 5, 7, 2, 8, 9, 4, 10, 6]
    fill_by_priority(channel, queue, (0, b"low"), (7, b"high"))
    # Two messages were delivered since the turn of the older one.
    assert [get(channel, queue).body for _ in range(2)] == [b"low", b"high"]


def test_what_comes_back_goes_before_higher_priorities(channel: WireChannel, quorum: Declare) -> None:
    queue = quorum(delivery_limit=5)
    fill_by_priority(channel, queue, (0, b"0"), (9, b"9a"), (9, b"9b"), (9, b"9c"), (0, b"0 again"))
    assert [get(channel, queue).body for _ in range(2)] == [b"9a", b"9b"]
    older = get(channel, queue)
    assert older.body == b"0"
    channel.send(Basic.Nack(delivery_tag=older.method.delivery_tag, requeue=True))
    assert [get(channel, queue).body for _ in range(3)] == [b"0", b"9c", b"0 again"]


def test_too_much_drops_what_would_be_delivered_next(channel: WireChannel, quorum: Declare) -> None:
    dead = channel.queue()
    queue = quorum(max_length=2, dead_letter_exchange="", dead_letter_routing_key=dead)
    for priority in (0, 1, 9, 8, 7, 6):
        fill_by_priority(channel, queue, (priority, b"%d" % priority))
    until(lambda: channel.ready(dead) == 4)
    assert channel.bodies(dead) == [b"9", b"8", b"0", b"7"]
    assert [get(channel, queue).body for _ in range(2)] == [b"6", b"1"]
