"""Warnings for a query that would wait for rows in vain, or write rows that Spark ignores."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.sources import numbered, publish, stream, table
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.spark import SCHEMA, JumpMQDataSource, JumpMQError, explain, plain_errors, progress

UNBOUND = "no queue is bound to exchange 'nothing', so that nothing is read"
NO_MATCH = "no queue's whole name matches the pattern 'nothing', so that nothing is read"


@pytest.fixture
def log(broker: RunningBroker, channel: BlockingChannel) -> None:
    """A stream of ten messages; an exchange without queues."""
    channel.exchange_declare("nothing")
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for body in numbered(0, 9):
        channel.basic_publish("", "log", body)


def source(broker: RunningBroker, **options: str) -> JumpMQDataSource:
    return JumpMQDataSource({"url": broker.http_url} | options)


@pytest.mark.parametrize(("option", "warning"), [("exchange", UNBOUND), ("pattern", NO_MATCH)])
@pytest.mark.parametrize("more", [{}, {"startingOffsets": "earliest"}], ids=["queues", "streams"])
@pytest.mark.usefixtures("log")
def test_where_there_is_no_queue(
    broker: RunningBroker, capfd: pytest.CaptureFixture[str], option: str, warning: str, more: dict[str, str]
) -> None:
    reader = source(broker, **{option: "nothing"} | more).streamReader(SCHEMA)
    for _ in range(2):
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        reported = reader.reportLatestOffset()
        assert reported is not None
        assert reported["warnings"][0].startswith(warning)
    assert capfd.readouterr().err.count(warning) == 1
    assert not source(broker, **{option: "nothing"}).reader(SCHEMA).partitions()
    assert f"jumpmq: warning: {warning}" in capfd.readouterr().err


@pytest.mark.usefixtures("log")
def test_offsets_beyond_the_end_and_times_to_come(broker: RunningBroker, capfd: pytest.CaptureFixture[str]) -> None:
    for offset in ("10", "latest", "2026-01-31T12:00:00Z"):
        source(broker, queue="log", startingOffsets=offset).reader(SCHEMA).partitions()
    sentence = "reading of stream 'log' begins with offset 11, and its next message has offset 10"
    for option in ("11", '{"log": 11}'):
        with pytest.raises(JumpMQError, match=sentence):
            source(broker, queue="log", startingOffsets=option).reader(SCHEMA).partitions()
        assert (
            not source(broker, queue="log", startingOffsets=option, failOnDataLoss="false").reader(SCHEMA).partitions()
        )
        assert sentence in capfd.readouterr().err
    ahead = source(broker, queue="log", startingOffsets="11").streamReader(SCHEMA)
    start = ahead.initialOffset()
    ahead.latestOffset(start, ReadAllAvailable())
    reported = ahead.reportLatestOffset()
    assert reported is not None
    assert reported["warnings"] == [f"{sentence}: those before 11 are not read"]
    tomorrow = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86400))
    future = source(broker, queue="log", startingOffsets=tomorrow)
    for plan in (future.reader(SCHEMA).partitions, future.streamReader(SCHEMA).initialOffset):
        with pytest.raises(JumpMQError, match="option 'startingOffsets' is a time in the future"):
            plan()


@pytest.mark.slow
@pytest.mark.usefixtures("log")
def test_the_progress_of_a_query_says_why_it_reads_nothing(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    frame = stream(spark, broker, exchange="nothing")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        warnings = until(lambda: found.warnings if (found := progress(query)) else None)
        assert warnings[0].startswith(UNBOUND)
        channel.queue_bind("q1", "nothing", "k")
        channel.basic_publish("nothing", "k", b"")
        until(lambda: (found := progress(query)) and found.queues and not found.warnings)
    finally:
        query.stop()


def test_the_option_columns_reads_only_these(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel
) -> None:
    published = publish(channel, numbered(1, 10))
    frame = table(spark, broker, exchange="x", columns="body, queue")
    assert frame.columns == ["body", "queue"]
    assert sorted(bytes(row.body) for row in frame.collect()) == published
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "BatchScan jumpmq[body" in plan and "headers" not in plan
    for wrong in ("colour", "body,body", ""):
        with pytest.raises(JumpMQError, match="option 'columns' must be some of queue, seq, "):
            source(broker, exchange="x", columns=wrong).schema()


def test_explain_says_what_spark_does_not(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        channel.basic_publish("", "q1", b"%d" % number)
    channel.queue_declare("q1", passive=True)
    until(lambda: table(spark, broker, queue="q1").count() == 3)
    both = table(spark, broker, exchange="x", columns="queue,body").where("queue = 'q1'")
    explain(both.join(spark.range(3), both.body == "a"))
    explain(stream(spark, broker, pattern="q2").select("body"))
    assert capsys.readouterr().out.splitlines() == [
        "exchange 'x' in vhost '/': queue, body",
        "  q1 (classic): 3 messages, numbers 1 to 3",
        "  q2 (classic): 0 messages",
        f"queues like 'q2' in vhost '/': {', '.join(SCHEMA.names)}",
        "  q2 (classic): 0 messages",
    ]


@pytest.mark.parametrize("mode", ["errorifexists", "ignore", "overwrite", None])
def test_other_modes_say_what_to_write(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, mode: str | None
) -> None:
    writer = spark.sql("select 'b' as body").write.format("jumpmq").options(url=broker.http_url, queue="q1")
    with pytest.raises(JumpMQError, match=r'write with .mode\("append"\)'), plain_errors():
        (writer if mode is None else writer.mode(mode)).save()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["complete", "update"])
def test_other_output_modes_say_what_to_write(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path, mode: str
) -> None:
    counts = stream(spark, broker, queue="q1").groupBy("queue").count().selectExpr("cast(count as string) as body")
    writer = counts.writeStream.format("jumpmq").options(url=broker.http_url, queue="q2").outputMode(mode)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with (
        pytest.raises(JumpMQError, match=r'write with outputMode\("append"\), or .* within foreachBatch'),
        plain_errors(),
    ):
        writer.start().awaitTermination()
