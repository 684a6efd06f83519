"""RabbitMQ's pages on transactions, acknowledgements and consumers, and its interpretations of AMQP 0-9-1."""

from collections.abc import Callable

import pytest
from pamqp.base import Frame as Method
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import (
    METHOD,
    Basic,
    Channel,
    ChannelClosed,
    Closed,
    Confirm,
    Content,
    Exchange,
    Queue,
    Tx,
    WireChannel,
    WireConnection,
    login,
)

from jumpmq.testing import BrokerProcess

Unique = Callable[[str], str]


def refusal(channel: WireChannel, method: Method) -> tuple[int, str]:
    with pytest.raises(Closed) as closed:
        channel.call(method)
    return closed.value.code, closed.value.text.partition(" - ")[2]


# --- transactions ---


def test_a_rollback_drops_what_was_published_and_leaves_deliveries_with_the_client(
    channel: WireChannel, queue: str
) -> None:
    channel.publish("", queue, b"1")
    channel.select_transactions()
    channel.call(Tx.Commit())
    assert channel.get(queue, no_ack=False) is not None
    channel.publish("", queue, b"2")
    channel.send(Basic.Ack(1))
    channel.call(Tx.Rollback())
    assert channel.ready(queue) == 0
    channel.send(Basic.Reject(1, requeue=True))
    channel.call(Tx.Commit())
    message = channel.get(queue)
    assert message is not None
    assert (message.body, message.method.redelivered) == (b"1", True)


def test_a_rejection_waits_for_the_commit(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"1")
    assert channel.get(queue, no_ack=False) is not None
    channel.select_transactions()
    channel.send(Basic.Nack(1, requeue=True))
    assert channel.ready(queue) == 0
    channel.call(Tx.Commit())
    assert channel.ready(queue) == 1


def test_unroutable_messages_are_returned_before_the_commit_is_answered(channel: WireChannel) -> None:
    channel.select_transactions()
    channel.publish("", "nowhere", b"1", mandatory=True)
    assert channel.is_silent()
    channel.send(Tx.Commit())
    first, second = channel.take(2)
    assert isinstance(first, Content)
    assert isinstance(second, Tx.CommitOk)


def test_errors_in_a_transaction_show_at_once(channel: WireChannel) -> None:
    channel.select_transactions()
    channel.publish("nowhere", "")
    with pytest.raises(ChannelClosed) as closed:
        channel.next()
    assert closed.value.text == "NOT_FOUND - no exchange 'nowhere' in vhost '/'"


def test_definitions_do_not_wait_for_a_commit(channel: WireChannel, connection: WireConnection, unique: Unique) -> None:
    channel.select_transactions()
    queue = channel.queue(unique("queue"))
    assert connection.channel().ready(queue) == 0
    channel.call(Tx.Rollback())
    assert connection.channel().ready(queue) == 0


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (Tx.Select(), Confirm.Select(), "cannot switch from tx to confirm mode"),
        (Confirm.Select(), Tx.Select(), "cannot switch from confirm to tx mode"),
    ],
)
def test_a_channel_is_transactional_or_confirms(channel: WireChannel, first: Method, second: Method, text: str) -> None:
    channel.call(first)
    assert refusal(channel, second) == (406, text)


# --- acknowledgements ---


def test_a_delivery_is_acknowledged_on_its_own_channel(
    connection: WireConnection, channel: WireChannel, queue: str
) -> None:
    channel.publish("", queue)
    assert channel.get(queue, no_ack=False) is not None
    other = connection.channel()
    other.send(Basic.Ack(1))
    with pytest.raises(ChannelClosed) as closed:
        other.next()
    assert closed.value.text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert channel.ready(queue) == 0


def test_a_prefetch_does_not_limit_what_is_got(channel: WireChannel, queue: str) -> None:
    channel.call(Basic.Qos(prefetch_count=1))
    for number in range(3):
        channel.publish("", queue, b"%d" % number)
    assert [message.body for _ in range(3) if (message := channel.get(queue, no_ack=False))] == [b"0", b"1", b"2"]


def test_what_was_got_may_be_refused(channel: WireChannel, queue: str) -> None:
    for number in range(3):
        channel.publish("", queue, b"%d" % number)
    for _ in range(3):
        channel.get(queue, no_ack=False)
    channel.send(Basic.Nack(2, multiple=True, requeue=True))
    assert channel.bodies(queue) == [b"0", b"1"]


def test_a_delivery_tells_who_gets_it_and_whence_it_is(channel: WireChannel, queue: str, unique: Unique) -> None:
    exchange = channel.exchange(unique("exchange"), "topic")
    channel.bind(queue, exchange, "#")
    channel.publish(exchange, "a.b", b"1")
    channel.consume(queue, "reader")
    (delivery,) = channel.take(1)
    told = delivery.method
    assert (told.consumer_tag, told.delivery_tag, told.redelivered) == ("reader", 1, False)
    assert (told.exchange, told.routing_key) == (exchange, "a.b")


# --- consumers ---


def test_lower_priorities_are_served_when_the_higher_have_no_room(connection: WireConnection, queue: str) -> None:
    high, low = connection.channel(), connection.channel()
    high.call(Basic.Qos(prefetch_count=1))
    high.consume(queue, "high", arguments={"x-priority": 3})
    low.consume(queue, "low", arguments={"x-priority": -3})
    for body in (b"1", b"2"):
        low.publish("", queue, body)
    assert high.next().body == b"1"
    assert low.next().body == b"2"
    high.send(Basic.Ack(1))
    assert high.call(Channel.Flow(True)).active
    low.publish("", queue, b"3")
    assert high.next().body == b"3"


def test_only_one_is_active_however_busy_it_is(connection: WireConnection, unique: Unique) -> None:
    active, waiting = connection.channel(), connection.channel()
    queue = active.queue(unique("single"), arguments={"x-single-active-consumer": True})
    active.call(Basic.Qos(prefetch_count=1))
    active.consume(queue, "active")
    waiting.consume(queue, "waiting")
    for body in (b"1", b"2"):
        active.publish("", queue, body)
    assert active.next().body == b"1"
    assert waiting.is_silent()
    active.close()
    assert [message.body for message in waiting.take(2)] == [b"1", b"2"]


def test_a_single_active_consumer_is_asked_for_by_the_queue_alone(operator: Operator) -> None:
    assert operator.refusal({"single-active-consumer": True}).startswith("Validation failed")


def test_cancelling_what_the_broker_has_cancelled_is_no_error(channel: WireChannel, unique: Unique) -> None:
    queue = channel.queue(unique("queue"))
    channel.consume(queue, "reader")
    channel.call(Queue.Delete(queue=queue))
    assert isinstance(channel.next(), Basic.Cancel)
    assert channel.call(Basic.Cancel("reader")).consumer_tag == "reader"


def test_no_local_is_ignored(channel: WireChannel, queue: str) -> None:
    channel.consume(queue, no_local=True)
    channel.publish("", queue, b"own")
    assert channel.next().body == b"own"


def test_a_polled_auto_delete_queue_stays(channel: WireChannel, unique: Unique) -> None:
    queue = channel.queue(unique("polled"), exclusive=False, auto_delete=True)
    channel.publish("", queue)
    assert channel.get(queue) is not None
    assert channel.ready(queue) == 0
    channel.call(Queue.Delete(queue=queue))


def test_a_declaration_counts_all_consumers(connection: WireConnection, queue: str) -> None:
    for number in range(2):
        channel = connection.channel()
        channel.call(Basic.Qos(prefetch_count=1))
        channel.consume(queue)
        channel.publish("", queue, b"%d" % number)
    channel.publish("", queue)
    channel.take(1)
    assert connection.channel().call(Queue.Declare(queue=queue, passive=True)).consumer_count == 2


# --- direct reply-to ---


def test_a_reply_consumer_cannot_acknowledge(channel: WireChannel) -> None:
    consume = Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=False)
    assert refusal(channel, consume) == (406, "reply consumer cannot acknowledge")


def test_who_asks_must_listen_on_the_same_channel(connection: WireConnection, channel: WireChannel, queue: str) -> None:
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    other = connection.channel()
    other.publish("", queue, b"", Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    with pytest.raises(ChannelClosed) as closed:
        other.next()
    assert closed.value.text == "PRECONDITION_FAILED - fast reply consumer does not exist"


def test_an_answer_to_who_is_gone_is_returned(connection: WireConnection, channel: WireChannel, queue: str) -> None:
    asking = connection.channel()
    asking.consume("amq.rabbitmq.reply-to", no_ack=True)
    asking.publish("", queue, b"?", Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    until(lambda: channel.ready(queue) == 1)
    message = channel.get(queue)
    assert message is not None
    address = message.properties.reply_to
    assert address is not None
    asking.close()
    channel.publish("", address, b"!", mandatory=True)
    returned = channel.next()
    assert (returned.method.reply_text, returned.body) == ("NO_ROUTE", b"!")


def test_a_reply_queue_is_in_no_list(channel: WireChannel, operator: Operator) -> None:
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    assert not [one for one in operator.see("queues", "/") if one["name"].startswith("amq.rabbitmq")]


# --- readings of the specification ---


def test_passive_declarations_fail_also_where_no_answer_is_wanted(channel: WireChannel) -> None:
    channel.send(Queue.Declare(queue="none", passive=True, nowait=True))
    with pytest.raises(ChannelClosed) as closed:
        channel.next()
    assert closed.value.code == 404


def test_the_default_exchange_is_for_publishing_alone(channel: WireChannel, queue: str) -> None:
    other = channel.connection.channel
    text = "operation not permitted on the default exchange"
    assert refusal(other(), Exchange.Declare(exchange="", exchange_type="direct", durable=True)) == (403, text)
    assert refusal(other(), Exchange.Declare(exchange="", passive=True)) == (403, text)
    assert refusal(other(), Queue.Bind(queue=queue, exchange="", routing_key="k")) == (403, text)
    assert refusal(other(), Queue.Unbind(queue=queue, exchange="", routing_key=queue)) == (403, text)
    assert refusal(other(), Exchange.Bind(destination="", source="amq.fanout")) == (403, text)
    assert refusal(other(), Exchange.Bind(destination="amq.fanout", source="")) == (403, text)


def test_access_request_is_answered(channel: WireChannel) -> None:
    """``access.request`` of AMQP 0-8 is answered: old clients send class 30, method 10, with a realm and five bits."""
    channel.send_frame(METHOD, b"\x00\x1e\x00\x0a" + b"\x05/data" + b"\x1f")
    kind, number, payload = channel.connection.read_frame()
    assert (kind, number, payload) == (METHOD, channel.number, b"\x00\x1e\x00\x0b\x00\x01")


def test_virtual_hosts_share_no_names(
    broker: BrokerProcess, channel: WireChannel, operator: Operator, queue: str
) -> None:
    operator.ask("PUT", "vhosts", "elsewhere")
    operator.ask("PUT", "permissions", "elsewhere", "guest", json={"configure": ".*", "write": ".*", "read": ".*"})
    with login(broker.port, vhost="elsewhere") as connection:
        assert refusal(connection.channel(), Queue.Declare(queue=queue, passive=True)) == (
            404,
            f"no queue '{queue}' in vhost 'elsewhere'",
        )
        other = connection.channel()
        other.queue(queue)
        other.publish("", queue, b"here")
        assert other.bodies(queue) == [b"here"]
    assert channel.ready(queue) == 0
    operator.ask("DELETE", "vhosts", "elsewhere")


def test_a_connection_has_the_name_that_its_client_gave(broker: BrokerProcess, operator: Operator) -> None:
    def names() -> list[str]:
        return [one.get("client_properties", {}).get("connection_name", "") for one in operator.see("connections")]

    with login(broker.port, client_properties={"connection_name": "orders"}):
        until(lambda: "orders" in names())
