"""The effective binding of a hash exchange, and the keys moved by an unbind."""

from collections.abc import Callable

import pytest
from tests.conformance.rings import Ring
from tests.wire import Exchange, Queue, WireChannel

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]

KEYS = [(str(key), None) for key in range(500)]


def test_only_the_first_binding_of_a_queue_counts(channel: WireChannel, unique: Name) -> None:
    once = Ring(channel, "x-consistent-hash", [1, 1, 2], unique)
    twice = Ring(channel, "x-consistent-hash", [1, 1, 2], unique)
    channel.bind(twice.queues[0], twice.exchange, "50")
    assert twice.place(KEYS) == once.place(KEYS)


def test_the_modulus_ignores_the_binding_key(channel: WireChannel, unique: Name) -> None:
    plain = Ring(channel, "x-modulus-hash", [1, 1, 1], unique)
    exchange = channel.exchange(unique("ring"), "x-modulus-hash")
    queues = sorted(channel.queue(unique("modulus")) for _ in range(3))
    for queue in queues:
        channel.bind(queue, exchange, "heavy")
    for key, _ in KEYS:
        channel.publish(exchange, key)
    places = plain.place(KEYS)
    assert [len(channel.bodies(queue)) for queue in queues] == [places.count(number) for number in range(3)]


def test_an_exchange_without_bindings_returns_what_must_be_routed(channel: WireChannel, unique: Name) -> None:
    for exchange_type in ("x-consistent-hash", "x-modulus-hash"):
        exchange = channel.exchange(unique("ring"), exchange_type)
        channel.publish(exchange, "key", b"nowhere", mandatory=True)
        returned = channel.next()
        assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
        assert returned.body == b"nowhere"


@pytest.mark.parametrize("exchange_type", ["x-consistent-hash", "x-modulus-hash"])
def test_exchanges_may_be_destinations(channel: WireChannel, unique: Name, exchange_type: str) -> None:
    """An exchange owns a bucket as a queue, and routes the bucket's messages."""
    source = channel.exchange(unique("ring"), exchange_type)
    relay, behind, beside = (
        channel.exchange(unique("a"), "fanout"),
        channel.queue(unique("b")),
        channel.queue(unique("c")),
    )
    channel.bind(behind, relay)
    channel.call(Exchange.Bind(source=source, destination=relay, routing_key="1"))
    channel.bind(beside, source, "1")
    ring = Ring(channel, exchange_type, [1, 1], unique)
    for number, (key, _) in enumerate(KEYS):
        channel.publish(source, key, str(number).encode())
    places = ring.place(KEYS)
    for owner, queue in enumerate((behind, beside)):
        assert [int(body) for body in channel.bodies(queue)] == [
            at for at, place in enumerate(places) if place == owner
        ]


def test_the_last_queue_bound_can_go_without_moving_another_key(channel: WireChannel, unique: Name) -> None:
    before = Ring(channel, "x-consistent-hash", [1, 1, 1, 1], unique)
    after = Ring(channel, "x-consistent-hash", [1, 1, 1, 1], unique)
    channel.call(Queue.Unbind(queue=after.queues.pop(), exchange=after.exchange, routing_key="1"))
    places = zip(before.place(KEYS), after.place(KEYS), strict=True)
    assert all(old == new for old, new in places if old != 3)


@pytest.mark.parametrize("removal", ["minimal", "shift"])
def test_unbinding_the_first_queue(broker: BrokerProcess, channel: WireChannel, unique: Name, removal: str) -> None:
    """JumpMQ moves the unbound queue's keys only, unless configured to shift buckets as RabbitMQ."""
    arguments = {"ring-removal": removal} if broker.name == "JumpMQ" else None
    before = Ring(channel, "x-consistent-hash", [1] * 10, unique)
    after = Ring(channel, "x-consistent-hash", [1] * 10, unique, arguments)
    channel.call(Queue.Delete(queue=after.queues.pop(0)))
    old, new = before.place(KEYS), [place + 1 for place in after.place(KEYS)]
    others = [(was, is_now) for was, is_now in zip(old, new, strict=True) if was != 0]
    moved = sum(was != is_now for was, is_now in others)
    if broker.name == "JumpMQ" and removal == "minimal":
        assert moved == 0
    else:
        assert moved > len(others) * 0.9


def test_shifted_buckets_decide_as_if_the_queue_had_never_been(channel: WireChannel, unique: Name) -> None:
    ring = Ring(channel, "x-consistent-hash", [2, 1, 3, 1], unique, {"ring-removal": "shift"})
    fresh = Ring(channel, "x-consistent-hash", [2, 3, 1], unique)
    channel.call(Queue.Delete(queue=ring.queues.pop(1)))
    assert ring.place(KEYS) == fresh.place(KEYS)
