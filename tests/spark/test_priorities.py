"""Queues with priorities: all messages are read, in the order of delivery."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.commands import run
from tests.spark.sources import Sink, run_available, stream, table

from jumpmq import RunningBroker
from jumpmq.spark.partitions import WORTHWHILE

KINDS = {"classic": {"x-max-priority": 9}, "quorum": {"x-queue-type": "quorum"}}

each_kind = pytest.mark.parametrize("kind", KINDS)


def declare(channel: BlockingChannel, kind: str) -> None:
    """A queue with 90 messages of priority 0 behind the hash exchange ``h``, 10 of priority 5 among them."""
    channel.queue_declare("p", durable=True, arguments=KINDS[kind])
    channel.exchange_declare("h", "x-consistent-hash", durable=True)
    channel.queue_bind("p", "h", "1")
    channel.confirm_delivery()
    for number in range(100):
        properties = pika.BasicProperties(delivery_mode=2, priority=5 if number % 10 == 9 else 0)
        channel.basic_publish("h", b"%d" % number, b"%d" % number, properties)


def delivered(channel: BlockingChannel) -> list[bytes]:
    """Messages as delivered to a client one by one; the queue is then empty."""
    return [body for _, _, body in iter(lambda: channel.basic_get("p", auto_ack=True), (None, None, None))]


@each_kind
def test_a_table_has_all_messages_in_the_order_of_delivery(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, kind: str
) -> None:
    declare(channel, kind)
    for options in ({}, {"minPartitions": 3}, {"keepOrder": True}):
        frame = table(spark, broker, queue="p", **options)
        found = [bytes(row.body) for row in frame.collect()]
        assert len(found) == 100
        assert frame.rdd.getNumPartitions() == 1
    assert table(spark, broker, queues="p,q1").count() == 100
    assert found == delivered(channel)


@each_kind
def test_a_streaming_query_takes_all_at_once(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path, kind: str
) -> None:
    declare(channel, kind)
    before = [bytes(row.body) for row in table(spark, broker, queue="p").collect()]
    sink = Sink()
    run_available(stream(spark, broker, queue="p"), tmp_path, sink)
    assert [len(rows) for rows in sink.batches.values()] == [100]
    assert [bytes(row.body) for row in sink.rows] == before
    assert delivered(channel) == []


@pytest.mark.slow
@each_kind
def test_a_streaming_query_takes_what_would_be_delivered_first(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path, kind: str
) -> None:
    declare(channel, kind)
    before = [bytes(row.body) for row in table(spark, broker, queue="p").collect()]
    sink = Sink()
    run_available(stream(spark, broker, queue="p", maxMessagesPerTrigger=40), tmp_path, sink)
    assert [[bytes(row.body) for row in rows] for rows in sink.batches.values()] == [
        before[:40],
        before[40:80],
        before[80:],
    ]


@pytest.mark.slow
def test_uniformity_and_plan_see_all_messages(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel
) -> None:
    declare(channel, "classic")
    url = ("--url", broker.http_url)
    assert "p: 100 keys (100 expected), 100 messages" in run("uniformity", "--exchange", "h", *url)
    assert "of 100 keys move" in run("plan", "h", "--add", "other", *url)


@pytest.mark.slow
def test_the_partitions_of_a_long_queue_follow_one_another(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel
) -> None:
    rows = 3 * WORTHWHILE + 1
    numbers = spark.range(rows, numPartitions=1).selectExpr("cast(id as string) as body")
    for queue, arguments in (("long", {}), ("log", {"x-queue-type": "stream"})):
        channel.queue_declare(queue, durable=True, arguments=arguments)
        numbers.write.format("jumpmq").mode("append").options(url=broker.http_url, queue=queue).save()
        frame = table(spark, broker, queue=queue, maxPartitions=8)
        assert frame.rdd.getNumPartitions() > 2
        assert [row.seq for row in frame.select("seq").collect()] == [
            *range(*((1, rows + 1) if queue == "long" else (0, rows)))
        ]
