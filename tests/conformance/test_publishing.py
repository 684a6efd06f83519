"""Outcomes of a publish: returned, confirmed, copied, passed on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Exchange, Queue, Tx, WireChannel, login

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]

EVERY_PROPERTY = Basic.Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"device": "d-17", "attempt": 3, "flags": [True, "x"], "nested": {"deep": -1}},
    delivery_mode=2,
    priority=4,
    correlation_id="c-1",
    reply_to="answers",
    expiration="60000",
    message_id="m-1",
    message_type="reading",
    user_id="guest",
    app_id="tests",
)


def test_a_message_arrives_as_it_was_published(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"payload", EVERY_PROPERTY)
    message = channel.get(queue)
    assert message is not None
    assert message.body == b"payload"
    assert dict(message.properties) == dict(EVERY_PROPERTY)
    assert (message.method.exchange, message.method.routing_key) == ("", queue)
    assert (message.method.redelivered, message.method.message_count) == (False, 0)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 300_000, 16_000_000])
def test_bodies_of_any_size(channel: WireChannel, queue: str, size: int) -> None:
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    channel.publish("", queue, body)
    message = channel.get(queue)
    assert message is not None
    assert message.body == body


def test_an_unroutable_mandatory_message_is_returned_before_its_confirm(channel: WireChannel) -> None:
    channel.confirm_select()
    channel.publish("amq.direct", "nowhere", b"lost", EVERY_PROPERTY, mandatory=True)
    returned, confirm = channel.take(2)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", "nowhere")
    assert (returned.body, dict(returned.properties)) == (b"lost", dict(EVERY_PROPERTY))
    assert (confirm.name, confirm.delivery_tag) == ("Basic.Ack", 1)


def test_returns_and_confirms_keep_the_order_of_publications(channel: WireChannel, queue: str) -> None:
    channel.confirm_select()
    for number in range(50):
        channel.publish("", queue if number % 5 else "nowhere", str(number).encode(), mandatory=True)
    returned: list[int] = []
    while len(returned) < 10:
        event = channel.next()
        if not isinstance(event, Basic.Ack):
            returned.append(int(event.body))
    assert returned == list(range(0, 50, 5))


def test_an_unroutable_message_that_is_not_mandatory_is_confirmed(channel: WireChannel) -> None:
    channel.confirm_select()
    channel.publish("amq.direct", "nowhere")
    channel.wait_for_confirms()


def test_every_publication_is_confirmed_once(channel: WireChannel, queue: str) -> None:
    channel.confirm_select()
    for number in range(1000):
        channel.publish("", queue, str(number).encode(), Basic.Properties(delivery_mode=1 + number % 2))
    channel.wait_for_confirms()
    assert channel.is_silent()
    assert channel.ready(queue) == 1000


def test_two_bindings_that_match_make_one_copy(channel: WireChannel, queue: str) -> None:
    for pattern in ("orders.#", "*.new", "orders.new"):
        channel.bind(queue, "amq.topic", f"{queue}.{pattern}")
    channel.publish("amq.topic", f"{queue}.orders.new", b"once")
    assert channel.bodies(queue) == [b"once"]


def test_cc_and_bcc_add_routing_keys(channel: WireChannel, unique: Name) -> None:
    to, copy, blind = (channel.queue(unique(name)) for name in ("to", "copy", "blind"))
    channel.publish("", to, b"memo", Basic.Properties(headers={"CC": [copy], "BCC": [blind]}))
    for queue in (to, copy, blind):
        message = channel.get(queue)
        assert message is not None
        assert message.method.routing_key == to
        assert message.properties.headers == {"CC": [copy]}


def test_a_copy_to_the_same_queue_is_made_once(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"memo", Basic.Properties(headers={"CC": [queue, queue]}))
    assert channel.bodies(queue) == [b"memo"]


def test_an_alternate_exchange_takes_what_finds_no_queue(channel: WireChannel, queue: str, unique: Name) -> None:
    alternate = channel.exchange(unique("unrouted"), "fanout")
    channel.bind(queue, alternate)
    direct = channel.exchange(
        unique("orders"), "direct", auto_delete=False, arguments={"alternate-exchange": alternate}
    )
    channel.publish(direct, "nowhere", b"kept", mandatory=True)
    message = channel.get(queue)
    assert message is not None
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"kept", direct, "nowhere")
    channel.call(Exchange.Delete(exchange=direct))


def test_a_missing_alternate_exchange_is_no_error(channel: WireChannel, unique: Name) -> None:
    direct = channel.exchange(unique("orders"), "direct", auto_delete=False, arguments={"alternate-exchange": "ghost"})
    channel.publish(direct, "nowhere", b"lost", mandatory=True)
    assert channel.next().method.reply_text == "NO_ROUTE"
    channel.call(Exchange.Delete(exchange=direct))


def test_a_transaction_publishes_at_commit(channel: WireChannel, queue: str) -> None:
    channel.call(Tx.Select())
    channel.publish("", queue, b"withdrawn")
    channel.call(Tx.Rollback())
    channel.publish("", queue, b"committed")
    assert channel.get(queue) is None
    channel.call(Tx.Commit())
    assert channel.bodies(queue) == [b"committed"]


@pytest.mark.parametrize("tags", ["impersonator", "management"])
def test_an_impersonator_publishes_in_anothers_name(
    broker: BrokerProcess, operator: Operator, channel: WireChannel, queue: str, unique: Name, tags: str
) -> None:
    user = unique("user")
    assert operator.ask("PUT", "users", user, json={"password": "sesame", "tags": tags}).status_code == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert operator.ask("PUT", "permissions", "/", user, json=everything).status_code == 201
    channel.connection.channel().call(Queue.Declare(queue=f"{queue}-open", auto_delete=True))
    with login(broker.port, user=user, password="sesame") as connection:
        publisher = connection.channel()
        publisher.confirm_select()
        publisher.publish("", f"{queue}-open", b"", Basic.Properties(user_id="somebody else"))
        if tags == "impersonator":
            publisher.wait_for_confirms()
        else:
            with pytest.raises(ChannelClosed) as closed:
                publisher.next()
            assert closed.value.code == 406
    channel.call(Queue.Delete(queue=f"{queue}-open"))
    operator.ask("DELETE", "users", user)


def test_what_was_published_before_a_malformed_message_arrives(channel: WireChannel, queue: str) -> None:
    channel.connection.send(
        channel.publication("", queue, b"well")
        + channel.publication("", queue, b"ill", Basic.Properties(expiration="soon"))
        + channel.publication("", queue, b"too late")
    )
    with pytest.raises(ChannelClosed):
        channel.next()
    assert channel.connection.channel().bodies(queue) == [b"well"]


def test_headers_that_are_longer_than_a_readers_frames_come_in_one(broker: BrokerProcess, queue: str) -> None:
    """A content header cannot be split: the reader gets a frame above its negotiated maximum."""
    with login(broker.port) as writer, login(broker.port, frame_max=4096) as reader:
        name = writer.channel().queue(f"{queue}-shared", exclusive=False)
        channel = writer.channel()
        channel.confirm_select()
        channel.publish("", name, b"body", Basic.Properties(headers={"long": "x" * 10_000}))
        assert isinstance(channel.next(), Basic.Ack)
        reader.channel(1)
        reader.send_method(1, Basic.Get(queue=name, no_ack=True))
        kinds = [reader.read_frame() for _ in range(3)]
        assert [(kind, len(payload) > 4096) for kind, _, payload in kinds] == [(1, False), (2, True), (3, False)]
        channel.call(Queue.Delete(queue=name))


@pytest.fixture
def limited(broker: BrokerProcess, operator: Operator, unique: Name) -> Iterator[WireChannel]:
    """A channel of a user who may publish to the topic `ok` of `amq.topic` only."""
    user = unique("limited")
    operator.ask("PUT", "users", user, json={"password": user, "tags": ""})
    operator.ask("PUT", "permissions", "/", user, json={"configure": "", "write": ".*", "read": ".*"})
    topics = {"exchange": "amq.topic", "write": "^ok$", "read": ".*"}
    operator.ask("PUT", "topic-permissions", "/", user, json=topics)
    with login(broker.port, user=user, password=user) as connection:
        yield connection.channel()
    operator.ask("DELETE", "users", user)


@pytest.mark.parametrize(
    ("properties", "code", "text"),
    [
        ({"expiration": "a"}, 406, "invalid expiration 'a': no_integer"),
        ({"expiration": "a", "headers": {"CC": "x"}}, 406, "invalid expiration 'a': no_integer"),
        ({"expiration": "a", "user_id": "other"}, 406, "invalid expiration 'a': no_integer"),
        ({"reply_to": "amq.rabbitmq.reply-to", "expiration": "a"}, 406, "fast reply consumer does not exist"),
        ({"headers": {"CC": "x"}}, 406, 'invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        ({"expiration": "1", "user_id": "other"}, 403, "access to topic 'no' in exchange 'amq.topic'"),
    ],
)
def test_what_is_told_of_a_message_that_is_wrong_and_whose_topic_is_refused(
    limited: WireChannel, properties: dict[str, Any], code: int, text: str
) -> None:
    limited.publish("amq.topic", "no", b"", Basic.Properties(**properties))
    with pytest.raises(ChannelClosed) as refused:
        limited.next()
    assert refused.value.code == code
    assert text in refused.value.text


def test_what_comes_before_a_refused_topic_is_published(channel: WireChannel, queue: str, limited: WireChannel) -> None:
    channel.bind(queue, "amq.topic", "ok")
    for key in ("ok", "no", "ok"):
        limited.publish("amq.topic", key, key.encode())
    with pytest.raises(ChannelClosed):
        limited.next()
    until(lambda: channel.ready(queue) == 1)


def test_an_empty_expiration_is_no_number(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"", b"\x01\x00\x00")
    with pytest.raises(ChannelClosed) as refused:
        channel.next()
    assert refused.value.text == "PRECONDITION_FAILED - invalid expiration '': no_integer"
