"""Streams in Spark itself: a table, and a query that fails, restarts and continues."""

import json
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.http.api import API
from tests.spark.sources import Restartable, Sink, run_available, stream, table
from tests.spark.streams.published import STREAM, fill

import jumpmq.spark


@pytest.mark.slow
def test_a_table(spark: SparkSession, broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    published = fill(streams, "s1", 30) + fill(streams, "s2", 10, start=30)
    frame = table(spark, broker, exchange="x", maxMessagesPerPartition=20, startingOffsets="0")
    assert frame.schema == jumpmq.spark.SCHEMA
    assert [bytes(row.body) for row in frame.orderBy("queue", "seq").collect()] == published


def test_a_query_that_fails_is_restarted_and_reads_every_message_once(
    spark: SparkSession, broker: jumpmq.RunningBroker, streams: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = fill(streams, "s1", 30) + fill(streams, "s2", 10, start=30)
    frame = stream(spark, broker, exchange="x", maxMessagesPerTrigger=15, startingOffsets="earliest")
    sink = Sink()

    def die(frame: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("lightning")
        sink(frame, number)

    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(frame, tmp_path, die)
    published += fill(streams, "s1", 3, start=40)
    run_available(frame, tmp_path, sink)
    assert sink.bodies == published
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == [15, 15, 13]
    assert api.counts("s1") == (33, 0)
    log = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    assert set(json.loads(log[-1])["streams"]) == {"s1", "s2"}


def test_the_broker_may_restart_in_the_middle_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            connection.channel().queue_declare("s1", durable=True, arguments=STREAM)
            published = fill(connection.channel(), "s1", 30)
        sink = Sink()

        def restart(frame: DataFrame, number: int) -> None:
            broker.restart()
            sink(frame, number)

        run_available(stream(spark, broker, queue="s1", startingOffsets="earliest"), tmp_path, restart)
        assert sink.bodies == published
