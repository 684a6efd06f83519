"""RabbitMQ's pages on exchange-to-exchange bindings, alternate exchanges and CC: the routing of a message."""

from collections.abc import Callable
from typing import Any

import pytest
from fuzzing.sessions.client import Client, publication
from tests.conformance.operator import Operator
from tests.conformance.typed_fields import field, headers
from tests.wire import Basic, ChannelClosed, Content, Exchange, Queue, WireChannel

from jumpmq.amqp import methods
from jumpmq.testing import BrokerProcess

Unique = Callable[[str], str]


def bind_exchanges(channel: WireChannel, source: str, destination: str, key: str = "") -> None:
    channel.call(Exchange.Bind(source=source, destination=destination, routing_key=key))


def exists(channel: WireChannel, exchange: str) -> bool:
    return channel.connection.finds(Exchange.Declare(exchange=exchange, passive=True))


def returned(channel: WireChannel, exchange: str, key: str) -> bool:
    """Return true if a mandatory message is returned; the channel confirms."""
    channel.publish(exchange, key, b"mandatory", mandatory=True)
    found = False
    while not isinstance(event := channel.next(), Basic.Ack):
        assert isinstance(event, Content)
        assert event.method.reply_text == "NO_ROUTE"
        found = True
    return found


# --- exchange to exchange ---


def test_every_queue_gets_one_copy_whatever_the_ways(channel: WireChannel, queue: str, unique: Unique) -> None:
    top, left, right = (channel.exchange(unique(name), "fanout") for name in ("top", "left", "right"))
    bind_exchanges(channel, top, left)
    bind_exchanges(channel, top, right)
    bind_exchanges(channel, right, left)
    for exchange in (top, left, right):
        channel.bind(queue, exchange)
    channel.publish(top, "", b"once")
    assert channel.bodies(queue) == [b"once"]


def test_several_bindings_join_the_same_two_exchanges(channel: WireChannel, queue: str, unique: Unique) -> None:
    source, destination = (
        channel.exchange(unique("source"), "direct"),
        channel.exchange(unique("destination"), "fanout"),
    )
    channel.bind(queue, destination)
    bind_exchanges(channel, source, destination, "a")
    bind_exchanges(channel, source, destination, "b")
    for key in ("a", "b", "c"):
        channel.publish(source, key, key.encode())
    assert channel.bodies(queue) == [b"a", b"b"]
    channel.call(Exchange.Unbind(source=source, destination=destination, routing_key="a"))
    channel.publish(source, "a")
    channel.publish(source, "b", b"b")
    assert channel.bodies(queue) == [b"b"]


def test_an_auto_delete_exchange_goes_with_the_last_binding_that_it_is_the_source_of(
    channel: WireChannel, unique: Unique
) -> None:
    source = channel.exchange(unique("source"), "fanout")
    destination = channel.exchange(unique("destination"), "fanout")
    bind_exchanges(channel, source, destination)
    channel.call(Exchange.Unbind(source=source, destination=destination))
    assert not exists(channel, source)
    assert exists(channel, destination)
    channel.call(Exchange.Delete(exchange=destination))


# --- alternate exchanges ---


def with_alternate(channel: WireChannel, name: str, alternate: str, kind: str = "direct") -> str:
    return channel.exchange(name, kind, auto_delete=False, arguments={"alternate-exchange": alternate})


def test_alternates_are_tried_one_after_the_other(channel: WireChannel, queue: str, unique: Unique) -> None:
    first, second, last = unique("first"), unique("second"), channel.exchange(unique("last"), "fanout")
    with_alternate(channel, first, second)
    with_alternate(channel, second, last)
    channel.bind(queue, last)
    channel.publish(first, "nobody's", b"found")
    message = channel.get(queue)
    assert message is not None
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"found", first, "nobody's")
    for exchange in (first, second):
        channel.call(Exchange.Delete(exchange=exchange))


def test_a_circle_of_alternates_ends(channel: WireChannel, unique: Unique) -> None:
    first, second = unique("first"), unique("second")
    with_alternate(channel, first, second)
    with_alternate(channel, second, first)
    channel.confirm_select()
    assert returned(channel, first, "nobody's")
    for exchange in (first, second):
        channel.call(Exchange.Delete(exchange=exchange))


def test_what_an_alternate_routes_counts_as_routed(channel: WireChannel, queue: str, unique: Unique) -> None:
    alternate = channel.exchange(unique("alternate"), "direct", auto_delete=False)
    exchange = with_alternate(channel, unique("exchange"), alternate)
    channel.bind(queue, alternate, "known")
    channel.confirm_select()
    assert not returned(channel, exchange, "known")
    assert returned(channel, exchange, "unknown")
    for name in (exchange, alternate):
        channel.call(Exchange.Delete(exchange=name))


def test_an_alternate_exchange_may_be_one_that_is_not_there_yet(
    channel: WireChannel, queue: str, unique: Unique
) -> None:
    exchange, alternate = unique("exchange"), unique("alternate")
    with_alternate(channel, exchange, alternate)
    channel.publish(exchange, "", b"lost")
    channel.exchange(alternate, "fanout")
    channel.bind(queue, alternate)
    channel.publish(exchange, "", b"found")
    assert channel.bodies(queue) == [b"found"]
    channel.call(Exchange.Delete(exchange=exchange))


# --- CC and BCC ---


def test_cc_is_told_from_other_headers_by_its_case(channel: WireChannel, queue: str, unique: Unique) -> None:
    other = channel.queue(unique("other"))
    for name in ("cc", "Cc", "bcc"):
        channel.publish("", queue, b"1", Basic.Properties(headers={name: [other]}))
    assert len(channel.bodies(queue)) == 3
    assert channel.bodies(other) == []
    channel.publish("", queue, b"1", Basic.Properties(headers={"CC": [other]}))
    assert len(channel.bodies(other)) == 1


def test_a_mandatory_message_that_a_copy_routes_is_not_returned(channel: WireChannel, queue: str) -> None:
    channel.confirm_select()
    for name in ("CC", "BCC"):
        channel.publish("", "nowhere", b"1", Basic.Properties(headers={name: [queue]}), mandatory=True)
        assert isinstance(channel.next(), Basic.Ack)
    assert len(channel.bodies(queue)) == 2


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_cc_must_be_a_list_also_in_a_transaction(channel: WireChannel, queue: str, name: str) -> None:
    channel.select_transactions()
    channel.publish("", queue, b"1", Basic.Properties(headers={name: queue}))
    with pytest.raises(ChannelClosed) as closed:
        channel.next()
    assert closed.value.text == (
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",longstr}}'
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("t", True), ("b", -1), ("B", 255), ("s", -2), ("u", 65535), ("I", -3), ("i", 1 << 31), ("l", -4), ("L", -5),
        ("T", 1 << 40), ("f", 1.5), ("d", -0.0), ("D", (2, 314)), ("S", "fffe"), ("x", "fffe"), ("V", None),
        ("A", [("L", 1), ("S", "61")]), ("F", {"inner": ("L", 1)}),
    ],
)  # fmt: skip
def test_headers_keep_their_types_when_bcc_is_taken_out(broker: BrokerProcess, kind: str, value: Any) -> None:
    """Headers keep their types when BCC is removed, except ``L``, which becomes its synonym ``l``."""
    client = Client(broker.port)
    client.send_method(1, methods.ChannelOpen())
    client.send_method(1, methods.QueueDeclare(exclusive=True))
    declared = client.call(1, methods.QueueDeclareOk)
    assert isinstance(declared, methods.QueueDeclareOk)
    sent = headers(field("BCC", "A", []), field("h", kind, value))
    client.send(publication(1, methods.BasicPublish(0, "", declared.queue.encode(), False, False), sent, b""))
    client.send_method(1, methods.BasicGet(queue=declared.queue, no_ack=True))
    got = client.wait(lambda event: isinstance(event.method, methods.BasicGetOk))
    client.hang_up()
    assert got is not None
    assert got.properties == headers(field("h", *_with_one_long(kind, value)))


def _with_one_long(kind: str, value: Any) -> tuple[str, Any]:
    match kind:
        case "A":
            return kind, [_with_one_long(*one) for one in value]
        case "F":
            return kind, {name: _with_one_long(*one) for name, one in value.items()}
    return "l" if kind == "L" else kind, value


# --- order ---


def test_every_queue_gets_a_channels_messages_in_order(channel: WireChannel, unique: Unique) -> None:
    exchange = channel.exchange(unique("exchange"), "topic")
    queues = [channel.queue(unique("queue")) for _ in range(3)]
    for queue, key in zip(queues, ("#", "a.*", "*.1"), strict=True):
        channel.bind(queue, exchange, key)
    for number in range(30):
        channel.publish(exchange, f"a.{number % 2}", b"%d" % number)
    everything = [b"%d" % number for number in range(30)]
    assert [channel.bodies(queue) for queue in queues] == [everything, everything, everything[1::2]]


def test_the_last_alternate_is_that_of_the_policy(
    channel: WireChannel, operator: Operator, queue: str, unique: Unique
) -> None:
    """A policy's alternate exchange ends with the policy."""
    exchange, alternate = channel.exchange(unique("exchange"), "direct", auto_delete=False), unique("alternate")
    channel.exchange(alternate, "fanout")
    channel.bind(queue, alternate)
    operator.set_policy("alternate", f"^{exchange}$", {"alternate-exchange": alternate}, apply_to="exchanges")
    channel.publish(exchange, "", b"found")
    assert channel.bodies(queue) == [b"found"]
    operator.clear_policy("alternate")
    channel.publish(exchange, "", b"lost")
    assert channel.bodies(queue) == []
    channel.call(Exchange.Delete(exchange=exchange))
    assert channel.call(Queue.Declare(queue=queue, passive=True)).message_count == 0
