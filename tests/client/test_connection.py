"""The AMQP client moves messages between real brokers, and reports refusals."""

import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

import jumpmq
from jumpmq.amqp import methods as m
from jumpmq.amqp.client import ClientDelivery, publish_frames
from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost, RequestRefused
from jumpmq.testing import BrokerProcess

PERSISTENT = b"\x10\x00\x02"
PLAIN = b"\x00\x00"


@pytest.fixture
def amqp(broker: BrokerProcess) -> Iterator[AMQPConnection]:
    with AMQPConnection(AMQPAddress("127.0.0.1", broker.port)) as connection:
        yield connection


@pytest.fixture
def queue(amqp: AMQPConnection, unique: Callable[[str], str]) -> str:
    name = unique("moved")
    amqp.call(m.QueueDeclare(queue=name, durable=True), m.QueueDeclareOk)
    return name


def publish(amqp: AMQPConnection, queue: str, *bodies: bytes) -> None:
    amqp.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    key = queue.encode()
    amqp.publish(publish_frames("", key, PERSISTENT, body, 1, amqp.frame_max, mandatory=True) for body in bodies)
    amqp.wait_for_confirms()


def test_what_is_published_is_delivered_in_order(amqp: AMQPConnection, queue: str) -> None:
    bodies = [b"", b"x" * 300_000, *(b"%d" % number for number in range(5_000))]
    publish(amqp, queue, *bodies)
    assert (amqp.unconfirmed, amqp.refused, amqp.returned) == (0, [], [])
    consumer = amqp.consume(queue, 1_000)
    found: list[ClientDelivery] = []
    while len(found) < len(bodies) and amqp.wait(60):
        found += amqp.deliveries
        amqp.deliveries.clear()
        amqp.ack(found[-1].tag)
    amqp.cancel(consumer)
    assert [one.body for one in found] == bodies
    first = found[0]
    assert (first.consumer, first.redelivered, first.exchange, first.routing_key, first.properties) == (
        *(consumer, False, ""),
        *(queue.encode(), PERSISTENT),
    )
    assert amqp.declared(queue).message_count == 0


def test_what_is_given_back_comes_again(amqp: AMQPConnection, queue: str) -> None:
    publish(amqp, queue, b"once")
    first = amqp.get(queue)
    assert first is not None
    assert (first.body, first.redelivered, first.consumer) == (b"once", False, "")
    amqp.requeue(first.tag)
    again = amqp.get(queue)
    assert again is not None
    assert (again.body, again.redelivered) == (b"once", True)
    amqp.ack(again.tag)
    assert amqp.get(queue) is None


def test_a_mandatory_message_that_reaches_no_queue_comes_back(amqp: AMQPConnection) -> None:
    amqp.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    amqp.publish([publish_frames("", b"nowhere", PLAIN, b"body", 1, amqp.frame_max, mandatory=True)])
    amqp.wait_for_confirms()
    (returned,) = amqp.returned
    assert (returned.code, returned.routing_key) == (312, b"nowhere")


def test_a_queue_that_is_not_there(amqp: AMQPConnection) -> None:
    with pytest.raises(RequestRefused, match="no queue 'nowhere' in vhost '/'") as refused:
        amqp.declared("nowhere")
    assert refused.value.code == 404


def test_a_queue_that_is_deleted_while_it_is_consumed(amqp: AMQPConnection, broker: BrokerProcess, queue: str) -> None:
    amqp.consume(queue, 10)
    with AMQPConnection(AMQPAddress("127.0.0.1", broker.port)) as other:
        other.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    with pytest.raises(RequestRefused, match=f"cancelled the consumer of '{queue}'"):
        amqp.wait(60)


def test_a_wrong_password(broker: BrokerProcess) -> None:
    with pytest.raises(RequestRefused, match="ACCESS_REFUSED"):
        AMQPConnection(AMQPAddress("127.0.0.1", broker.port, password="wrong"))


def test_a_virtual_host_that_is_not_there(broker: BrokerProcess) -> None:
    with pytest.raises(RequestRefused, match="vhost nowhere not found"):
        AMQPConnection(AMQPAddress("127.0.0.1", broker.port, "nowhere"))


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionLost, match=f"cannot connect to amqp://127.0.0.1:{port}: Connection refused"):
        AMQPConnection(AMQPAddress("127.0.0.1", port))


@pytest.mark.slow
def test_what_listens_is_no_broker() -> None:
    with jumpmq.running() as broker, pytest.raises(ConnectionLost):
        AMQPConnection(AMQPAddress("127.0.0.1", broker.http_port), timeout=5)


def test_over_tls() -> None:
    with jumpmq.running(tls=True) as broker:
        context = ssl.create_default_context(cafile=broker.tls_ca)
        with AMQPConnection(AMQPAddress.parse(broker.amqps_url), context) as amqp:
            amqp.call(m.QueueDeclare(queue="q"), m.QueueDeclareOk)
            publish(amqp, "q", b"x" * 3_000_000, b"second")
            amqp.consume("q", 10)
            found: list[int] = []
            while len(found) < 2 and amqp.wait(60):
                found.append(len(amqp.deliveries.popleft().body))
            assert found == [3_000_000, 6]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://h", AMQPAddress("h", 5672)),
        ("amqps://u:p%40@[::1]:1/a%2Fb", AMQPAddress("::1", 1, "a/b", "u", "p@", tls=True)),
        ("amqp://h/", AMQPAddress("h", 5672)),
    ],
)
def test_urls(url: str, address: AMQPAddress) -> None:
    assert AMQPAddress.parse(url) == address
    assert address.password not in repr(address) or address.password == "guest"


@pytest.mark.parametrize("url", ["http://h", "amqp://", "amqp://h:x", "amqp://h:99999", "amqp://h/a/b"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError):
        AMQPAddress.parse(url)
