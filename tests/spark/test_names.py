"""Names with spaces, slashes, percent signs, quotes and other scripts, in options, columns and SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
from tests.spark.sources import Sink, numbered, run_available, stream, table

import jumpmq
import jumpmq.spark

NAMES = ["100%/ü 日本 🐇", "it's\\ q\"?#&+", " a,b "]


@pytest.mark.parametrize("kind", ["classic", "stream"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_the_same_everywhere(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path, kind: str, name: str
) -> None:
    queue = f"{name}1" if kind == "classic" else f"{name}2"
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    channel.queue_bind(queue, name, "")
    frame = spark.createDataFrame([(body, body) for body in numbered(1, 5)], "routing_key binary, body binary")
    for rows, options in (
        (frame, {"exchange": name}),
        (frame, {"queue": queue}),
        (frame.withColumn("exchange", lit(name)), {}),
    ):
        rows.write.format("jumpmq").mode("append").options(url=broker.http_url, **options).save()
    options = {"url": broker.http_url, "exchange": name, "queue": queue}
    quoted = {option: value.replace("\\", "\\\\").replace("'", "\\'") for option, value in options.items()}
    for option in ("exchange", "queue"):
        found = table(spark, broker, **{option: options[option]})
        assert [tuple(row) for row in found.groupBy("queue").count().collect()] == [(queue, 15)]
        given = f"url '{quoted['url']}', {option} '{quoted[option]}'"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW named USING jumpmq OPTIONS ({given})")
        assert spark.sql("SELECT count(*) FROM named").collect() == [(15,)]
    if name == name.strip():
        called = f"jumpmq_queue('{quoted['queue']}', url => '{quoted['url']}')"
        assert spark.sql(f"SELECT count(*) FROM {called}").collect() == [(15,)]
    sink, start = Sink(), {"startingOffsets": "earliest"} if kind == "stream" else {}
    query = run_available(stream(spark, broker, exchange=name, **start), tmp_path, sink)
    assert sink.bodies == sorted(numbered(1, 5) * 3)
    progress = jumpmq.spark.progress(query)
    assert progress is not None
    assert list(progress.queues) == [queue]
