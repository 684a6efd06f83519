"""A query that knows several nodes of a cluster goes on with those that are left."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from tests.etcd import needs_etcd
from tests.waiting import until

from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource
from jumpmq.testing import JumpMQ
from jumpmq.testing.etcd import etcd


@pytest.mark.slow
@needs_etcd
def test_a_query_reads_on_from_the_node_that_is_left(tmp_path: Path) -> None:
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(tmp_path))
        options = ("--cluster", "test", "--etcd", member.url, "--queue-leader-locator", "client-local")
        nodes = [stack.enter_context(JumpMQ(tmp_path / name, f"{name}@localhost", options)) for name in ("one", "two")]
        for number, node in enumerate(nodes):
            publish(node, f"q{number}", declare=True)
        url = ",".join(f"http://guest:guest@127.0.0.1:{node.http_port}" for node in nodes)
        given = {"url": url, "exchange": "x", "brokerRetrySeconds": "20"}
        reader = JumpMQDataSource(given).streamReader(SCHEMA)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert bodies(reader, start, end) == {b"q0", b"q1"}
        nodes[0].kill()
        publish(nodes[1], "q1")
        last = until(lambda: (now := reader.latestOffset(end, reader.getDefaultReadLimit())) != end and now)
        assert bodies(reader, end, last) == {b"q1"}


def publish(node: JumpMQ, queue: str, *, declare: bool = False) -> None:
    """A message into a queue behind the exchange ``x``, with the queue's name as its body."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        channel = connection.channel()
        if declare:
            channel.exchange_declare("x", "direct", durable=True)
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "x", queue)
        channel.confirm_delivery()
        channel.basic_publish("x", queue, queue.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)


def bodies(reader, start, end) -> set[bytes]:
    """What a micro-batch has."""
    found = set()
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found.update(batch.column("body").to_pylist())
    return found
