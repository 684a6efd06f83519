"""A client without permissions gets permission errors before errors about objects, with few exceptions."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pamqp.base import Frame as Method
from tests.conformance.operator import Operator
from tests.wire import Basic, ChannelClosed, Closed, Exchange, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess

NOBODY = "nobody"
QUEUE = "{} access to queue '{}' in vhost '/' refused for user 'nobody'"
EXCHANGE = "{} access to exchange '{}' in vhost '/' refused for user 'nobody'"
SYSTEM = "deletion of system exchange 'amq.topic' in vhost '/' not allowed"
LOCKED = (
    "cannot obtain exclusive access to locked queue 'other' in vhost '/'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture(scope="module")
def nobody(broker: BrokerProcess) -> Iterator[str]:
    """Name of a user without permissions in the virtual host; another user has an exclusive queue `other`."""
    operator = Operator(broker)
    operator.ask("PUT", "users", NOBODY, json={"password": NOBODY, "tags": ""})
    operator.ask("PUT", "permissions", "/", NOBODY, json={"configure": "", "write": "", "read": ""})
    with login(broker.port) as connection:
        connection.channel().queue("other")
        yield NOBODY
    operator.ask("DELETE", "users", NOBODY)


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (Basic.Get(queue="none"), 403, QUEUE.format("read", "none")),
        (Basic.Get(queue="other"), 403, QUEUE.format("read", "other")),
        (Basic.Get(queue=""), 404, "no previously declared queue"),
        (Basic.Consume(queue="none"), 403, QUEUE.format("read", "none")),
        (Basic.Consume(queue="other"), 403, QUEUE.format("read", "other")),
        (Basic.Consume(queue="none", arguments={"x-priority": "high"}), 403, QUEUE.format("read", "none")),
        (Queue.Purge(queue="none"), 403, QUEUE.format("read", "none")),
        (Queue.Purge(queue="other"), 403, QUEUE.format("read", "other")),
        (Queue.Delete(queue="none"), 403, QUEUE.format("configure", "none")),
        (Queue.Delete(queue="other"), 403, QUEUE.format("configure", "other")),
        (Queue.Bind(queue="none", exchange="nowhere"), 403, QUEUE.format("write", "none")),
        (Queue.Bind(queue="other", exchange="amq.topic"), 403, QUEUE.format("write", "other")),
        (Queue.Unbind(queue="none", exchange="nowhere"), 403, QUEUE.format("write", "none")),
        (Queue.Declare(queue="none"), 403, QUEUE.format("configure", "none")),
        (Queue.Declare(queue="none", arguments={"x-max-length": "long"}), 403, QUEUE.format("configure", "none")),
        (Queue.Declare(queue="none", passive=True), 404, "no queue 'none' in vhost '/'"),
        (Queue.Declare(queue="other", passive=True), 405, LOCKED),
        (Queue.Declare(queue="amq.mine"), 403, "queue name 'amq.mine' contains reserved prefix 'amq.*'"),
        (Exchange.Bind(destination="none", source="nowhere"), 403, EXCHANGE.format("write", "none")),
        (Exchange.Declare(exchange="none", exchange_type="fanout"), 403, EXCHANGE.format("configure", "none")),
        (Exchange.Declare(exchange="none", exchange_type="x-bad"), 406, "unknown exchange type 'x-bad'"),
        (Exchange.Declare(exchange="none", passive=True), 404, "no exchange 'none' in vhost '/'"),
        (Exchange.Delete(exchange="none"), 403, EXCHANGE.format("configure", "none")),
        (Exchange.Delete(exchange="amq.topic"), 403, SYSTEM),
        (Exchange.Declare(exchange="", exchange_type="direct"), 403, "operation not permitted on the default exchange"),
        (Exchange.Delete(exchange=""), 403, "operation not permitted on the default exchange"),
    ],
)  # fmt: skip
def test_a_user_without_rights_is_told(
    broker: BrokerProcess, nobody: str, method: Method, code: int, text: str
) -> None:
    with login(broker.port, user=nobody, password=nobody) as connection, pytest.raises(Closed) as closed:
        connection.channel().call(method)
    assert (closed.value.code, closed.value.text.partition(" - ")[2]) == (code, text)


def test_the_default_exchange_is_refused_before_what_is_bound_to_it_is_read(
    broker: BrokerProcess, operator: Operator
) -> None:
    operator.ask("PUT", "users", "writer", json={"password": "writer", "tags": ""})
    operator.ask("PUT", "permissions", "/", "writer", json={"configure": "", "write": "amq.default", "read": ""})
    with login(broker.port, user="writer", password="writer") as connection, pytest.raises(Closed) as closed:
        connection.channel().call(Exchange.Bind(destination="", source="amq.fanout"))
    assert closed.value.text == "ACCESS_REFUSED - operation not permitted on the default exchange"
    operator.ask("DELETE", "users", "writer")


def test_a_quorum_queue_ignores_that_a_consumer_wants_to_be_alone(
    channel: WireChannel, unique: Callable[[str], str]
) -> None:
    queue = channel.queue(unique("quorum"), durable=True, exclusive=False, arguments={"x-queue-type": "quorum"})
    channel.consume(queue, "first")
    channel.consume(queue, "alone", exclusive=True)
    channel.consume(queue, "third")
    channel.call(Queue.Delete(queue=queue))


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "text"),
    [
        ("headers", "", {"x-match": "1"}, "PRECONDITION_FAILED - Invalid x-match field value"),
        ("headers", "", {"x-match": 0}, "PRECONDITION_FAILED - Invalid x-match field type"),
        ("x-consistent-hash", "no number", {}, "PRECONDITION_FAILED - The binding key must be an integer"),
        ("headers", "", {"x-match": "any"}, "RESOURCE_LOCKED - cannot obtain exclusive access"),
    ],
)
def test_what_is_wrong_with_a_binding_is_told_before_that_its_queue_is_anothers(
    broker: BrokerProcess,
    channel: WireChannel,
    unique: Callable[[str], str],
    kind: str,
    key: str,
    arguments: Any,
    text: str,
) -> None:
    queue, exchange = channel.queue(unique("queue")), channel.exchange(unique("exchange"), kind)
    channel.bind(queue, exchange, "1")
    with login(broker.port) as other, pytest.raises(ChannelClosed, match=text):
        other.channel().bind(queue, exchange, key, arguments)
