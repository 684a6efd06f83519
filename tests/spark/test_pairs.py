"""Pairs of source and sink, with a restart or a change between two runs of a query: every message is counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.sources import Restartable, table

from jumpmq.spark import JumpMQError, plain_errors

pytestmark = pytest.mark.slow

KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "priority": {"x-max-priority": 5},
    "stream": {"x-queue-type": "stream"},
}


class Pair:
    """A queue ``q``, a query on it, and a sink: a Parquet table, or the queue or stream ``out``."""

    def __init__(
        self, spark: SparkSession, broker: Restartable, directory: Path, kind: str, sink: str, amqp: bool
    ) -> None:
        self._spark, self._directory, self._sink, self._amqp = spark, directory, sink, amqp
        self.broker = broker
        self.declare("q", kind)
        self.declare("out", "stream" if sink == "stream" else "classic")

    def _on_channel(self, act: Callable[[Any], Any]) -> Any:
        with closing(pika.BlockingConnection(pika.URLParameters(self.broker.amqp_url))) as connection:
            return act(connection.channel())

    def declare(self, queue: str, kind: str) -> None:
        """Delete and redeclare a queue."""
        self._on_channel(lambda channel: channel.queue_delete(queue))
        self._on_channel(lambda channel: channel.queue_declare(queue, durable=True, arguments=KINDS[kind]))

    def fill(self, first: int, last: int) -> None:
        def publish(channel: BlockingChannel) -> None:
            channel.confirm_delivery()
            for number in range(first, last):
                properties = pika.BasicProperties(delivery_mode=2, priority=number % 7)
                channel.basic_publish("", "q", b"%d" % number, properties)

        self._on_channel(publish)

    def left(self) -> int:
        """Number of ready messages in the query's queue."""
        found: int = self._on_channel(lambda channel: channel.queue_declare("q", passive=True).method.message_count)
        return found

    def run(self, checkpoint: str = "checkpoint", **options: Any) -> None:
        broker = self.broker
        source = {"url": broker.amqp_url if self._amqp else broker.http_url, "queue": "q"} | options
        writer = self._spark.readStream.format("jumpmq").options(**source).load().select("body").writeStream
        if self._sink == "parquet":
            writer = writer.format("parquet").option("path", str(self._directory / "table"))
        else:
            writer = writer.format("jumpmq").option("url", broker.http_url).option("queue", "out")
        writer = writer.option("checkpointLocation", str(self._directory / checkpoint)).trigger(availableNow=True)
        with plain_errors():
            writer.start().awaitTermination()

    def found(self) -> list[int]:
        """Numbers of the rows in the sink."""
        frame = table(self._spark, self.broker, queue="out")
        if self._sink == "parquet":
            frame = self._spark.read.parquet(str(self._directory / "table"))
        return sorted(int(bytes(row.body)) for row in frame.select("body").collect())


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    with Restartable(tmp_path / "broker") as broker:
        yield Pair(spark, broker, tmp_path, *request.param)


@pytest.mark.parametrize("pair", [("classic", "parquet", True), ("stream", "parquet", False)], indirect=True)
def test_a_table_of_another_checkpoint_takes_nothing(pair: Pair) -> None:
    """A query into another checkpoint's table takes no message, over AMQP, where it would be lost, or from a stream."""
    start = {} if pair._amqp else {"startingOffsets": "earliest"}
    pair.fill(0, 20)
    pair.run(**start)
    pair.fill(20, 30)
    before = pair.left()
    with pytest.raises(JumpMQError, match="of a query with another checkpoint"):
        pair.run("other", **start)
    assert pair.left() == before
    pair.run(**start)
    assert pair.found() == [*range(30)]


@pytest.mark.parametrize("pair", [("priority", "queue", False), ("quorum", "stream", False)], indirect=True)
def test_a_restart_between_small_micro_batches(pair: Pair) -> None:
    pair.fill(0, 20)
    pair.run(maxMessagesPerTrigger=6)
    pair.broker.restart()
    pair.fill(20, 30)
    pair.run(maxPartitions=3, minPartitions=3)
    pair.broker.restart()
    assert (pair.found(), pair.left()) == ([*range(30)], 0)


@pytest.mark.parametrize("pair", [("classic", "queue", False)], indirect=True)
def test_a_queue_that_is_declared_anew_as_another_kind(pair: Pair) -> None:
    pair.fill(0, 20)
    pair.run()
    pair.declare("q", "quorum")
    pair.fill(20, 30)
    pair.run()
    assert (pair.found(), pair.left()) == ([*range(30)], 0)
    pair.declare("q", "stream")
    pair.fill(30, 40)
    with pytest.raises(JumpMQError, match="checkpoint is not of streams"):
        pair.run()
