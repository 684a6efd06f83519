"""Closing under load: earlier settlements count, later ones do not, and no frame is cut."""

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.closing import CLOSE, hear_a_close_by_the_broker, is_open
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, Content, Queue, WireChannel, WireConnection, login

from jumpmq.testing import BrokerProcess

pytestmark = pytest.mark.usefixtures("bystander")

LOAD = 2000


@pytest.fixture
def shared(channel: WireChannel, unique: Callable[[str], str]) -> Iterator[str]:
    """Name of a queue that outlives the test's connections."""
    name = channel.queue(unique("shared"), exclusive=False, durable=True)
    yield name
    channel.call(Queue.Delete(queue=name))


def close_ok(connection: WireConnection) -> int:
    """Read up to ``connection.close-ok``. Return the number of earlier messages."""
    deliveries = 0
    while True:
        kind, channel, payload = connection.read_frame()
        if (kind, channel) == (1, 0) and payload[:4] == b"\x00\x0a\x00\x33":
            return deliveries
        deliveries += payload[:4] == b"\x00\x3c\x00\x3c"


def test_what_follows_the_close_is_read_and_dropped(broker: BrokerProcess, channel: WireChannel, shared: str) -> None:
    with login(broker.port) as connection:
        publisher = connection.channel()
        publisher.confirm_select()
        publisher.publish("", shared, b"before")
        publisher.wait_for_confirms()
        late = publisher.publication("", shared, bytes(4000)) * LOAD
        connection.send_method(0, CLOSE)
        connection.send(late)
        assert close_ok(connection) == 0
        connection.send(late)
        assert is_open(connection)
    assert channel.bodies(shared) == [b"before"]


def test_a_close_under_load_in_both_directions(broker: BrokerProcess, channel: WireChannel, shared: str) -> None:
    with login(broker.port) as connection:
        publisher, consumer = connection.channel(), connection.channel()
        for number in range(LOAD):
            publisher.publish("", shared, b"%d" % number + bytes(1000))
        consumer.send(Basic.Consume(queue=shared, nowait=True))
        for _ in range(100):
            delivery = consumer.next()
            assert isinstance(delivery, Content)
            consumer.send(Basic.Ack(delivery.method.delivery_tag))
        late = publisher.publication("", shared, b"late" + bytes(1000)) * LOAD
        connection.send_method(0, CLOSE)
        sender = threading.Thread(target=connection.send, args=(late,))
        sender.start()
        close_ok(connection)
        sender.join()
        assert is_open(connection)
    left = [int(body.rstrip(b"\0")) for body in channel.bodies(shared)]
    assert left == list(range(100, LOAD))


def test_a_close_by_the_broker_under_load(broker: BrokerProcess, channel: WireChannel, shared: str) -> None:
    with login(broker.port) as connection:
        hear_a_close_by_the_broker(connection, shared, LOAD)
    assert channel.bodies(shared) == [b"before"]


def test_a_connection_that_is_closed_is_shown_until_the_client_closes_its_socket(
    broker: BrokerProcess, operator: Operator
) -> None:
    def state() -> str | None:
        return next((one.get("state") for one in operator.see("connections") if one.get("peer_port") == port), None)

    with login(broker.port) as connection:
        port = connection.address[1]
        until(lambda: state() == "running")
        connection.send_method(0, CLOSE)
        close_ok(connection)
        assert state() is not None
        assert is_open(connection)
    until(lambda: state() is None)
