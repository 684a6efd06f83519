"""Exchanges: predeclared exchanges, bindings between exchanges, and auto-deletion."""

from collections.abc import Callable

import pytest
from tests.wire import ChannelClosed, Exchange, Queue, WireChannel

Name = Callable[[str], str]

PREDECLARED = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


def exists(channel: WireChannel, exchange: str) -> bool:
    """Return true if an exchange exists, checked on a new channel."""
    try:
        channel.connection.channel().call(Exchange.Declare(exchange=exchange, passive=True))
    except ChannelClosed as closed:
        assert closed.code == 404
        return False
    return True


@pytest.mark.parametrize("name", [name for name in PREDECLARED if name])
def test_predeclared(channel: WireChannel, name: str) -> None:
    channel.exchange(name, PREDECLARED[name], durable=True, auto_delete=False)


def test_direct_exchanges_compare_keys(channel: WireChannel, unique: Name) -> None:
    exchange = channel.exchange(unique("direct"), "direct")
    first, second = channel.queue(unique("first")), channel.queue(unique("second"))
    for queue, key in ((first, "a"), (first, "b"), (second, "b"), (second, "B")):
        channel.bind(queue, exchange, key)
    for key in ("a", "b", "B", "ab", ""):
        channel.publish(exchange, key, key.encode())
    assert (channel.bodies(first), channel.bodies(second)) == ([b"a", b"b"], [b"b", b"B"])


def test_fanout_exchanges_ignore_keys(channel: WireChannel, unique: Name) -> None:
    exchange = channel.exchange(unique("fanout"), "fanout")
    first, second = channel.queue(unique("first")), channel.queue(unique("second"))
    channel.bind(first, exchange, "a")
    channel.bind(second, exchange, "b")
    channel.publish(exchange, "c", b"to all")
    assert channel.bodies(first) == channel.bodies(second) == [b"to all"]


def test_a_message_passes_through_bound_exchanges(channel: WireChannel, queue: str, unique: Name) -> None:
    topic, direct = channel.exchange(unique("topic"), "topic"), channel.exchange(unique("direct"), "direct")
    channel.bind(queue, direct, "orders.new")
    channel.call(Exchange.Bind(source=topic, destination=direct, routing_key="orders.*"))
    for key in ("orders.new", "orders.old", "invoices.new"):
        channel.publish(topic, key, key.encode())
    message = channel.get(queue)
    assert message is not None
    assert (message.method.exchange, message.method.routing_key) == (topic, "orders.new")
    assert channel.get(queue) is None


def test_a_circle_of_exchanges_ends(channel: WireChannel, queue: str, unique: Name) -> None:
    first, second = channel.exchange(unique("first"), "fanout"), channel.exchange(unique("second"), "fanout")
    channel.call(Exchange.Bind(source=first, destination=second))
    channel.call(Exchange.Bind(source=second, destination=first))
    channel.bind(queue, second)
    channel.publish(first, "", b"once")
    assert channel.bodies(queue) == [b"once"]


def test_an_unbound_exchange_gets_no_more(channel: WireChannel, queue: str, unique: Name) -> None:
    source, relay = (channel.exchange(unique(name), "fanout", auto_delete=False) for name in ("source", "relay"))
    channel.bind(queue, relay)
    channel.call(Exchange.Bind(source=source, destination=relay))
    channel.call(Exchange.Unbind(source=source, destination=relay))
    channel.publish(source, "")
    assert channel.get(queue) is None
    for name in (source, relay):
        channel.call(Exchange.Delete(exchange=name))


def test_an_internal_exchange_gets_what_others_pass_on(channel: WireChannel, queue: str, unique: Name) -> None:
    source, inner = (
        channel.exchange(unique("source"), "fanout"),
        channel.exchange(unique("in"), "fanout", internal=True),
    )
    channel.call(Exchange.Bind(source=source, destination=inner))
    channel.bind(queue, inner)
    channel.publish(source, "", b"inside")
    assert channel.bodies(queue) == [b"inside"]


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: WireChannel, queue: str, unique: Name) -> None:
    name = channel.exchange(unique("auto"), "direct")
    assert exists(channel, name)
    channel.bind(queue, name, "a")
    channel.bind(queue, name, "b")
    channel.call(Queue.Unbind(queue=queue, exchange=name, routing_key="a"))
    assert exists(channel, name)
    channel.call(Queue.Unbind(queue=queue, exchange=name, routing_key="b"))
    assert not exists(channel, name)


def test_deleting_the_last_queue_bound_takes_an_auto_delete_exchange_along(
    channel: WireChannel, queue: str, unique: Name
) -> None:
    name = channel.exchange(unique("auto"), "fanout")
    channel.bind(queue, name)
    channel.call(Queue.Delete(queue=queue))
    assert not exists(channel, name)


def test_deleting_a_missing_exchange_is_answered(channel: WireChannel) -> None:
    channel.call(Exchange.Delete(exchange="ghost"))


def test_a_deleted_exchange_is_gone(channel: WireChannel, queue: str, unique: Name) -> None:
    name = channel.exchange(unique("orders"), "fanout", auto_delete=False)
    channel.bind(queue, name)
    channel.call(Exchange.Delete(exchange=name))
    assert not exists(channel, name)


LOCAL_RANDOM = {
    "a binding key": ("classic", "k", "Non empty binding 'k' key not permitted"),
    "a quorum queue": ("quorum", "", "Queue type rabbit_quorum_queue not valid for this exchange type"),
    "a stream": ("stream", "", "Queue type rabbit_stream_queue not valid for this exchange type"),
}


@pytest.mark.usefixtures("since_4_0")
def test_a_local_random_exchange_takes_one_queue_for_each_message(channel: WireChannel, unique: Name) -> None:
    exchange = channel.exchange(unique("local"), "x-local-random")
    queues = [channel.queue(unique("worker")) for _ in range(3)]
    for queue in queues:
        channel.bind(queue, exchange, "")
    channel.confirm_select()
    for number in range(120):
        channel.publish(exchange, f"any {number}", b"")
    channel.wait_for_confirms()
    ready = [channel.ready(queue) for queue in queues]
    assert sum(ready) == 120
    assert min(ready) > 10


@pytest.mark.usefixtures("since_4_0")
@pytest.mark.parametrize(("kind", "key", "reason"), LOCAL_RANDOM.values(), ids=LOCAL_RANDOM.keys())
def test_a_local_random_exchange_refuses(channel: WireChannel, unique: Name, kind: str, key: str, reason: str) -> None:
    exchange, queue = channel.exchange(unique("local"), "x-local-random"), unique("queue")
    channel.call(Queue.Declare(queue=queue, durable=True, arguments={"x-queue-type": kind}))
    try:
        with pytest.raises(ChannelClosed) as closed:
            channel.bind(queue, exchange, key)
        assert (closed.value.code, closed.value.text) == (406, f"PRECONDITION_FAILED - {reason}")
    finally:
        channel.connection.channel().call(Queue.Delete(queue=queue))


@pytest.mark.usefixtures("since_4_0")
def test_a_local_random_exchange_refuses_an_exchange(channel: WireChannel, unique: Name) -> None:
    exchange = channel.exchange(unique("local"), "x-local-random")
    with pytest.raises(ChannelClosed) as closed:
        channel.call(Exchange.Bind(destination="amq.fanout", source=exchange))
    assert (closed.value.code, closed.value.text) == (406, "PRECONDITION_FAILED - Destination not found")
