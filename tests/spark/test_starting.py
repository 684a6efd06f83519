"""Queries refused before their start, and the acknowledgements of a stopped query."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.http.api import API
from tests.spark.sources import numbered, publish, stream
from tests.waiting import until

import jumpmq
from jumpmq.spark import plain_errors
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.pipelines.archive import archive
from jumpmq.spark.starting import CLAIM, claim

pytestmark = pytest.mark.slow


def started(frame: Any, table: Path, checkpoint: Path) -> Any:
    writer = frame.writeStream.format("json").option("path", str(table)).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def test_a_table_of_another_checkpoint_is_refused_and_nothing_taken(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A JSON table of another checkpoint is refused, and no message is taken. Other tests use tables of Parquet."""
    frame, table = stream(spark, broker, exchange="x").selectExpr("cast(body as string) as body"), tmp_path / "table"
    published = publish(channel, numbered(1, 20))
    started(frame, table, tmp_path / "first").awaitTermination()
    more = publish(channel, numbered(21, 30))
    query = started(frame, table, tmp_path / "second")
    with (
        pytest.raises(
            JumpMQError, match=r"table has micro-batches up to number \d+ of a query with another checkpoint"
        ),
        plain_errors(),
    ):
        query.awaitTermination()
    assert isinstance(query.exception(), StreamingQueryException)
    api = API(broker.http_url)
    assert sum(api.counts("q1")[0] + api.counts("q2")[0] for _ in (1,)) == 10, "nothing is taken, nor held"
    started(frame, table, tmp_path / "first").awaitTermination()
    rows = spark.read.format("json").load(str(table)).collect()
    assert sorted(row.body.encode() for row in rows) == published + more


def test_an_archive_goes_on_with_another_checkpoint_if_told_so(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    source, table = {"url": broker.http_url, "exchange": "x"}, str(tmp_path / "table")
    published = publish(channel, numbered(1, 20))
    assert archive(spark, source | {"maxMessagesPerTrigger": "10"}, table) == 20
    more = publish(channel, numbered(21, 30))
    other = str(tmp_path / "other")
    with pytest.raises(JumpMQError, match="--continue"):
        archive(spark, source, table, other)
    assert archive(spark, source, table, other, go_on=True) == 10
    assert archive(spark, source, table, other, go_on=True) == 0
    last = publish(channel, numbered(31, 40))
    assert archive(spark, source, table, other) == 10
    with pytest.raises(JumpMQError, match="--continue"):
        archive(spark, source, table)
    late = publish(channel, numbered(41, 50))
    assert archive(spark, source, table, go_on=True) == 10
    rows = spark.read.parquet(table).collect()
    assert sorted(bytes(row.body) for row in rows) == published + more + last + late


def test_a_query_that_is_stopped_has_acknowledged_what_is_in_the_table(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A stopped query has acknowledged the table's messages, without the source's option ``checkpointLocation``.

    A second query to the table does not start meanwhile.
    """
    publish(channel, numbered(1, 20))
    frame = stream(spark, broker, exchange="x")
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "table"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 hour").start()
    api = API(broker.http_url)
    try:
        with pytest.raises(JumpMQError, match="table is also written by the running query"), plain_errors():
            channel.queue_declare("q3", durable=True)
            other = stream(spark, broker, queue="q3").writeStream.format("parquet")
            other = other.option("checkpointLocation", str(tmp_path / "other"))
            other.start(str(tmp_path / "table")).awaitTermination(60)
        until(lambda: [api.counts(queue) for queue in ("q1", "q2")] == [(0, 0)] * 2)
    finally:
        query.stop()


def test_a_query_into_a_table_that_another_process_has_claimed_is_refused(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A query into a claimed table is refused until the claiming query has written a micro-batch, or has ended."""
    table, api, other = tmp_path / "table", API(broker.http_url), "6f7c"
    assert [claim(spark, other, str(table)) for _ in range(2)] == [None, None], "a restarted query has it still"
    channel.queue_declare("q4", durable=True)
    channel.basic_publish("", "q4", b"1")
    frame = stream(spark, broker, queue="q4")
    with pytest.raises(JumpMQError, match="is also written by query 6f7c, of another session or"), plain_errors():
        started(frame, table, tmp_path / "first").awaitTermination()
    assert api.counts("q4") == (1, 0)
    (table / CLAIM).unlink()
    started(frame, table, tmp_path / "second").awaitTermination()
    assert api.counts("q4") == (0, 0)
    until(lambda: not (table / CLAIM).exists())


def test_a_second_archive_is_refused_while_the_first_is_at_work(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    source, table = {"url": broker.http_url, "exchange": "x"}, str(tmp_path / "table")
    published = publish(channel, numbered(1, 20))
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(archive, spark, source, table, continuous=True, interval="1 second")
        try:
            until(lambda: sum(sum(API(broker.http_url).counts(queue)) for queue in ("q1", "q2")) == 0)
            with pytest.raises(JumpMQError, match=r"another run reads with the checkpoint .*table\.checkpoint"):
                archive(spark, source, table)
        finally:
            for query in spark.streams.active:
                query.stop()
        assert first.result() == 20
    more = publish(channel, numbered(21, 30))
    assert archive(spark, source, table) == 10
    assert sorted(bytes(row.body) for row in spark.read.parquet(table).collect()) == published + more
