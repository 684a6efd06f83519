"""How far a query is, by queue, for programs and for Prometheus."""

import json
import urllib.request

import pytest
from tests.spark.sources import Sink, declare, numbered, publish, stream
from tests.waiting import until

import jumpmq.spark
from jumpmq.spark.lag import LAGS


@pytest.fixture
def exporter(spark):
    found = jumpmq.spark.Exporter(spark)
    yield found
    found.close()


def scraped(exporter):
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_rows_and_lag_by_queue(spark, broker, channel, exporter, tmp_path):
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
        until(lambda: (found := jumpmq.spark.progress(query)) is not None and found.batch == 0)
        found = jumpmq.spark.progress(query)
        assert sum(one.rows for one in found.queues.values()) == 30
        assert {queue: one.rows for queue, one in found.queues.items()} == {
            queue: sum(row.queue == queue for row in sink.batches[0]) for queue in ("q1", "q2", 'q "3"')
        }
        assert found.unread == {"left": 1}
        lags = json.loads(query.lastProgress.sources[0].latestOffset)
        waiting = [one.ready for one in found.queues.values()]
        assert [lags[name] for name in LAGS] == [min(waiting), max(waiting), 60 / 3, 60 * 4]
        assert found.ready == 60 and 0 <= found.oldest < 600 and found.seconds > 0
        until(lambda: len(sink.rows) == 90 and jumpmq.spark.progress(query).ready == 0)
        named = 'query="flights",queue="q \\"3\\""'
        rows = sum(row.queue == 'q "3"' for row in sink.rows)
        until(lambda: scraped(exporter).get(f"jumpmq_spark_query_rows_total{{{named}}}") == rows)
        assert scraped(exporter)[f"jumpmq_spark_query_ready{{{named}}}"] == 0
        assert sink.bodies == published
    finally:
        query.stop()
    until(lambda: not scraped(exporter))
