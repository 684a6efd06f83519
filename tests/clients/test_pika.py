"""pika, the Python client, as used by applications."""

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.conformance.operator import Operator
from tests.waiting import until

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]


@pytest.fixture
def parameters(broker: BrokerProcess) -> pika.URLParameters:
    return pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F")


@pytest.fixture
def connection(parameters: pika.URLParameters) -> Iterator[pika.BlockingConnection]:
    with pika.BlockingConnection(parameters) as opened:
        yield opened


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> "BlockingChannel":
    return connection.channel()


def test_publish_with_confirms_and_read_back(channel: "BlockingChannel", unique: Name) -> None:
    exchange = unique("pika")
    channel.exchange_declare(exchange, "x-consistent-hash", auto_delete=True)
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(2)]
    for queue in queues:
        channel.queue_bind(queue, exchange, "1")
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent, headers={"source": "pika"})
    for number in range(100):
        channel.basic_publish(exchange, str(number), f"order {number}", persistent, mandatory=True)
    channel.basic_qos(prefetch_count=10)
    bodies = set()
    for queue in queues:
        count = channel.queue_declare(queue, passive=True).method.message_count
        for method, properties, body in islice(channel.consume(queue), count):
            assert properties.headers == {"source": "pika"}
            channel.basic_ack(method.delivery_tag)
            bodies.add(body.decode())
        channel.cancel()
    assert bodies == {f"order {number}" for number in range(100)}


def test_an_unroutable_message_raises(channel: "BlockingChannel") -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as error:
        channel.basic_publish("amq.direct", "nowhere", b"lost", mandatory=True)
    [returned] = error.value.messages
    assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (312, "NO_ROUTE", b"lost")


def test_a_rejected_message_comes_again(channel: "BlockingChannel") -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"again")
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=True)
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered) == (b"again", True)


@pytest.mark.parametrize("name", ["ключ", "a/b c?d&e=%2F", "🜁"])
def test_queue_names_may_be_any_text(channel: "BlockingChannel", name: str) -> None:
    assert channel.queue_declare(name, exclusive=True).method.queue == name
    channel.basic_publish("", name, b"found")
    assert channel.basic_get(name, auto_ack=True)[2] == b"found"


def test_a_channel_error_leaves_the_connection_open(
    connection: pika.BlockingConnection, channel: "BlockingChannel"
) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("ghost", passive=True)
    assert (closed.value.reply_code, closed.value.reply_text) == (404, "NOT_FOUND - no queue 'ghost' in vhost '/'")
    assert connection.channel().queue_declare("", exclusive=True)


def test_a_wrong_password(parameters: pika.URLParameters) -> None:
    parameters.credentials = pika.PlainCredentials("guest", "sesame")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_an_unknown_virtual_host(parameters: pika.URLParameters) -> None:
    parameters.virtual_host = "ghost"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="NOT_ALLOWED - vhost ghost not found"):
        pika.BlockingConnection(parameters)


def test_a_consumer_is_told_that_its_queue_is_gone(
    connection: pika.BlockingConnection, channel: "BlockingChannel"
) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    told = []
    channel.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    connection.channel().queue_delete(queue)
    until(lambda: connection.process_data_events(time_limit=0.1) or told)
    assert told == [tag]


def test_heartbeats_keep_an_idle_connection_open(parameters: pika.URLParameters) -> None:
    parameters.heartbeat = 2
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        connection.process_data_events(time_limit=4.5)
        assert channel.queue_declare("", exclusive=True)


def test_a_secret_can_be_renewed(connection: pika.BlockingConnection) -> None:
    connection.update_secret("guest", "the old one expired")
    assert connection.channel().is_open


@pytest.fixture
def sharded(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    channel: "BlockingChannel",
    unique: Name,
) -> Iterator[tuple[str, Operator]]:
    """An exchange of two shards, and the operator of its policy."""
    if request.config.getoption("--nodes") > 1:
        pytest.skip("it has two shards on each node, and a consumer those of its own")
    operator, exchange = Operator(broker), unique("sharded")
    channel.exchange_declare(exchange, "x-modulus-hash", durable=True)

    def is_sharded() -> bool:
        for count in (1, 2):  # RabbitMQ 4.0.5 ignores policies in the first seconds after its start
            operator.set_policy(exchange, f"^{exchange}$", {"shards-per-node": count}, apply_to="exchanges")
        return len(operator.bound(exchange)) == 2

    until(is_sharded)
    yield exchange, operator
    operator.leave()
    for number in operator.shards(exchange):
        channel.queue_delete(operator.shard(exchange, number))
    channel.exchange_delete(exchange)


def test_a_pseudo_queue_is_consumed_without_being_declared(
    channel: "BlockingChannel", sharded: tuple[str, Operator]
) -> None:
    exchange, _ = sharded
    for number in range(20):
        channel.basic_publish(exchange, str(number), str(number))
    bodies = set()

    def note(_channel: object, _method: object, _properties: object, body: bytes) -> None:
        bodies.add(body)

    for _ in range(2):
        channel.basic_consume(exchange, note, auto_ack=True)
    until(lambda: channel.connection.process_data_events(time_limit=0.1) or len(bodies) == 20)


def test_a_declaration_of_a_pseudo_queue_is_answered_with_its_name_here_only(
    broker: BrokerProcess,
    parameters: pika.URLParameters,
    sharded: tuple[str, Operator],
    channel: "BlockingChannel",
) -> None:
    """RabbitMQ answers with the name of shard 0, which pika ignores.

    pika then waits until the operator closes the connection.
    """
    exchange, operator = sharded
    if broker.name == "JumpMQ":
        assert channel.queue_declare(exchange, passive=True).method.queue == exchange
        return
    parameters.client_properties = {"connection_name": exchange}
    may_ask, ended = threading.Event(), []

    def declare() -> None:
        try:
            with pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                may_ask.wait()
                ended.append(channel.queue_declare(exchange, passive=True))
        except pika.exceptions.AMQPError as error:
            ended.append(error)

    def found() -> dict[str, Any]:
        named = [one for one in operator.see("connections") if _is_named(one, exchange)]
        return named[0] if named and named[0].get("channels") and "send_oct" in named[0] else {}

    declaring = threading.Thread(target=declare, daemon=True)
    declaring.start()
    sent = until(found)["send_oct"]
    may_ask.set()
    until(lambda: found()["send_oct"] > sent)
    operator.ask("DELETE", "connections", found()["name"])
    declaring.join()
    assert isinstance(ended[0], pika.exceptions.ConnectionClosedByBroker)


def _is_named(connection: dict[str, Any], name: str) -> bool:
    properties: dict[str, object] = connection.get("client_properties", {})
    return properties.get("connection_name") == name
