"""Transactions: publishes and acknowledgements take effect at the commit, or not at all."""

from collections.abc import Callable

import pytest
from tests.wire import Basic, ChannelClosed, Confirm, Tx, WireChannel, WireConnection

Name = Callable[[str], str]


@pytest.fixture
def queue(channel: WireChannel, unique: Name) -> str:
    """A queue with messages 1 to 4."""
    name = channel.queue(unique("queue"))
    for number in range(1, 5):
        channel.publish("", name, b"%d" % number)
    return name


@pytest.fixture
def other(connection: WireConnection) -> WireChannel:
    """A second channel, which sees committed changes only."""
    return connection.channel()


def take(channel: WireChannel, queue: str, count: int) -> None:
    """Take deliveries, to be acknowledged by the tags 1, 2 ..."""
    for _ in range(count):
        assert channel.get(queue, no_ack=False) is not None


def test_acknowledgements_wait_for_the_commit(channel: WireChannel, other: WireChannel, queue: str) -> None:
    channel.call(Tx.Select())
    take(channel, queue, 3)
    channel.send(Basic.Ack(delivery_tag=1))
    channel.send(Basic.Nack(delivery_tag=2, requeue=True))
    channel.send(Basic.Reject(delivery_tag=3, requeue=False))
    channel.call(Basic.Qos())
    assert other.ready(queue) == 1
    channel.call(Tx.Commit())
    assert other.bodies(queue) == [b"2", b"4"]
    channel.close()
    assert other.ready(queue) == 0


def test_a_rollback_forgets_publishes_and_acknowledgements(
    channel: WireChannel, other: WireChannel, queue: str
) -> None:
    channel.call(Tx.Select())
    take(channel, queue, 2)
    channel.publish("", queue, b"never")
    channel.send(Basic.Ack(delivery_tag=2, multiple=True))
    channel.call(Tx.Rollback())
    assert other.ready(queue) == 2
    channel.send(Basic.Ack(delivery_tag=1))
    channel.call(Tx.Commit())
    channel.close()
    assert other.bodies(queue) == [b"2", b"3", b"4"]


def test_closing_the_channel_is_a_rollback(channel: WireChannel, other: WireChannel, queue: str) -> None:
    channel.call(Tx.Select())
    take(channel, queue, 2)
    channel.publish("", queue, b"never")
    channel.send(Basic.Ack(delivery_tag=0, multiple=True))
    channel.close()
    assert other.bodies(queue) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("multiple", [False, True])
def test_acknowledging_twice_is_an_error_at_once(
    channel: WireChannel, other: WireChannel, queue: str, multiple: bool
) -> None:
    channel.call(Tx.Select())
    take(channel, queue, 2)
    channel.send(Basic.Ack(delivery_tag=2, multiple=multiple))
    channel.send(Basic.Ack(delivery_tag=2, multiple=multiple))
    with pytest.raises(ChannelClosed, match="406 PRECONDITION_FAILED - unknown delivery tag 2"):
        channel.next()
    assert other.bodies(queue) == [b"1", b"2", b"3", b"4"]


def test_a_publish_that_cannot_be_routed_is_returned_at_the_commit(channel: WireChannel) -> None:
    channel.call(Tx.Select())
    channel.publish("", "nowhere", b"lost", mandatory=True)
    assert channel.is_silent()
    channel.call(Tx.Commit())
    assert channel.next().body == b"lost"


def test_a_transaction_is_followed_by_the_next(channel: WireChannel, queue: str) -> None:
    channel.bodies(queue)
    channel.call(Tx.Select())
    for number in range(3):
        channel.publish("", queue, b"%d" % number)
        channel.call(Tx.Commit() if number != 1 else Tx.Rollback())
    assert channel.bodies(queue) == [b"0", b"2"]


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ([Tx.Commit()], "channel is not transactional"),
        ([Tx.Rollback()], "channel is not transactional"),
        ([Confirm.Select(), Tx.Select()], "cannot switch from confirm to tx mode"),
        ([Tx.Select(), Confirm.Select()], "cannot switch from tx to confirm mode"),
    ],
    ids=["commit", "rollback", "confirm, then tx", "tx, then confirm"],
)
def test_what_does_not_go_together(channel: WireChannel, methods: list[Basic.Ack], text: str) -> None:
    with pytest.raises(ChannelClosed) as closed:
        for method in methods:
            channel.call(method)
    assert (closed.value.code, closed.value.text) == (406, f"PRECONDITION_FAILED - {text}")
