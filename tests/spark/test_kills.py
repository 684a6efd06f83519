"""Processes are killed during a query (SIGKILL): the table has every message exactly once."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.http.api import API
from tests.spark.processes import processes
from tests.spark.sources import declare, numbered, publish, stream

import jumpmq
from jumpmq.testing import JumpMQ, free_ports

pytestmark = pytest.mark.slow


def to_parquet(frame: DataFrame, directory: Path) -> StreamingQuery:
    """A query of the present messages into a table."""
    writer = frame.writeStream.format("parquet").option("path", str(directory / "table"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def archived(spark: SparkSession, directory: Path) -> list[bytes]:
    rows = spark.read.parquet(str(directory / "table")).select("body").collect()
    return sorted(bytes(row.body) for row in rows)


def test_python_workers_are_killed_while_they_read(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 600))
    mark = tmp_path / "killed"

    def kill_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In the middle of a partition, kill all Python workers of this worker's parent."""
        for batch in batches:
            yield batch.slice(0, 50)
            if not mark.exists():
                mark.touch()
                for pid, parent, _ in processes():
                    if parent == os.getppid() and pid != os.getpid():
                        os.kill(pid, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(50)

    frame = stream(spark, broker, exchange="x", maxMessagesPerTrigger=300)
    query = to_parquet(frame.mapInArrow(kill_once, frame.schema), tmp_path)
    query.awaitTermination()
    assert mark.exists()
    assert archived(spark, tmp_path) == published
    assert [API(broker.http_url).counts(queue) for queue in ("q1", "q2")] == [(0, 0)] * 2


def test_the_broker_is_killed_in_mid_query_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    port, http_port = map(str, free_ports(2))
    with JumpMQ(tmp_path / "broker", arguments=("--port", port, "--http-port", http_port)) as broker:
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        amqp = pika.ConnectionParameters("127.0.0.1", broker.port)
        with pika.BlockingConnection(amqp) as connection:
            declare(connection.channel())
            published = publish(connection.channel(), numbered(1, 1000))
        query = to_parquet(
            stream(spark, SimpleNamespace(http_url=url), exchange="x", maxMessagesPerTrigger=200), tmp_path
        )
        for _ in range(2):
            seen = len(query.recentProgress)
            while query.isActive and len(query.recentProgress) == seen:
                time.sleep(0.01)
            broker.kill()
            broker.start()
        query.awaitTermination()
        assert archived(spark, tmp_path) == published
        assert [API(url).counts(queue) for queue in ("q1", "q2")] == [(0, 0)] * 2
