"""Progress of a query by queue, for programs and for Prometheus."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.sources import Sink, declare, numbered, publish, stream
from tests.waiting import until

import jumpmq.spark
from jumpmq.spark.lag import LAGS


@pytest.fixture
def exporter(spark: SparkSession) -> Iterator[jumpmq.spark.Exporter]:
    found = jumpmq.spark.Exporter(spark)
    yield found
    found.close()


def scraped(exporter: jumpmq.spark.Exporter) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_rows_and_lag_by_queue(
    spark: SparkSession,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    exporter: jumpmq.spark.Exporter,
    tmp_path: Path,
) -> None:
    declare(channel, ['q "3"'])
    published = publish(channel, numbered(1, 90))
    channel.queue_declare("left")
    channel.basic_publish("", "left", b"")
    sink = Sink()
    frame = stream(spark, broker, exchange="x", maxMessagesPerTrigger=30)
    named = frame.writeStream.foreachBatch(sink).queryName("flights")
    query = named.option("checkpointLocation", str(tmp_path)).trigger(processingTime="1 second").start()
    try:
        until(lambda: len(sink.rows) == 30)
        found = until(lambda: jumpmq.spark.progress(query))
        assert found.batch == 0
        assert sum(one.rows for one in found.queues.values()) == 30
        assert {queue: one.rows for queue, one in found.queues.items()} == {
            queue: sum(row.queue == queue for row in sink.batches[0]) for queue in ("q1", "q2", 'q "3"')
        }
        assert found.unread == {"left": 1}
        assert query.lastProgress is not None
        lags = json.loads(query.lastProgress.sources[0].latestOffset)
        waiting = [one.ready for one in found.queues.values()]
        assert [lags[name] for name in LAGS] == [min(waiting), max(waiting), 60 / 3, 60 * 4]
        assert found.ready == 60 and found.oldest is not None and 0 <= found.oldest < 600
        assert found.seconds is not None and found.seconds > 0
        until(lambda: len(sink.rows) == 90 and (now := jumpmq.spark.progress(query)) and now.ready == 0)
        labels = 'query="flights",queue="q \\"3\\""'
        rows = sum(row.queue == 'q "3"' for row in sink.rows)
        until(lambda: scraped(exporter).get(f"jumpmq_spark_query_rows_total{{{labels}}}") == rows)
        assert scraped(exporter)[f"jumpmq_spark_query_ready{{{labels}}}"] == 0
        assert sink.bodies == published
    finally:
        query.stop()
    until(lambda: not scraped(exporter))
