"""Messages that expire, are refused or exceed a limit, and their targets."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.wire import Basic, ChannelClosed, Content, WireChannel

Name = Callable[[str], str]


@pytest.fixture
def dead(channel: WireChannel, unique: Name) -> str:
    """A queue for dead letters, with an auto-acknowledging consumer."""
    name = channel.queue(unique("dead"))
    channel.consume(name, "undertaker", no_ack=True)
    return name


def source(channel: WireChannel, unique: Name, dead: str, **arguments: Any) -> str:
    """A queue whose dead letters go to the queue ``dead`` by the default exchange."""
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return channel.queue(unique("source"), arguments=to_dead | named)


def death(message: Content) -> dict[str, Any]:
    """The latest entry of `x-death`, without its time."""
    entry = dict(message.headers["x-death"][0])
    assert entry.pop("time") is not None
    return entry


def test_an_expired_message_is_gone(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"late", Basic.Properties(expiration="0"))
    channel.publish("", queue, b"in time", Basic.Properties(expiration="60000"))
    assert channel.is_silent(0.05)
    assert channel.bodies(queue) == [b"in time"]


def test_the_expiration_of_a_message(channel: WireChannel, unique: Name, dead: str) -> None:
    queue = source(channel, unique, dead)
    channel.publish("", queue, b"late", Basic.Properties(expiration="20"))
    message = channel.next()
    assert message.body == b"late"
    assert message.properties.expiration is None
    assert death(message) == {
        "count": 1, "reason": "expired", "queue": queue, "exchange": "", "routing-keys": [queue],
        "original-expiration": "20",
    }  # fmt: skip


def test_an_expiration_may_be_years_away(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"kept", Basic.Properties(expiration=str(9 * 365 * 86_400_000)))
    assert channel.bodies(queue) == [b"kept"]


def test_the_time_to_live_of_a_queue(channel: WireChannel, unique: Name, dead: str) -> None:
    queue = source(channel, unique, dead, message_ttl=20)
    channel.publish("", queue, b"late")
    message = channel.next()
    assert death(message) == {
        "count": 1, "reason": "expired", "queue": queue, "exchange": "", "routing-keys": [queue],
    }  # fmt: skip
    headers = message.properties.headers
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == (queue, "expired")
    assert headers["x-first-death-exchange"] == ""


@pytest.mark.parametrize(
    "refuse",
    [Basic.Reject(delivery_tag=1, requeue=False), Basic.Nack(delivery_tag=1, requeue=False)],
    ids=lambda method: method.name,
)
def test_a_refused_message(channel: WireChannel, unique: Name, dead: str, refuse: Any) -> None:
    queue = source(channel, unique, dead)
    channel.publish("", queue, b"bad", Basic.Properties(headers={"device": 7}))
    other = channel.connection.channel()
    assert other.get(queue, no_ack=False)
    other.send(refuse)
    message = channel.next()
    assert death(message)["reason"] == "rejected"
    assert message.properties.headers["device"] == 7


def test_the_oldest_message_makes_room(channel: WireChannel, unique: Name, dead: str) -> None:
    queue = source(channel, unique, dead, max_length=2)
    for number in range(4):
        channel.publish("", queue, str(number).encode())
    oldest = channel.take(2)
    assert [message.body for message in oldest] == [b"0", b"1"]
    assert death(oldest[0])["reason"] == "maxlen"
    assert channel.bodies(queue) == [b"2", b"3"]


def test_the_newest_message_is_refused(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("full"), arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_select()
    channel.publish("", queue, b"first")
    assert channel.next().name == "Basic.Ack"
    channel.publish("", queue, b"second")
    refused = channel.next()
    assert (refused.name, refused.delivery_tag) == ("Basic.Nack", 2)
    assert channel.bodies(queue) == [b"first"]


def test_what_is_refused_goes_nowhere_without_an_exchange_for_dead_letters(
    channel: WireChannel, unique: Name, queue: str
) -> None:
    full = channel.queue(unique("full"), arguments={"x-max-length": 0, "x-overflow": "reject-publish-dlx"})
    exchange = channel.exchange(unique("exchange"), "direct")
    channel.bind(full, exchange, queue)
    channel.confirm_select()
    channel.publish(exchange, queue, b"refused")
    assert channel.next().name == "Basic.Nack"
    channel.publish("", queue, b"taken")
    assert channel.next().name == "Basic.Ack"
    assert channel.bodies(queue) == [b"taken"]


def test_a_length_in_octets(channel: WireChannel, unique: Name, dead: str) -> None:
    queue = source(channel, unique, dead, max_length_bytes=10)
    for body in (b"12345", b"67890", b"1"):
        channel.publish("", queue, body)
    assert channel.next().body == b"12345"
    assert channel.bodies(queue) == [b"67890", b"1"]


def test_dying_twice_counts(channel: WireChannel, unique: Name, queue: str) -> None:
    """A message returned to its queue that dies there again has a single entry, with count 2."""
    again = channel.queue(unique("again"), arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
    channel.publish("", again, b"twice")
    for _ in range(2):
        message = channel.get(again, no_ack=False)
        assert message is not None
        channel.send(Basic.Reject(delivery_tag=message.method.delivery_tag, requeue=False))
        dead = _wait_for(channel, queue)
        channel.publish("", again, dead.body, dead.properties)
    assert death(dead)["count"] == 2


def test_the_dead_letter_keeps_its_routing_key_unless_told(channel: WireChannel, unique: Name, dead: str) -> None:
    exchange = channel.exchange(unique("graves"), "fanout")
    channel.bind(dead, exchange)
    queue = channel.queue(unique("source"), arguments={"x-dead-letter-exchange": exchange, "x-message-ttl": 0})
    channel.publish("", queue, b"late")
    message = channel.next()
    assert (message.method.exchange, message.method.routing_key) == (exchange, queue)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-message-ttl": -1}, "invalid arg 'x-message-ttl' for queue '{queue}' in vhost '/': {{value_negative,-1}}"),
        ({"x-expires": 0}, "invalid arg 'x-expires' for queue '{queue}' in vhost '/': {{value_zero,0}}"),
        (
            {"x-max-length": "ten"},
            "invalid arg 'x-max-length' for queue '{queue}' in vhost '/': \"expected integer, got longstr\"",
        ),
        (
            {"x-overflow": "burst"},
            "invalid arg 'x-overflow' for queue '{queue}' in vhost '/': invalid_overflow",
        ),
        (
            {"x-dead-letter-routing-key": "dead"},
            "invalid arg 'x-dead-letter-routing-key' for queue '{queue}' in vhost '/': routing_key_but_no_dlx_defined",
        ),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(channel: WireChannel, unique: Name, arguments: dict[str, Any], text: str) -> None:
    name = unique("queue")
    with pytest.raises(ChannelClosed) as closed:
        channel.queue(name, arguments=arguments)
    assert (closed.value.code, closed.value.text) == (406, "PRECONDITION_FAILED - " + text.format(queue=name))


def _wait_for(channel: WireChannel, queue: str) -> Content:
    """The first message of a queue, after its arrival."""
    tag = channel.consume(queue, no_ack=True)
    message: Content = channel.next()
    channel.call(Basic.Cancel(consumer_tag=tag))
    return message
