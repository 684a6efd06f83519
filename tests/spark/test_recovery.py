"""A streaming query across restarts of the broker, changes of queues, and a second query."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.http.api import API
from tests.spark.processes import planners
from tests.spark.sources import Restartable, Sink, declare, numbered, publish, run_available, stream

import jumpmq
from jumpmq.spark.client import Client
from jumpmq.spark.errors import MessagesGone
from jumpmq.spark.options import BrokerAddress


def test_the_broker_may_restart_between_planning_and_reading(spark: SparkSession, tmp_path: Path) -> None:
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
            published = publish(connection.channel(), numbered(1, 30))
        sink = Sink()

        def restart(frame: DataFrame, number: int) -> None:
            broker.restart()
            sink(frame, number)

        run_available(stream(spark, broker, exchange="x", maxMessagesPerTrigger=20), tmp_path, restart)
        assert sink.bodies == published
        assert not any(row.redelivered for row in sink.rows)
        assert [API(broker.http_url).counts(queue) for queue in ("q1", "q2")] == [(0, 0)] * 2


def test_transient_messages_that_died_with_the_broker_are_called_so(tmp_path: Path) -> None:
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
            for mode in (1, 2, 1):
                connection.channel().basic_publish("", "q1", b"", pika.BasicProperties(delivery_mode=mode))
        client = Client(BrokerAddress(broker.http_url))
        until = time.monotonic() + 10
        while client.ranges(None, ["q1"])["q1"]["messages"] < 3 and time.monotonic() < until:
            time.sleep(0.01)
        session = client.open("g", "query", 60)
        client.reserve("g", {"queues": {"q1": None}, "session": session})
        broker.restart()
        with pytest.raises(
            MessagesGone, match=r"lacks 2 of 3 messages since the broker was restarted: transient messages"
        ):
            list(client.reserved("g", [["q1", None, 1, 0, None]], ["body"], accept_loss=False))


def start(frame: DataFrame, sink: Sink, directory: Path) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.start()


def wait_for(condition: Callable[[], object], query: StreamingQuery) -> None:
    while not condition():
        assert query.isActive, query.exception()
        time.sleep(0.02)


def wait_for_rows(sink: Sink, count: int, query: StreamingQuery) -> None:
    wait_for(lambda: len(sink.rows) == count, query)


@pytest.mark.slow
def test_a_broker_that_is_away_for_a_while_does_not_end_the_query(spark: SparkSession, tmp_path: Path) -> None:
    sink = Sink()
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
            published = publish(connection.channel(), numbered(1, 30))
        query = start(stream(spark, broker, exchange="x"), sink, tmp_path)
        try:
            for first in (31, 61):
                wait_for_rows(sink, len(published), query)
                broker.stop()
                time.sleep(1)
                broker.restart()
                with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
                    published += publish(connection.channel(), numbered(first, first + 29))
            wait_for_rows(sink, len(published), query)
        finally:
            query.stop()
    assert sink.bodies == published


def test_a_broker_that_stays_away_ends_the_query_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
        query = start(stream(spark, broker, exchange="x", brokerRetrySeconds=1), Sink(), tmp_path)
        query.processAllAvailable()
        broker.stop()
        with pytest.raises(StreamingQueryException, match="nothing listens at"):
            query.awaitTermination()


@pytest.mark.slow
def test_a_queue_that_was_drained_and_deleted_is_no_matter(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 10))
    sink = Sink()
    run_available(stream(spark, broker, exchange="x"), tmp_path, sink)
    channel.queue_delete("q2")
    publish(channel, numbered(11, 20))
    run_available(stream(spark, broker, exchange="x"), tmp_path, sink)
    assert sink.bodies == numbered(1, 20)
    declare(channel)
    publish(channel, numbered(21, 30))
    run_available(stream(spark, broker, exchange="x"), tmp_path, sink)
    assert sink.bodies == numbered(1, 30)


def test_a_queue_deleted_with_messages_ends_the_query_unless_that_is_accepted(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 10))
    run_available(stream(spark, broker, exchange="x"), tmp_path, Sink())
    publish(channel, numbered(11, 40))
    kept = API(broker.http_url).counts("q1")[0]
    channel.queue_delete("q2")
    with pytest.raises(PySparkException, match=rf"queue 'q2' was deleted with {30 - kept} messages .*failOnDataLoss"):
        run_available(stream(spark, broker, exchange="x"), tmp_path, Sink())
    sink = Sink()
    run_available(stream(spark, broker, exchange="x", failOnDataLoss=False), tmp_path, sink)
    assert len(sink.rows) == kept


def test_what_is_left_of_a_lapsed_batch_is_read_if_the_loss_is_accepted(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 20))

    def die(frame: DataFrame, number: int) -> None:
        raise RuntimeError("lightning")

    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(stream(spark, broker, exchange="x", lease=1), tmp_path, die)
    api = API(broker.http_url)
    while api.counts("q1")[1]:
        time.sleep(0.05)
    taken = channel.basic_get("q1", auto_ack=True)[2]
    sink = Sink()
    run_available(stream(spark, broker, exchange="x", failOnDataLoss=False), tmp_path, sink)
    assert sink.bodies == [body for body in numbered(1, 20) if body != taken]


def test_a_second_query_of_a_group_is_refused(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 20))
    sink = Sink()
    query = start(stream(spark, broker, exchange="x", group="g"), sink, tmp_path / "first")
    try:
        wait_for_rows(sink, len(published), query)
        with pytest.raises(PySparkException, match="reader group 'g' in vhost '/' is in use by another query"):
            run_available(stream(spark, broker, exchange="x", group="g"), tmp_path / "second", Sink())
        published += publish(channel, numbered(21, 30))
        wait_for_rows(sink, len(published), query)
    finally:
        query.stop()
    rest = Sink()
    publish(channel, numbered(31, 40))
    run_available(stream(spark, broker, exchange="x", group="g"), tmp_path / "second", rest)
    assert rest.bodies[-10:] == numbered(31, 40)


def test_a_query_that_knows_its_checkpoint_acknowledges_what_spark_has_noted(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A query acknowledges committed messages during the wait for its trigger: none remains for a second query."""
    published = publish(channel, numbered(1, 20))
    api, sink, checkpoint = API(broker.http_url), Sink(), str(tmp_path / "checkpoint")
    frame = stream(spark, broker, exchange="x", lease=1, checkpointLocation=checkpoint)
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="1 hour").start()
    try:
        wait_for(lambda: api.counts("q1") == api.counts("q2") == (0, 0), query)
    finally:
        query.stop()
    assert sink.bodies == published


def test_the_progress_tells_what_waits(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 50))
    query = run_available(stream(spark, broker, exchange="x", maxMessagesPerTrigger=20), tmp_path, Sink())
    waiting = [progress.sources[0].latestOffset for progress in query.recentProgress]
    assert '"total":30' in waiting[0].replace(" ", "")


def test_a_planner_that_is_killed_is_an_error_and_the_restarted_query_reads_every_message_once(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """Spark cannot continue without the planning process; a restart from the checkpoint can."""
    published = publish(channel, numbered(1, 60))
    sink, frame = Sink(), stream(spark, broker, exchange="x", maxMessagesPerTrigger=20)

    def kill(frame: DataFrame, number: int) -> None:
        sink(frame, number)
        if number == 1:
            for process in planners():
                os.kill(process, signal.SIGKILL)

    with pytest.raises(StreamingQueryException):
        run_available(frame, tmp_path, kill)
    run_available(frame, tmp_path, sink)
    assert sink.bodies == published
