"""A query waits while a stream moves to a new worker or node, and continues with all messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pytest
import requests
from tests.etcd import needs_etcd
from tests.several_nodes import SeveralNodes
from tests.spark.streams.published import STREAM, Query, bodies, fill, rows

import jumpmq
from jumpmq import RunningBroker
from jumpmq.spark import JumpMQError


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(data_dir=tmp_path / "broker", workers=2) as running:
        yield running


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes, with the address of the first."""
    with SeveralNodes(2) as node:
        http_url, amqp_url = f"http://127.0.0.1:{node.http_port}", f"amqp://127.0.0.1:{node.port}"
        yield SimpleNamespace(http_url=http_url.replace("//", "//guest:guest@"), amqp_url=amqp_url)


@contextmanager
def connected(broker: jumpmq.RunningBroker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_url}?heartbeat=0")) as connection:
        yield connection.channel()


def move(broker: jumpmq.RunningBroker) -> None:
    """Begin to move the stream to the other worker."""
    answer = requests.post(f"{broker.http_url}/api/queues/%2F/s/actions", json={"action": "move"}, timeout=30)
    assert answer.ok, answer.text


def is_there(broker: jumpmq.RunningBroker) -> bool:
    found = requests.get(f"{broker.http_url}/api/queues/%2F/s", timeout=30).json()
    return not found.keys() & {"moving_from", "moving_to"}


def until_there(broker: jumpmq.RunningBroker) -> None:
    while not is_there(broker):
        time.sleep(0.05)


@needs_etcd
def test_from_node_to_node_a_query_goes_on_where_it_was(cluster: Any) -> None:
    test_a_query_goes_on_where_it_was(cluster)


def test_a_query_goes_on_where_it_was(broker: RunningBroker) -> None:
    with connected(broker) as channel:
        channel.queue_declare("s", durable=True, arguments=STREAM)
        published = fill(channel, "s", 40)
        query = Query(broker, queue="s", startingOffsets="earliest")
        assert bodies(query.batch(20)) == published[:20]
        for _ in range(3):
            move(broker)
            until_there(broker)
            assert bodies(query.repeated()) == published[:20]
            restarted = Query(broker, query.end, queue="s", startingOffsets="earliest")
            assert bodies(restarted.batch()) == published[20:]
        channel.queue_delete("s")
        channel.queue_declare("s", durable=True, arguments=STREAM)
        fill(channel, "s", 40)
        with pytest.raises(JumpMQError, match="stream 's' was deleted and declared again"):
            query.batch()


@pytest.mark.slow
def test_over_amqp_a_query_goes_on_where_the_queue_is(broker: RunningBroker) -> None:
    with connected(broker) as channel:
        channel.queue_declare("s", durable=True)
        published = fill(channel, "s", 20)
        query = Query(broker, url=broker.amqp_url, queue="s")
        assert bodies(query.batch()) == published
        move(broker)
        until_there(broker)
        published += fill(channel, "s", 20, start=20)
        found = bodies(query.batch())
        assert {*found} == {*published} and len(found) == len(published), "each comes again, as none was acknowledged"
        assert query.batch() == []
        channel.queue_delete("s")
        with pytest.raises(JumpMQError, match="no queue 's' in vhost '/'"):
            query.batch()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stream", "classic"])
def test_a_queue_that_is_on_its_way_is_waited_for(broker: RunningBroker, kind: str) -> None:
    with connected(broker) as channel, connected(broker) as other:
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": kind})
        published = fill(channel, "s", 40)
        other.basic_qos(prefetch_count=5)  # unacknowledged messages delay the move for some seconds
        arguments = {"x-consumer-group": "g", "x-stream-offset": "first"} if kind == "stream" else {}
        other.basic_consume("s", lambda *_: None, arguments=arguments)
        other.connection.process_data_events(1)
        move(broker)
        assert not is_there(broker)
        assert bodies(rows(broker, queue="s")) == published
