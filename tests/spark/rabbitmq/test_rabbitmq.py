"""Spark reads from and writes to a real RabbitMQ over AMQP: queues at least once, streams exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.brokers import confirming_channel
from tests.spark.sources import Sink, numbered, run_available

from jumpmq.spark import SCHEMA, JumpMQDataSource, JumpMQError
from jumpmq.testing import RabbitMQ

pytestmark = pytest.mark.skipif(not RabbitMQ.available(), reason=RabbitMQ.available().reason)

PROPERTIES = pika.BasicProperties(delivery_mode=2, message_id="m", headers={"n": 7})


@pytest.fixture
def url(rabbitmq: RabbitMQ) -> str:
    return f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/%2F"


@pytest.fixture
def channel(rabbitmq: RabbitMQ) -> Iterator[Any]:
    with confirming_channel(rabbitmq.port) as channel:
        yield channel


def declare(channel: BlockingChannel, queue: str, kind: str = "classic") -> None:
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})


def fill(channel: BlockingChannel, queue: str, bodies: list[bytes]) -> list[bytes]:
    for body in bodies:
        channel.basic_publish("", queue, body, PROPERTIES)
    return bodies


def waiting(channel: BlockingChannel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(body)
    return found


def table(spark: SparkSession, url: str, **options: Any) -> Any:
    return spark.read.format("jumpmq").options(url=url, **options).load()


def stream(spark: SparkSession, url: str, **options: Any) -> Any:
    return spark.readStream.format("jumpmq").options(url=url, **options).load()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_table_shows_what_is_ready_and_leaves_it(
    spark: SparkSession, url: str, channel: BlockingChannel, kind: str
) -> None:
    declare(channel, "looked at", kind)
    published = fill(channel, "looked at", numbered(1, 300))
    rows = table(spark, url, queue="looked at").collect()
    assert [bytes(row.body) for row in rows] == published
    row = rows[0]
    assert (row.queue, row.seq, row.exchange, bytes(row.routing_key)) == ("looked at", None, "", b"looked at")
    assert (row.properties.message_id, row.headers["n"]) == ("m", "7")
    assert [bytes(row.body) for row in table(spark, url, queue="looked at").collect()] == published


@pytest.mark.parametrize("pushdown", [False, True])
def test_a_filter_leaves_other_queries_of_a_frame_their_rows(
    spark: SparkSession, url: str, channel: BlockingChannel, pushdown: bool
) -> None:
    declare(channel, "filtered 1")
    declare(channel, "filtered 2", "quorum")
    fill(channel, "filtered 1", numbered(1, 40))
    fill(channel, "filtered 2", numbered(41, 100))
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    assert before is not None
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = table(spark, url, queues="filtered 1,filtered 2")
        assert frame.where("queue = 'filtered 1'").count() == 40
        assert frame.count() == 100
        halves = [frame.where(f"queue = 'filtered {number}'") for number in (1, 2)]
        assert halves[0].unionAll(halves[1]).count() == 100
        frame.createOrReplaceTempView("filtered")
        assert spark.sql("select * from filtered where queue = 'filtered 2'").count() == 60
        assert spark.sql("select * from filtered").count() == 100
        assert frame.limit(7).count() == 7
        assert frame.select("queue").distinct().count() == 2
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


def test_a_query_takes_what_there_is_and_acknowledges_it(
    spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    declare(channel, "taken 1")
    declare(channel, "taken 2", "quorum")
    published = fill(channel, "taken 1", numbered(1, 250)) + fill(channel, "taken 2", numbered(1001, 1100))
    sink = Sink()
    run_available(stream(spark, url, queues="taken 1,taken 2", maxMessagesPerTrigger=100), tmp_path, sink)
    assert sink.bodies == sorted(published)
    assert len(sink.batches) > 1
    of_first = [bytes(row.body) for row in sink.rows if row.queue == "taken 1"]
    assert of_first == sorted(of_first), "the order of each queue is kept"
    more = fill(channel, "taken 1", numbered(251, 300))
    again = Sink()
    run_available(stream(spark, url, queues="taken 1,taken 2"), tmp_path, again)
    assert again.bodies == more
    assert (waiting(channel, "taken 1"), waiting(channel, "taken 2")) == (0, 0)


def test_a_query_is_cut_into_partitions(
    spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    declare(channel, "cut 1")
    declare(channel, "cut 2")
    published = fill(channel, "cut 1", numbered(1, 40)) + fill(channel, "cut 2", numbered(101, 110))
    sizes, sink = [], Sink()

    def each_batch(frame: Any, number: int) -> None:
        sizes.append(sorted(frame.rdd.mapPartitions(lambda rows: [len(list(rows))]).collect()))
        sink(frame, number)

    run_available(stream(spark, url, queues="cut 1,cut 2", maxMessagesPerPartition=10), tmp_path, each_batch)
    assert sink.bodies == sorted(published)
    assert sum(sizes[0]) == 50 and max(sizes[0]) <= 10


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("group", "g"),
        ("lease", "5"),
        ("sameEnds", "true"),
        ("maxBytesPerTrigger", "5"),
        ("failOnDataLoss", "false"),
        ("checkpointLocation", "c"),
    ],
)
def test_what_a_query_over_amqp_cannot_do_is_refused(
    url: str, channel: BlockingChannel, option: str, value: str
) -> None:
    declare(channel, "q")
    with pytest.raises(JumpMQError, match=f"option '{option}' is for a JumpMQ broker"):
        JumpMQDataSource({"url": url, "queue": "q", option: value}).streamReader(SCHEMA)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_table_that_is_read_twice_at_once_is_whole_both_times(
    spark: SparkSession, url: str, channel: BlockingChannel, kind: str
) -> None:
    declare(channel, "twice", kind)
    rows = spark.range(20_000).selectExpr("'twice' as routing_key", "concat(id, repeat('x', 1000)) as body")
    rows.write.format("jumpmq").mode("append").options(url=url, exchange="").save()
    frame = table(spark, url, queue="twice").select("body")
    assert frame.union(frame).count() == 40_000
    assert frame.alias("a").join(frame.alias("b"), "body").count() == 20_000


def test_a_table_of_a_queue_that_others_consume_from_says_so_where_it_lacks_rows(
    spark: SparkSession, url: str, channel: BlockingChannel
) -> None:
    declare(channel, "held")
    fill(channel, "held", numbered(1, 20))
    channel.basic_qos(prefetch_count=5)
    reader = JumpMQDataSource({"url": url, "queue": "held"}).reader(SCHEMA)
    planned = reader.partitions()
    channel.basic_consume("held", lambda *delivery: None)
    channel.connection.process_data_events(0.5)
    with pytest.raises(JumpMQError, match=r"had 20 messages .* and 5 of them did not come: it has other consumers"):
        list(reader.read(planned[0]))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_two_sources_on_a_queue_are_refused_unless_they_share_it(
    spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path, kind: str
) -> None:
    declare(channel, "divided", kind)
    published = fill(channel, "divided", numbered(1, 40))
    one, other = (stream(spark, url, queue="divided").select("body") for _ in range(2))
    with pytest.raises(PySparkException, match=r"queue 'divided' has another consumer, .*'shareQueues'"):
        run_available(one.join(other, "body"), tmp_path / "refused", Sink())
    one, other = (stream(spark, url, queue="divided", shareQueues=True).select("body") for _ in range(2))
    sink = Sink()
    run_available(one.unionAll(other), tmp_path / "shared", sink)
    assert sink.bodies == published


def test_a_query_that_fails_loses_nothing(
    spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    declare(channel, "kept")
    published = fill(channel, "kept", numbered(1, 200))

    def fail(frame: Any, number: int) -> None:
        frame.collect()
        raise RuntimeError("the sink is broken")

    with pytest.raises(PySparkException):
        run_available(stream(spark, url, queue="kept", maxMessagesPerTrigger=50), tmp_path, fail)
    sink = Sink()
    run_available(stream(spark, url, queue="kept", maxMessagesPerTrigger=50), tmp_path, sink)
    assert sink.bodies == published


def test_a_stream_is_read_by_offsets(spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path) -> None:
    declare(channel, "log", "stream")
    published = fill(channel, "log", numbered(0, 499))
    frame = table(spark, url, queue="log", maxMessagesPerPartition=200)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.orderBy("seq").collect()
    assert [bytes(row.body) for row in rows] == published
    assert all(row.headers == {"n": "7"} for row in rows), "without the header that a stream adds"
    part = table(spark, url, queue="log", startingOffsets="100", endingOffsets="110").orderBy("seq").collect()
    assert [(row.seq, bytes(row.body)) for row in part] == [(at, published[at]) for at in range(100, 110)]
    sink = Sink()
    first = {"queue": "log", "startingOffsets": "earliest", "maxMessagesPerTrigger": 150}
    run_available(stream(spark, url, **first), tmp_path, sink)
    assert [bytes(row.body) for row in sink.rows] == published
    more = fill(channel, "log", numbered(500, 520))
    again = Sink()
    run_available(stream(spark, url, **first), tmp_path, again)
    assert [bytes(row.body) for row in again.rows] == more


def test_rows_are_published_in_order_and_confirmed(spark: SparkSession, url: str, channel: BlockingChannel) -> None:
    declare(channel, "written")
    frame = spark.range(0, 3000, numPartitions=1).selectExpr(
        "string(id) AS body", "'written' AS routing_key", "string(id) AS message_id", "map('k', string(id)) AS headers"
    )
    frame.write.format("jumpmq").options(url=url, exchange="").mode("append").save()
    assert waiting(channel, "written") == 3000
    _, properties, body = channel.basic_get("written", auto_ack=True)
    assert (body, properties.message_id, properties.headers) == (b"0", "0", {"k": "0"})
    assert properties.delivery_mode == 2
    assert bodies(channel, "written") == [b"%d" % number for number in range(1, 3000)]


def test_rows_that_reach_no_queue(spark: SparkSession, url: str, channel: BlockingChannel) -> None:
    declare(channel, "reached")
    frame = spark.createDataFrame([("reached", "a"), ("nowhere", "b")], ["routing_key", "body"]).coalesce(1)
    with pytest.raises(PySparkException, match="routing key 'nowhere' reaches no queue"):
        frame.write.format("jumpmq").options(url=url, exchange="").mode("append").save()
    bodies(channel, "reached")
    frame.write.format("jumpmq").options(url=url, exchange="", onUnroutable="drop").mode("append").save()
    assert bodies(channel, "reached") == [b"a"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "not there"}, "no queue 'not there'"),
        ({"exchange": "x"}, "AMQP does not say which queues are bound"),
        ({"pattern": "x.*"}, "AMQP does not say which queues there are"),
        ({"queue": "q", "url": "amqp://guest:wrong@127.0.0.1:{port}"}, "ACCESS_REFUSED"),
        ({"queue": "q", "url": "amqp://127.0.0.1:1"}, "cannot connect to amqp://127.0.0.1:1"),
        ({"queue": "q", "url": "amqp://127.0.0.1:{port}/nowhere"}, "vhost nowhere not found"),
    ],
)
def test_what_makes_no_sense(
    spark: SparkSession, rabbitmq: RabbitMQ, url: str, options: dict[str, str], text: str
) -> None:
    given = {"url": url} | options
    given["url"] = given["url"].replace("{port}", str(rabbitmq.port))
    with pytest.raises(PySparkException, match=text):
        spark.read.format("jumpmq").options(**given).load().collect()
