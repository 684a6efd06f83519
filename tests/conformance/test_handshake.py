"""From the first octets to an open connection, and a broker's refusals."""

from typing import Any

import pytest
from pamqp.frame import marshal
from tests.wire import PROTOCOL_HEADER, Connection, ConnectionClosed, Hangup, WireConnection, dial, login

from jumpmq.testing import BrokerProcess

pytestmark = pytest.mark.usefixtures("bystander")

PROPERTIES = {"capabilities", "cluster_name", "copyright", "information", "platform", "product", "version"}
CAPABILITIES = {
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
    "consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
}  # fmt: skip


@pytest.mark.parametrize("header", [b"AMQP\x01\x01\x00\x0a", b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\x02"], ids=repr)
def test_a_wrong_protocol_header_is_answered_with_the_right_one(broker: BrokerProcess, header: bytes) -> None:
    with dial(broker.port) as connection:
        connection.send(header)
        assert connection.read_octets() == PROTOCOL_HEADER
        assert connection.closed_by_broker


def test_start_announces_what_clients_look_for(connection: WireConnection) -> None:
    start = connection.start
    assert (start.version_major, start.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())
    assert start.locales == "en_US"
    assert {"product", "version", "platform", "copyright", "information", "cluster_name"} <= set(
        start.server_properties
    )
    assert start.server_properties["capabilities"] == dict.fromkeys(CAPABILITIES, True)


def test_tune_proposes_the_limits(connection: WireConnection) -> None:
    tune = connection.tune
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_login(broker: BrokerProcess, mechanism: str) -> None:
    with login(broker.port, mechanism=mechanism) as connection:
        assert connection.channel().queue().startswith("amq.gen-")


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
@pytest.mark.parametrize("wrong", [{"password": "sesame"}, {"user": "nobody"}], ids=["password", "user"])
def test_a_wrong_login_is_told_to_clients_that_can_hear_it(
    broker: BrokerProcess, wrong: dict[str, Any], mechanism: str
) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        login(broker.port, mechanism=mechanism, **wrong)
    assert closed.value.code == 403
    assert closed.value.text == (
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. "
        "For details see the broker logfile."
    )
    assert closed.value.method == (0, 0)


def test_a_wrong_login_closes_the_socket_of_other_clients(broker: BrokerProcess) -> None:
    with pytest.raises(Hangup):
        login(broker.port, password="sesame", capabilities=())


def test_an_unknown_virtual_host(broker: BrokerProcess) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        login(broker.port, vhost="ghost")
    assert (closed.value.code, closed.value.text) == (530, "NOT_ALLOWED - vhost ghost not found")
    assert closed.value.method == (10, 40)


def test_the_smallest_limits_that_the_protocol_knows(broker: BrokerProcess) -> None:
    with login(broker.port, channel_max=1, frame_max=4096) as connection:
        channel = connection.channel()
        queue = channel.queue()
        channel.publish("", queue, bytes(10_000))
        message = channel.get(queue)
        assert message is not None
        assert message.body == bytes(10_000)


@pytest.mark.parametrize(
    "limits", [{"channel_max": 0}, {"channel_max": 2048}, {"frame_max": 0}, {"frame_max": 4095}, {"frame_max": 131073}],
    ids=str,
)  # fmt: skip
def test_limits_out_of_range_are_refused(broker: BrokerProcess, limits: dict[str, Any]) -> None:
    """A tune-ok with limits out of range is refused; RabbitMQ closes silently, after three seconds."""
    with pytest.raises((Hangup, ConnectionClosed)) as refused:
        login(broker.port, **limits)
    if isinstance(refused.value, ConnectionClosed):
        assert refused.value.code == 530


def test_an_unknown_mechanism_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises((Hangup, ConnectionClosed)):
        login(broker.port, mechanism="GSSAPI")


def test_a_close_is_answered(broker: BrokerProcess) -> None:
    connection = login(broker.port)
    connection.close()


def test_a_frame_larger_than_the_smallest_limit_is_refused_before_one_is_agreed(broker: BrokerProcess) -> None:
    """A frame above the minimum of frame-max is refused before tune; RabbitMQ closes silently, after three seconds."""
    with dial(broker.port) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(Connection.Start)
        properties: dict[str, Any] = {
            "capabilities": {"authentication_failure_close": True},
            "connection_name": "x" * 5000,
        }
        connection.send_method(0, Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US"))
        with pytest.raises((Hangup, ConnectionClosed)) as refused:
            connection.expect(Connection.Tune)
        if isinstance(refused.value, ConnectionClosed):
            assert refused.value.code == 501


def test_a_frame_as_large_as_the_smallest_limit_is_taken_before_one_is_agreed(broker: BrokerProcess) -> None:
    with dial(broker.port) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(Connection.Start)
        start_ok = Connection.StartOk({"connection_name": ""}, "PLAIN", "\0guest\0guest", "en_US")
        start_ok.client_properties["connection_name"] = "x" * (4096 - len(marshal(start_ok, 0)))
        connection.send_method(0, start_ok)
        connection.expect(Connection.Tune)
