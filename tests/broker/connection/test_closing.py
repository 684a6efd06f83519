"""Closing: in mid-login, and under load in both directions, with TLS and without."""

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from pamqp.frame import marshal
from tests.cli.commands import run
from tests.closing import CLOSE, hear_a_close_by_the_broker, is_open
from tests.wire import (
    PROTOCOL_HEADER,
    Basic,
    Connection,
    Content,
    Hangup,
    Queue,
    WireChannel,
    WireConnection,
    closing,
    dial,
    login,
)

import jumpmq
from jumpmq import RunningBroker
from jumpmq.broker.timing import BROKER_TIMING, BrokerTiming
from jumpmq.cli.certificates import Certificates, make_certificates

CLOSE_OK = marshal(Connection.CloseOk(), 0)
LOAD = 500
PIECE = 16 << 10

Login = Callable[[], WireConnection]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@contextlib.contextmanager
def serving(directory: Path, certificates: Certificates, timing: BrokerTiming) -> Iterator[RunningBroker]:
    server, key = certificates.server, certificates.server_key
    with jumpmq.running(data_dir=directory, timing=timing, tls_cert=server, tls_key=key) as running:
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[RunningBroker]:
    with serving(tmp_path_factory.mktemp("broker"), certificates, BROKER_TIMING) as running:
        yield running


@pytest.fixture(params=["plain", "tls"])
def encryption(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opening(broker: RunningBroker, certificates: Certificates, encryption: str) -> WireConnection:
    """Open a connection, with TLS or without."""
    if encryption == "plain":
        return login(broker.port)
    return login(broker.tls_port, tls=ssl.create_default_context(cafile=certificates.ca))


@pytest.fixture
def log_in(broker: RunningBroker, certificates: Certificates, encryption: str) -> Login:
    """Opens a connection, with TLS or without."""
    return lambda: opening(broker, certificates, encryption)


@pytest.fixture
def channel(broker: RunningBroker) -> Iterator[WireChannel]:
    with closing(login(broker.port)) as connection:
        yield connection.channel()


@pytest.fixture
def shared(channel: WireChannel) -> Iterator[str]:
    """Name of a queue that outlives connections."""
    name = channel.queue(exclusive=False, durable=True)
    yield name
    channel.call(Queue.Delete(queue=name))


def send_and_read(connection: WireConnection, octets: bytes) -> bytes:
    """Send in pieces, and read meanwhile, as a client under load does."""
    came = b""
    for start in range(0, len(octets), PIECE):
        connection.send(octets[start : start + PIECE])
        with contextlib.suppress(TimeoutError):
            came += connection.read_octets(0.001)
    return came


def read_until_close_ok(connection: WireConnection, came: bytes) -> None:
    while CLOSE_OK not in came:
        more = connection.read_octets()
        assert more, "the socket was closed before close-ok came"
        came += more


def test_what_was_settled_before_a_close_counts_and_nothing_after_it(
    log_in: Login, channel: WireChannel, shared: str
) -> None:
    with log_in() as connection:
        publisher, consumer = connection.channel(), connection.channel()
        publisher.confirm_select()
        for number in range(LOAD):
            publisher.publish("", shared, b"%d" % number + bytes(4000), Basic.Properties(delivery_mode=2))
        publisher.wait_for_confirms()
        consumer.send(Basic.Consume(queue=shared, nowait=True))
        for _ in range(100):
            delivery = consumer.next()
            assert isinstance(delivery, Content)
            consumer.send(Basic.Ack(delivery.method.delivery_tag))
        late = publisher.publication("", shared, b"late" + bytes(4000)) * LOAD
        acknowledgements = marshal(Basic.Ack(LOAD, True), consumer.number)
        came = send_and_read(connection, marshal(CLOSE, 0) + acknowledgements + late)
        read_until_close_ok(connection, came)
        assert is_open(connection)
    left = [int(body.rstrip(b"\0")) for body in channel.bodies(shared)]
    assert left == list(range(100, LOAD))


def test_a_close_by_the_broker_is_heard_under_load(log_in: Login, channel: WireChannel, shared: str) -> None:
    with log_in() as connection:
        hear_a_close_by_the_broker(connection, shared, LOAD)
    assert channel.bodies(shared) == [b"before"]


def test_a_close_by_an_operator_is_heard_under_load(
    log_in: Login, broker: RunningBroker, channel: WireChannel, shared: str
) -> None:
    with log_in() as connection:
        publisher, consumer = connection.channel(), connection.channel()
        publisher.confirm_select()
        for _ in range(LOAD):
            publisher.publish("", shared, bytes(4000))
        publisher.wait_for_confirms()
        consumer.send(Basic.Consume(queue=shared, nowait=True))
        (name,) = (one["name"] for one in shown(broker) if one["peer_port"] == port_of(connection))
        closed = requests.delete(f"{broker.http_url}/api/connections/{name}", auth=("guest", "guest"), timeout=60)
        assert closed.status_code == 204
        assert connection.refusal() == (320, "CONNECTION_FORCED - Closed via management plugin")
    assert len(channel.bodies(shared)) == LOAD


def test_a_closed_connection_is_shown_until_its_socket_is(log_in: Login, broker: RunningBroker) -> None:
    with log_in() as connection:
        port = port_of(connection)
        assert state_of(broker, port) == "running"
        connection.send_method(0, CLOSE)
        read_until_close_ok(connection, b"")
        assert state_of(broker, port) == "closed"
        listed = run("jumpmqctl", "--url", broker.http_url, "--quiet", "list_connections", "peer_port", "state")
        assert f"{port}\tclosed" in listed.stdout.splitlines()


@pytest.mark.parametrize("whose", ["client", "broker"])
def test_who_leaves_its_socket_open_after_a_close_has_a_time_limit(
    tmp_path: Path, certificates: Certificates, encryption: str, whose: str
) -> None:
    assert BROKER_TIMING.close == 30
    with (
        serving(tmp_path, certificates, BrokerTiming(close=0.5)) as broker,
        opening(broker, certificates, encryption) as connection,
    ):
        if whose == "client":
            connection.send_method(0, CLOSE)
            read_until_close_ok(connection, b"")
        else:
            connection.channel().send(Basic.Qos(prefetch_size=10))  # not implemented; the close gets no answer
        assert connection.closed_by_broker


def test_who_does_not_log_in_has_a_time_limit() -> None:
    assert BROKER_TIMING.handshake == 10
    with jumpmq.running(timing=BrokerTiming(handshake=0.5)) as broker, dial(broker.port) as connection:
        with contextlib.suppress(Hangup, OSError):  # on a slow machine the connection has ended before
            connection.send(PROTOCOL_HEADER)
            connection.expect(Connection.Start)
        assert connection.closed_by_broker


def shown(broker: RunningBroker) -> list[dict[str, object]]:
    found = requests.get(f"{broker.http_url}/api/connections", auth=("guest", "guest"), timeout=60).json()
    assert isinstance(found, list)
    return found


def state_of(broker: RunningBroker, port: int) -> object:
    return next((one["state"] for one in shown(broker) if one["peer_port"] == port), None)


def port_of(connection: WireConnection) -> int:
    return int(connection.address[1])


@pytest.mark.parametrize("password", ["guest", "sesame"])
def test_after_a_close_in_mid_login_the_handshake_does_not_go_on(broker: RunningBroker, password: str) -> None:
    with dial(broker.port) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(Connection.Start)
        start_ok = Connection.StartOk({}, "PLAIN", f"\0guest\0{password}", "en_US")
        connection.send(marshal(start_ok, 0) + marshal(Connection.Close(200, "never mind", 0, 0), 0))
        connection.expect(Connection.CloseOk)
        with pytest.raises((TimeoutError, Hangup)) as silence:
            connection.next_event(0, timeout=1.0)
        assert silence.type is TimeoutError  # neither connection.tune nor the end: closing the socket is the client's
