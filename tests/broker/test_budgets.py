"""What one connection may have, where the operator says so."""

from collections.abc import Iterator

import pytest
from tests.wire import Basic, ConnectionClosed, login

import jumpmq


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    """A broker that gives each connection little."""
    with jumpmq.running(
        channel_max=3, frame_max=8192, consumer_max_per_channel=2, publish_rate=100, heartbeat=7
    ) as running:
        yield running


def test_limits_are_proposed_and_kept(broker: jumpmq.RunningBroker) -> None:
    with login(broker.port, channel_max=3, frame_max=8192) as connection:
        tune = connection.tune
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (3, 8192, 7)
        channel = connection.channel()
        queue = channel.queue()
        channel.publish("", queue, bytes(50_000))
        message = channel.get(queue)
        assert message is not None
        assert len(message.body) == 50_000
    for more in ({"channel_max": 4, "frame_max": 8192}, {"channel_max": 3, "frame_max": 8193}):
        with pytest.raises(ConnectionClosed) as closed:
            login(broker.port, **more)
        assert closed.value.code == 530


def test_consumers_of_a_channel(broker: jumpmq.RunningBroker) -> None:
    with login(broker.port, channel_max=3, frame_max=8192) as connection:
        channel = connection.channel()
        queue = channel.queue()
        first = channel.consume(queue)
        channel.consume(queue)
        channel.call(Basic.Cancel(first))
        channel.consume(queue)
        with pytest.raises(ConnectionClosed) as closed:
            channel.consume(queue)
        assert closed.value.code == 530
        assert closed.value.text == "NOT_ALLOWED - reached maximum (2) of consumers per channel"


def test_who_publishes_faster_is_read_later(broker: jumpmq.RunningBroker) -> None:
    with (
        login(broker.port, channel_max=3, frame_max=8192) as connection,
        login(broker.port, channel_max=3, frame_max=8192) as other,
    ):
        channel, bystander = connection.channel(), other.channel()
        queue = bystander.queue(exclusive=False, auto_delete=True)
        channel.confirm_select()
        for _ in range(60):
            channel.publish("", queue, b"")
        counts = {bystander.ready(queue)}
        channel.wait_for_confirms()
        counts.add(bystander.ready(queue))
    assert min(counts) < 60
    assert max(counts) == 60
