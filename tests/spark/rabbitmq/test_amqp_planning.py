"""The planner's requests over AMQP: of many queues at once, to JumpMQ and to RabbitMQ."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.brokers import confirming_channel

from jumpmq.amqp import methods as m
from jumpmq.client import AMQPConnection
from jumpmq.spark.errors import JumpMQError, NotThere
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.rabbitmq import client as planning
from jumpmq.spark.rabbitmq import kinds, link
from jumpmq.spark.rabbitmq.client import AMQPClient
from jumpmq.testing import BrokerProcess

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(params=["jumpmq", "rabbitmq"], scope="module")
def server(request: pytest.FixtureRequest) -> BrokerProcess:
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def channel(server: BrokerProcess) -> Iterator[Any]:
    with confirming_channel(server.port) as channel:
        yield channel


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[AMQPConnection]:
    """The planner's connections."""
    made: list[AMQPConnection] = []

    def connect(broker: Any) -> AMQPConnection:
        made.append(link.connect(broker))
        return made[-1]

    monkeypatch.setattr(planning, "connect", connect)
    monkeypatch.setattr(kinds, "connect", connect)
    return made


def client_of(server: BrokerProcess, user: str = "guest", password: str = "guest") -> AMQPClient:
    url = f"amqp://{user}:{password}@127.0.0.1:{server.port}/%2F"
    return AMQPClient(SourceOptions.parse({"url": url, "queue": "any"}).broker)


def filled(channel: BlockingChannel, name: str, count: int, **arguments: Any) -> None:
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True, arguments=arguments)
    for number in range(count):
        channel.basic_publish("", name, b"%d" % number, PERSISTENT)


def test_many_queues_of_all_kinds_are_asked_with_few_connections(
    server: BrokerProcess, channel: BlockingChannel, connections: list[AMQPConnection]
) -> None:
    counts = {f"planned {number}": number % 3 for number in range(150)}
    counts |= {"planned quorum": 2, "planned stream": 5, "planned empty stream": 0, "planned short stream": 1}
    kinds_of: dict[str, dict[str, Any]] = {
        "planned quorum": {"x-queue-type": "quorum"},
        "planned stream": {"x-queue-type": "stream"},
        "planned empty stream": {"x-queue-type": "stream"},
        "planned short stream": {"x-queue-type": "stream", "x-max-length-bytes": 1_000_000, "x-max-age": "7D"},
    }
    for name, count in counts.items():
        filled(channel, name, count, **kinds_of.get(name, {}))
    names = [*counts, "planned nowhere", "planned 0"]
    client = client_of(server)
    found = client.ranges(None, names, missing=True)
    assert {name: one["messages"] for name, one in found.items()} == counts
    assert [name for name, one in found.items() if one["type"] == "stream"] == [
        "planned stream",
        "planned empty stream",
        "planned short stream",
    ]
    stream = found["planned stream"]
    assert (stream["first_seq"], stream["last_seq"]) == (0, 4)
    assert len(connections) <= 4
    with pytest.raises(NotThere, match="planned nowhere"):
        client.ranges(None, names)
    del connections[:]
    assert client.ranges(None, names[:150]).keys() == set(names[:150])
    assert len(connections) == 1, "what a queue is does not change"
    for name in counts:
        channel.queue_delete(name)


def test_a_stream_is_found_at_a_time(server: BrokerProcess, channel: BlockingChannel) -> None:
    filled(channel, "timed", 3, **{"x-queue-type": "stream"})
    before = client_of(server).ranges(None, ["timed"], timestamp=1.0)["timed"]
    assert (before["seq_at"], before["last_seq"]) == (0, 2)
    after = client_of(server).ranges(None, ["timed"], timestamp=time.time() + 3600)["timed"]
    assert after["seq_at"] in (2, 3), "RabbitMQ begins with the last chunk"
    channel.queue_delete("timed")


def test_a_queue_that_is_in_exclusive_use_is_said(server: BrokerProcess, channel: BlockingChannel) -> None:
    filled(channel, "planned free", 1)
    channel.queue_declare("planned exclusive", exclusive=True)
    with pytest.raises(JumpMQError, match="planned exclusive"):
        client_of(server).ranges(None, ["planned free", "planned exclusive"], missing=True)
    channel.queue_delete("planned free")


def test_refusals_among_declarations_leave_the_others_their_answers(
    server: BrokerProcess, channel: BlockingChannel
) -> None:
    there = [f"declared {number}" for number in range(40)]
    for name in there:
        filled(channel, name, 0)
    for missing in ([0], [39], [1, 2, 3, 20], range(40)):
        names = ["declared nowhere" if place in missing else name for place, name in enumerate(there)]
        with link.connect(client_of(server)._broker) as amqp:
            answers = amqp.declare_all([m.QueueDeclare(queue=name, passive=True) for name in names])
            answers += amqp.declare_all([m.QueueDeclare(queue=there[0], passive=True)])
        got = [getattr(answer, "queue", None) for answer in answers]
        expected = [name if name != "declared nowhere" else None for name in itertools.chain(names, there[:1])]
        assert got == expected
    for name in there:
        channel.queue_delete(name)
