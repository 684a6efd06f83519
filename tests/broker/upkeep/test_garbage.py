"""Closed connections leave no garbage: full collections are rare in a serving broker."""

import gc
from collections.abc import Iterator

import pika
import pytest
from tests.waiting import until
from tests.wire import Basic, Queue, closing, login

from jumpmq import RunningBroker
from jumpmq.broker.connection.connection import Connection
from jumpmq.queues import Queue as BrokerQueue


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Meanwhile no circle of objects goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_closed_connections_go_without_a_collection_of_garbage(broker: RunningBroker, uncollected: None) -> None:
    for number in range(5):
        with closing(login(broker.port)) as connection:
            channel = connection.channel()
            queue = channel.queue(f"garbage-{number}")
            channel.publish("", queue, b"x")
            channel.consume(queue)
            channel.next()
    for _ in range(5):
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            channel.basic_consume("amq.rabbitmq.reply-to", lambda *delivery: None, auto_ack=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker):
                channel.queue_declare("nowhere", passive=True)
    ours = f":{broker.port}"  # stopped brokers of earlier tests may have left garbage
    until(lambda: not [1 for one in gc.get_objects() if isinstance(one, Connection) and one.name.endswith(ours)])


def test_deleted_queues_go_without_a_collection_of_garbage(broker: RunningBroker, uncollected: None) -> None:
    kinds = {
        "classic": {},
        "expiring": {"x-expires": 3_600_000, "x-message-ttl": 3_600_000, "x-dead-letter-exchange": ""},
        "priorities": {"x-max-priority": 3},
        "alone": {"x-single-active-consumer": True},
        "quorum": {"x-queue-type": "quorum"},
        "stream": {"x-queue-type": "stream"},
    }
    with closing(login(broker.port)) as connection:
        channel = connection.channel()
        for name, arguments in kinds.items():
            channel.queue(name, durable=True, exclusive=False, arguments=arguments)
            channel.publish("", name, b"x")
            if name != "stream":
                channel.consume(name)
        held = channel.take(len(kinds) - 1)
        for name in kinds:
            channel.publish("", name, b"y")
            channel.send(Queue.Delete(queue=name))
        channel.send(Basic.Ack(delivery_tag=held[-1].method.delivery_tag, multiple=True))
    names = set(kinds)
    until(
        lambda: (
            not [1 for one in gc.get_objects() if isinstance(one, BrokerQueue) and one.name in names and one.deleted]
        )
    )
