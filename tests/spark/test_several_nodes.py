"""A query with several nodes of a cluster continues with the remaining nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from tests.etcd import needs_etcd
from tests.spark.streams.published import Query
from tests.waiting import until

from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource
from jumpmq.testing import JumpMQ
from jumpmq.testing.etcd import etcd


@contextmanager
def two_nodes(directory: Path) -> Iterator[list[JumpMQ]]:
    """Two nodes of a cluster; queues are at the node of their client."""
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(directory))
        options = ("--cluster", "test", "--etcd", member.url, "--queue-leader-locator", "client-local")
        yield [stack.enter_context(JumpMQ(directory / name, f"{name}@localhost", options)) for name in ("one", "two")]


@pytest.mark.slow
@needs_etcd
def test_a_query_reads_on_from_the_node_that_is_left(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
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
        last = until(lambda: now if (now := reader.latestOffset(end, reader.getDefaultReadLimit())) != end else None)
        assert bodies(reader, end, last) == {b"q1"}


@pytest.mark.slow
@needs_etcd
def test_every_message_is_read_once_though_a_node_is_killed_and_comes_back(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
        for number, node in enumerate(nodes):
            publish(node, f"q{number}", declare=True, count=100)

        def url() -> str:
            return ",".join(f"http://guest:guest@127.0.0.1:{node.http_port}" for node in nodes)

        query = Query(None, url=url(), exchange="x")
        found = query.batch(50)
        assert {row["queue"] for row in found} == {"q0", "q1"}
        nodes[0].kill()
        publish(nodes[1], "q1", count=100)
        query.at(None, url=url(), exchange="x", brokerRetrySeconds=3600)
        found += until(lambda: query.batch(50))
        nodes[0].start()
        publish(nodes[0], "q0", count=100)
        query.at(None, url=url(), exchange="x")
        again = query.repeated()
        assert again == found[-len(again) :]
        while len(found) < 400:
            found += until(lambda: query.batch(50))
        assert Counter(row["queue"] for row in found) == {"q0": 200, "q1": 200}
        assert len({(row["queue"], row["seq"]) for row in found}) == 400
        assert query.batch(50) == []


def publish(node: JumpMQ, queue: str, *, declare: bool = False, count: int = 1) -> None:
    """Messages into a queue behind the exchange ``x``, with the queue's name as their bodies."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        channel = connection.channel()
        if declare:
            channel.exchange_declare("x", "direct", durable=True)
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "x", queue)
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("x", queue, queue.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)


def bodies(reader: DataSourceStreamReader, start: dict[str, object], end: dict[str, object]) -> set[bytes]:
    """Bodies of a micro-batch."""
    found = set()
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            found.update(batch.column("body").to_pylist())
    return found
