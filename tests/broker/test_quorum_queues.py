"""Quorum queues across a restart and a crash."""

from pathlib import Path

import pytest
from tests.wire import Basic, Queue, WireChannel, login

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.testing import JumpMQ

QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 10}


def publish(channel: WireChannel, *bodies: bytes) -> None:
    channel.confirm_select()
    for body in bodies:
        channel.publish("", "q", body, Basic.Properties(delivery_mode=1))
    channel.wait_for_confirms()


@pytest.mark.parametrize("crash", [False, True])
def test_messages_and_their_delivery_counts_survive(tmp_path: Path, crash: bool) -> None:
    with JumpMQ(tmp_path) as broker:
        connection = login(broker.port)
        channel = connection.channel()
        channel.queue("q", durable=True, exclusive=False, arguments=QUORUM)
        publish(channel, b"a", b"b", b"c")
        for _ in range(2):
            message = channel.get("q", no_ack=False)
            assert message is not None
            channel.send(Basic.Nack(delivery_tag=message.method.delivery_tag, requeue=True))
        channel.ready("q")
        acknowledged = channel.connection.channel()
        acknowledged.confirm_select()
        publish(acknowledged, b"d")  # its confirm comes once the returned messages are on disk
        if crash:
            broker.kill()
        else:
            broker.stop()
        broker.start()
        channel = login(broker.port).channel()
        found = [channel.get("q") for _ in range(4)]
        assert [(one.body, (one.properties.headers or {})["x-delivery-count"]) for one in found if one] == [
            (b"a", 2), (b"b", 0), (b"c", 0), (b"d", 0),
        ]  # fmt: skip


def test_what_may_have_been_delivered_stays_marked_without_a_count_that_its_publisher_sent() -> None:
    queue = QuorumQueue("/", "q", id=1)
    headers = [Field("x-delivery-count", "I", 3)]
    sent = Message("", b"q", Properties(headers=headers).encode(), b"a")
    sent.redelivered = True
    queue.push([sent])
    assert [(one.redelivered, one.attempts) for one in queue.take(1)] == [(True, 1)]


@pytest.mark.slow
def test_a_count_goes_with_its_message(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        channel.queue("q", durable=True, exclusive=False, arguments={"x-queue-type": "quorum"})
        publish(channel, b"a", b"b")
        message = channel.get("q", no_ack=False)
        assert message is not None
        channel.send(Basic.Nack(delivery_tag=message.method.delivery_tag, requeue=True))
        channel.ready("q")
        broker.stop()
        broker.start()
        channel = login(broker.port).channel()
        found = [channel.get("q") for _ in range(2)]
        assert [(one.body, (one.properties.headers or {})["x-delivery-count"]) for one in found if one] == [
            (b"b", 0), (b"a", 1),
        ]  # fmt: skip
        assert channel.call(Queue.Delete(queue="q")).message_count == 0
