"""Well-formed but forbidden methods end the connection: reply code and text."""

from collections.abc import Callable

import pytest
from pamqp.base import Frame as Method
from tests.wire import Basic, Channel, ChannelClosed, Connection, ConnectionClosed, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess

pytestmark = [
    pytest.mark.usefixtures("bystander"),
    pytest.mark.filterwarnings("ignore:This command is deprecated"),  # basic.recover-async, sent by old clients
]

Offence = tuple[Callable[[WireChannel], object], int, str]


def _use_after_closing(channel: WireChannel) -> None:
    channel.close()
    channel.send(Queue.Declare(queue="orders"))


OFFENCES: dict[str, Offence] = {
    "a consumer tag used twice": (
        lambda channel: [channel.consume(channel.queue(), "t"), channel.consume(channel.queue(), "t")],
        530, "NOT_ALLOWED - attempt to reuse consumer tag 't'",
    ),
    "a channel opened twice": (
        lambda channel: channel.send(Channel.Open()),
        504, "CHANNEL_ERROR - second 'channel.open' seen",
    ),
    "a method on a channel that was never opened": (
        lambda channel: channel.connection.send_method(9, Queue.Declare(queue="orders")),
        504, "CHANNEL_ERROR - expected 'channel.open'",
    ),
    "a method on a channel that was closed": (
        _use_after_closing,
        504, "CHANNEL_ERROR - expected 'channel.open'",
    ),
    "a queue's method on channel 0": (
        lambda channel: channel.connection.send_method(0, Queue.Declare(queue="orders")),
        504, "CHANNEL_ERROR - unexpected method in connection state running",
    ),
    "a method that only servers send": (
        lambda channel: channel.send(Queue.DeclareOk(queue="orders", message_count=0, consumer_count=0)),
        503, "COMMAND_INVALID - unimplemented method",
    ),
    "flow stopped by a client": (
        lambda channel: channel.send(Channel.Flow(active=False)),
        540, "NOT_IMPLEMENTED - active=false",
    ),
    "immediate publishing": (
        lambda channel: channel.connection.send(
            channel.publication("", "orders").replace(b"\x06orders\0", b"\x06orders\x02", 1)
        ),
        540, "NOT_IMPLEMENTED - immediate=true",
    ),
    "recover without requeue": (
        lambda channel: channel.send(Basic.Recover(requeue=False)),
        540, "NOT_IMPLEMENTED - requeue=false",
    ),
    "recover-async without requeue": (
        lambda channel: channel.send(Basic.RecoverAsync(requeue=False)),
        540, "NOT_IMPLEMENTED - requeue=false",
    ),
    "prefetch in octets": (
        lambda channel: channel.send(Basic.Qos(prefetch_size=10)),
        540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("offence", OFFENCES.values(), ids=OFFENCES.keys())
def test_closes_the_connection(broker: BrokerProcess, offence: Offence) -> None:
    provoke, code, text = offence
    with login(broker.port) as connection:
        channel = connection.channel()
        with pytest.raises(ConnectionClosed) as closed:
            provoke(channel)
            channel.next()
        assert (closed.value.code, closed.value.text) == (code, text)
        assert connection.closed_by_broker


def test_as_many_channels_as_agreed(broker: BrokerProcess) -> None:
    with login(broker.port, channel_max=3) as connection:
        channels = [connection.channel() for _ in range(3)]
        assert all(channel.queue() for channel in channels)
        with pytest.raises(ConnectionClosed) as closed:
            connection.channel()
    text = "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)"
    assert (closed.value.code, closed.value.text) == (530, text)


def test_the_close_names_the_method(broker: BrokerProcess) -> None:
    with login(broker.port) as connection, pytest.raises(ConnectionClosed) as closed:
        connection.channel().call(Basic.Qos(prefetch_size=10))
    assert closed.value.method == (60, 10)


@pytest.mark.parametrize(
    ("number", "method", "code"),
    [
        (0, Connection.Blocked("reason"), 504), (0, Connection.Unblocked(), 504),
        (1, Channel.FlowOk(True), 503), (1, Channel.CloseOk(), 503),
    ],
)  # fmt: skip
def test_methods_for_which_it_is_not_the_time(broker: BrokerProcess, number: int, method: Method, code: int) -> None:
    with login(broker.port) as connection:
        connection.channel(1)
        connection.send_method(number, method)
        with pytest.raises(ConnectionClosed) as closed:
            connection.next_event(1)
    assert closed.value.code == code


def test_a_channel_that_the_broker_closes_ignores_what_comes_before_close_ok(broker: BrokerProcess) -> None:
    with login(broker.port) as connection:
        channel = connection.channel(1)
        channel.send(Queue.Declare(queue="ghost", passive=True))
        connection.read_frame()  # channel.close
        channel.send(Queue.Declare(queue="ignored", exclusive=True))
        channel.publish("", "ignored", b"so is this")
        channel.send(Channel.CloseOk())
        with pytest.raises(ChannelClosed) as closed:
            connection.channel(1).ready("ignored")
    assert closed.value.code == 404
