"""Reading queues as tables of ready messages."""

import datetime

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.http.api import API
from tests.spark.sources import numbered, publish, table

import jumpmq.spark


def test_the_rows_are_what_was_published(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API
) -> None:
    published = publish(channel, numbered(1, 100))
    frame = table(spark, broker, exchange="x")
    assert frame.schema == jumpmq.spark.SCHEMA
    rows = frame.orderBy("queue", "seq").collect()
    assert sorted(bytes(row.body) for row in rows) == published
    assert all(row.body == row.routing_key and row.exchange == "x" and not row.redelivered for row in rows)
    counts = {queue: sum(api.counts(queue)) for queue in ("q1", "q2")}
    for queue, count in counts.items():
        mine = [row for row in rows if row.queue == queue]
        assert [row.seq for row in mine] == list(range(1, count + 1))
        assert [row.body for row in mine] == sorted(row.body for row in mine)
    assert sum(counts.values()) == 100, "a look consumes nothing"


def test_queues_share_partitions_and_long_ones_are_cut(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    publish(channel, numbered(1, 60))
    assert table(spark, broker, exchange="x").rdd.getNumPartitions() == 1
    assert table(spark, broker, exchange="x", minPartitions=2).rdd.getNumPartitions() == 2
    cut = table(spark, broker, queue="q1", maxMessagesPerPartition=5)
    sizes = cut.rdd.mapPartitions(lambda rows: [len(list(rows))]).collect()
    assert len(sizes) > 2 and max(sizes) <= 5
    assert [row.seq for row in cut.orderBy("seq").collect()] == list(range(1, sum(sizes) + 1))


def test_queues_by_list_and_by_pattern(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    published = publish(channel, numbered(1, 20))
    channel.queue_declare("other")
    channel.basic_publish("", "other", b"other")
    assert table(spark, broker, queues="q1, q2").count() == len(published)
    assert table(spark, broker, pattern="q[0-9]").count() == len(published)
    assert table(spark, broker, pattern=".*").count() == len(published) + 1
    assert table(spark, broker, pattern="nothing").count() == 0


@pytest.mark.parametrize("pushdown", [False, True])
def test_a_filter_leaves_other_queries_of_a_frame_their_rows(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, pushdown: bool
) -> None:
    """A filter affects no other query of a frame, also in a session with filter pushdown to Python sources."""
    published = publish(channel, numbered(1, 40))
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    assert before is not None
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = table(spark, broker, exchange="x")
        first = frame.where("queue = 'q1'").count()
        assert 0 < first < len(published)
        assert frame.count() == len(published)
        assert frame.where("queue like '%2'").count() == len(published) - first
        assert frame.where("queue in ('q1', 'q2') and seq > 0").count() == len(published)
        assert frame.where("queue = 'q1' or seq = 1").count() == first + 1
        halves = frame.where("queue = 'q1'").unionAll(frame.where("queue = 'q2'"))
        assert halves.count() == len(published)
        left, right = frame.where("queue = 'q1'").alias("a"), frame.alias("b")
        assert left.join(right, "body").count() == first
        frame.createOrReplaceTempView("messages")
        assert spark.sql("select * from messages where queue = 'q2'").count() == len(published) - first
        assert spark.sql("select * from messages").count() == len(published)
        part = frame.where("queue = 'q1'").cache()
        try:
            assert part.count() == first and frame.count() == len(published) and part.count() == first
        finally:
            part.unpersist()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


def test_bodies_keys_headers_and_properties_come_through(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={
            "text": "ä",
            "octets": b"\xff\x00",
            "number": -7,
            "truth": True,
            "nothing": None,
            "when": datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC),
            "list": [1, "two", b"\xff"],
            "table": {"a": {"b": 2}},
        },
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration="60000000",
        message_id="m",
        timestamp=1357034400,
        type="t",
        user_id="guest",
        app_id="ä",
    )
    body = bytes(range(256))
    before = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    channel.basic_publish("x", b"\xff\x00key", body, sent)
    channel.basic_publish("x", b"\xff\x00key", b"")
    rich, plain = table(spark, broker, exchange="x").orderBy("seq").collect()
    assert (bytes(rich.body), bytes(rich.routing_key)) == (body, b"\xff\x00key")
    assert rich.headers == {
        "text": "ä",
        "octets": "/wA=",
        "number": "-7",
        "truth": "true",
        "nothing": None,
        "when": "2013-01-01T00:00:00+00:00",
        "list": '[1, "two", "/w=="]',
        "table": '{"a": {"b": 2}}',
    }
    assert rich.properties.asDict() == {
        "content_type": "application/json",
        "content_encoding": "gzip",
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000000",
        "message_id": "m",
        "timestamp": datetime.datetime(2013, 1, 1, 10),
        "type": "t",
        "user_id": "guest",
        "app_id": "ä",
    }
    assert before <= rich.published_at <= plain.published_at
    assert plain.headers == {}
    assert set(plain.properties.asDict().values()) == {None}


def test_a_schema_of_few_columns_reads_only_these(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    published = publish(channel, numbered(1, 10))
    reader = spark.read.format("jumpmq").option("url", broker.http_url).option("exchange", "x")
    assert sorted(bytes(row.body) for row in reader.schema("body binary").load().collect()) == published
    assert {row.queue for row in reader.schema("queue string").load().collect()} == {"q1", "q2"}
    swapped = reader.schema("headers map<string,string>, seq bigint").load().collect()
    assert {tuple(row.asDict()) for row in swapped} == {("headers", "seq")}


def test_queues_behind_another_exchange_are_read_too(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    published = publish(channel, numbered(1, 10))
    channel.exchange_declare("outer", "fanout")
    channel.exchange_bind("x", "outer")
    channel.exchange_bind("outer", "x", "1")
    assert table(spark, broker, exchange="outer").count() == len(published)


def test_empty_queues_and_exchanges_have_no_rows(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    assert table(spark, broker, exchange="x").count() == 0
    channel.exchange_declare("unbound")
    assert table(spark, broker, exchange="unbound").count() == 0


@pytest.mark.parametrize("name", ["with/slash and space", "ä%2F?#&"])
def test_any_name_will_do(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    channel.basic_publish("", name, b"1")
    assert [row.queue for row in table(spark, broker, queue=name).collect()] == [name]


def test_a_queue_of_many_batches(spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel) -> None:
    """A queue with more messages than a record batch is read whole, also with different properties."""
    channel.queue_declare("long")
    for number in range(20_000):
        channel.basic_publish("", "long", b"%d" % number, pika.BasicProperties(message_id=str(number % 7)))
    frame = table(spark, broker, queue="long")
    assert frame.count() == 20_000
    assert frame.where("cast(cast(body as string) as int) % 7 != cast(properties.message_id as int)").count() == 0
