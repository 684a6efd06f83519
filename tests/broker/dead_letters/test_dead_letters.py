"""The ``x-death`` header records a message's path; cycles of dead-lettering end."""

from collections.abc import Callable
from typing import Any

from tests.wire import Basic, Content, WireChannel

Name = Callable[[str], str]


def deaths(message: Content) -> list[tuple[str, str, int]]:
    """Return queue, reason and count of every entry, the latest first."""
    return [(one["queue"], one["reason"], one["count"]) for one in message.headers["x-death"]]


def dying(channel: WireChannel, name: str, key: str, **arguments: Any) -> str:
    """Declare a queue whose dead letters go to the queue ``key``."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return channel.queue(name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key, **named})


def arrival(channel: WireChannel, queue: str) -> Content:
    """The next message of a queue, left unacknowledged."""
    while (message := channel.get(queue, no_ack=False)) is None:
        assert channel.is_silent(0.02)
    return message


def reject(channel: WireChannel, message: Content) -> None:
    channel.send(Basic.Reject(delivery_tag=message.method.delivery_tag, requeue=False))


def test_each_station_of_the_way_is_noted_once_with_a_count(channel: WireChannel, unique: Name) -> None:
    work, wait = unique("work"), unique("wait")
    dying(channel, work, wait)
    dying(channel, wait, work, message_ttl=10)
    channel.publish("", work, b"again and again", Basic.Properties(headers={"device": 7}, message_id="m"))
    for round in range(1, 4):
        message = arrival(channel, work)
        if round > 1:
            assert deaths(message) == [(wait, "expired", round - 1), (work, "rejected", round - 1)]
        reject(channel, message)
    message = arrival(channel, work)
    headers = message.headers
    assert (headers["device"], message.properties.message_id) == (7, "m")
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == (work, "rejected")
    assert all(one["routing-keys"] == [one["queue"]] for one in headers["x-death"])


def test_a_circle_that_nobody_rejects_in_ends(channel: WireChannel, unique: Name) -> None:
    first, second = unique("first"), unique("second")
    dying(channel, first, second, message_ttl=10)
    dying(channel, second, first, message_ttl=10)
    channel.publish("", first, b"round and round")
    assert channel.is_silent(0.6)
    assert channel.ready(first) + channel.ready(second) == 0


def test_a_queue_that_is_its_own_graveyard_does_not_hang(channel: WireChannel, unique: Name) -> None:
    queue = unique("queue")
    dying(channel, queue, queue, max_length=1)
    for number in range(5):
        channel.publish("", queue, b"%d" % number)
    assert channel.ready(queue) <= 1
    message = arrival(channel, queue)
    reject(channel, message)
    assert deaths(arrival(channel, queue))[0] == (queue, "rejected", 1)


def test_dead_letters_of_a_missing_exchange_are_gone(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("queue"), arguments={"x-dead-letter-exchange": unique("nowhere")})
    channel.publish("", queue, b"dead")
    reject(channel, arrival(channel, queue))
    assert channel.ready(queue) == 0


def test_dead_letters_are_spread_by_a_hash_exchange(channel: WireChannel, unique: Name) -> None:
    """A hash exchange as dead letter exchange keeps every key in one queue."""
    ring = channel.exchange(unique("ring"), "x-consistent-hash")
    shards = [channel.queue(unique("shard")) for _ in range(3)]
    for shard in shards:
        channel.bind(shard, ring, "1")
    source = channel.exchange(unique("source"), "fanout")
    queue = channel.queue(unique("queue"), arguments={"x-dead-letter-exchange": ring, "x-message-ttl": 0})
    channel.bind(queue, source)
    for number in range(60):
        channel.publish(source, f"key-{number % 20}", b"%d" % (number % 20))
    while sum(map(channel.ready, shards)) < 60:
        assert channel.is_silent(0.02)
    found = [channel.bodies(shard) for shard in shards]
    assert all(found)
    assert sum(len(set(bodies)) for bodies in found) == 20


def test_a_forged_count_harms_nobody(channel: WireChannel, unique: Name) -> None:
    """A forged count in ``x-death`` has no effect; RabbitMQ's queue process dies, with all transient messages."""
    grave, source = channel.queue(unique("grave")), unique("source")
    dying(channel, source, grave)
    for count in ("abc", -1, 2**63 - 1, None, ["x"], {"a": 1}):
        entry: dict[str, Any] = {"queue": source, "reason": "rejected", "count": count}
        strange: dict[str, Any] = {"queue": ["x"], "reason": {"y": 1}}
        forged: list[list[Any]] = [[entry], [entry, entry], [entry, "no table", 7], [strange, entry]]
        for entries in forged:
            channel.publish("", source, b"dead", Basic.Properties(headers={"x-death": entries}))
            reject(channel, arrival(channel, source))
            latest = arrival(channel, grave).headers["x-death"][0]
            assert (latest["queue"], latest["reason"]) == (source, "rejected")
            assert isinstance(latest["count"], int)


def test_a_key_that_is_too_long_for_a_delivery_is_cut(channel: WireChannel, unique: Name) -> None:
    """A key too long for a delivery is cut; RabbitMQ closes connections on delivery of such a message."""
    exchange = channel.exchange(unique("graves"), "fanout")
    grave, source = channel.queue(unique("grave")), unique("source")
    channel.bind(grave, exchange)
    to = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k" * 300}
    channel.queue(source, arguments=to)
    channel.publish("", source, b"dead")
    reject(channel, arrival(channel, source))
    message = arrival(channel, grave)
    assert (message.body, message.method.routing_key) == (b"dead", "k" * 255)
