"""Complete jobs between queues and tables."""

from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from tests.http.api import API
from tests.spark.sources import numbered, publish, table

import jumpmq
from jumpmq.cli.demo.table import spark_session
from jumpmq.spark import JumpMQError, Router, route
from jumpmq.spark.pipelines import publish as publishing
from jumpmq.spark.pipelines.archive import archive
from jumpmq.spark.pipelines.rebalance import rebalance


def target(broker: jumpmq.RunningBroker, **options: str) -> dict[str, str]:
    return {"url": broker.http_url, "vhost": "/"} | options


def test_an_exchange_is_archived_and_replayed(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 60))
    place = str(tmp_path / "table")
    seen: list[int] = []
    source = target(broker, exchange="x", maxMessagesPerTrigger="40")
    assert archive(spark, source, place, by_hour=True, progress=seen.append) == sum(seen) == 60
    more = publish(channel, numbered(61, 80))
    assert archive(spark, source, place, by_hour=True) == 20
    rows = spark.read.parquet(place).collect()
    assert sorted(bytes(row.body) for row in rows) == published + more
    assert {row.queue for row in rows} == {"q1", "q2"}
    assert all(row.hour.minute == 0 for row in rows)
    assert publishing.replay(spark, place, target(broker, exchange="x"), "seq > 10") == len(
        [row for row in rows if row.seq > 10]
    )
    for queue in ("q1", "q2"):
        again = [bytes(row.body) for row in table(spark, broker, queue=queue).orderBy("seq").collect()]
        assert again == [bytes(row.body) for row in sorted(rows, key=lambda row: row.seq) if row.queue == queue][10:]


def test_a_table_is_published(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    place = str(tmp_path / "csv")
    spark.range(100).selectExpr("id % 7 as id", "id as value").write.option("header", True).csv(place)
    assert publishing.publish(spark, place, "csv", "id", target(broker, exchange="x")) == 100
    bodies = {bytes(row.body) for row in table(spark, broker, exchange="x").collect()}
    assert b'{"id":"1","value":"1"}' in bodies
    assert publishing.publish(spark, place, "csv", "id", target(broker, exchange="x"), body="value") == 100
    with pytest.raises(JumpMQError, match="there is no column 'nothing' in"):
        publishing.publish(spark, place, "csv", "nothing", target(broker, exchange="x"))
    nested = str(tmp_path / "nested")
    spark.sql("select struct(1, 2) as id").write.parquet(nested)
    with pytest.raises(JumpMQError, match=r"column 'id' in .* is of type struct<.*>, which is no key"):
        publishing.publish(spark, nested, "parquet", "id", target(broker, exchange="x"))
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        publishing.publish(spark, place + "-not", "csv", "id", target(broker, exchange="x"))


@pytest.mark.parametrize(
    ("hashed", "type_"),
    [
        ({"hash-header": "customer"}, "string"),
        ({"hash-header": "customer"}, "int"),
        ({"hash-header": "customer"}, "timestamp"),
        ({"hash-property": "message_id"}, "string"),
        ({"hash-property": "timestamp"}, "int"),
        ({}, "int"),
    ],
)
def test_a_published_table_goes_where_its_keys_are_routed(
    spark: SparkSession,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    tmp_path: Path,
    hashed: dict[str, str],
    type_: str,
) -> None:
    channel.exchange_declare("h", "x-consistent-hash", arguments=hashed)
    for number in range(3):
        channel.queue_declare(f"h{number}")
        channel.queue_bind(f"h{number}", "h", "1")
    place = str(tmp_path / "keys")
    spark.range(60).selectExpr(f"cast(1000000 + id % 20 as {type_}) as id").write.parquet(place)
    assert publishing.publish(spark, place, "parquet", "id", target(broker, exchange="h")) == 60
    keys = spark.read.parquet(place).select(col("id").cast("string" if not hashed else type_).alias("id"))
    router = Router.from_broker(broker.http_url, "h")
    expected: dict[str, int] = dict(route(keys, "id", router).groupBy("queue").count().collect())
    assert len(expected) > 1
    assert dict(table(spark, broker, exchange="h").groupBy("queue").count().collect()) == expected


def test_waiting_messages_move_where_their_keys_belong_in_order(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.confirm_delivery()
    for number in range(600):
        channel.basic_publish("x", str(number % 50), b"%d" % number, pika.BasicProperties(delivery_mode=2))
    channel.queue_declare("q3", durable=True)
    channel.queue_bind("q3", "x", "2")
    router = Router.from_broker(broker.http_url, "x")
    source = target(broker, exchange="x", maxMessagesPerTrigger="200")
    assert rebalance(spark, source, router, str(tmp_path / "checkpoint")) == 600
    frame = table(spark, broker, exchange="x")
    rows = frame.orderBy("queue", "seq").collect()
    assert sorted(int(row.body) for row in rows) == list(range(600))
    placed = route(frame.withColumnRenamed("queue", "found"), "routing_key", router)
    assert placed.where("found = queue").count() == 600
    assert {row.exchange for row in rows} == {"x"}
    for key in range(50):
        mine = [int(row.body) for row in rows if bytes(row.routing_key) == b"%d" % key]
        assert mine == sorted(mine)
    assert [API(broker.http_url).counts(queue)[1] for queue in ("q1", "q2", "q3")] == [0, 0, 0]


def test_the_demos_spark_is_one_that_is_there_and_goes_on(spark: SparkSession) -> None:
    with spark_session(partitions=2) as started:
        assert started().sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3
