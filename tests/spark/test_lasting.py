"""Written rows survive a restart of the broker, for all ways of writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sources import Restartable, table

from jumpmq.spark.pipelines.publish import publish
from jumpmq.spark.pipelines.rebalance import rebalance
from jumpmq.spark.router import Router

WAYS = {
    "plain": {},
    "empty": {"headers": "map()"},
    "headers": {"headers": "map('h', 'v')"},
    "message_id": {"message_id": "'m'"},
    "several": {"priority": "3", "expiration": "'3600000'", "content_type": "'text/plain'"},
    "octets": {"amqp_properties": "binary('\\0\\0')"},
}
"""Columns of the rows, by their queue; none sets a delivery mode."""

COLUMNS = {
    "headers": "map<string,string>",
    "message_id": "string",
    "priority": "int",
    "expiration": "string",
    "content_type": "string",
    "delivery_mode": "int",
    "amqp_properties": "binary",
}


def rows(spark: SparkSession, suffix: str) -> DataFrame:
    """Twenty rows per way of writing; all have all columns, null by default."""
    parts = [
        f"select cast(id as string) as body, '{way}{suffix}' as queue, "
        + ", ".join(f"cast({said.get(name, 'null')} as {type_}) as {name}" for name, type_ in COLUMNS.items())
        + " from range(20)"
        for way, said in WAYS.items()
    ]
    return spark.sql(" union all ".join(parts)).coalesce(2)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restartable]:
    with Restartable(tmp_path / "broker") as running:
        with closing(pika.BlockingConnection(pika.URLParameters(running.amqp_url))) as connection:
            channel = connection.channel()
            channel.exchange_declare("h", "x-consistent-hash", durable=True, arguments={"hash-header": "customer"})
            for queue in (*WAYS, *(f"{way} by AMQP" for way in WAYS), "stream", "h1", "h2", "gone", "said"):
                channel.queue_declare(queue, durable=True)
            channel.queue_bind("h1", "h", "1")
        yield running


def counts(spark: SparkSession, broker: Restartable) -> dict[str, int]:
    return dict(table(spark, broker, pattern=".*").groupBy("queue").count().collect())


@pytest.mark.slow
def test_rows_without_a_delivery_mode_are_there_after_a_restart(
    spark: SparkSession, broker: Restartable, tmp_path: Path
) -> None:
    frame = spark.range(20, numPartitions=1).selectExpr("cast(id as string) as body")
    for suffix, url in (("", broker.http_url), (" by AMQP", broker.amqp_url)):
        rows(spark, suffix).write.format("jumpmq").mode("append").option("url", url).save()
    numbers = str(tmp_path / "numbers")
    frame.write.parquet(numbers)
    arriving = spark.readStream.schema("body string").parquet(numbers).selectExpr("body", "map('h', body) as headers")
    writer = arriving.writeStream.format("jumpmq").options(url=broker.http_url, queue="stream")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert publish(spark, numbers, "parquet", "body", {"url": broker.http_url, "exchange": "h"}) == 20
    for url, option in ((broker.http_url, {"deliveryMode": "transient"}), (broker.amqp_url, {"persistent": "false"})):
        frame.write.format("jumpmq").mode("append").options(url=url, queue="gone", **option).save()
    said = frame.selectExpr("body", "2 as delivery_mode", "body as message_id")
    said.write.format("jumpmq").mode("append").options(url=broker.http_url, queue="said", deliveryMode="1").save()
    before = counts(spark, broker)
    broker.restart()
    after = counts(spark, broker)
    assert before.pop("gone") == 40
    expected = dict.fromkeys([*WAYS, *(f"{way} by AMQP" for way in WAYS), "stream", "h1", "said"], 20)
    assert before == after == expected


def test_a_message_that_is_rebalanced_keeps_its_delivery_mode(
    spark: SparkSession, broker: Restartable, tmp_path: Path
) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(broker.amqp_url))) as connection:
        channel = connection.channel()
        for mode in (None, 1, 2):
            properties = pika.BasicProperties(delivery_mode=mode, headers={"customer": "c"})
            channel.basic_publish("h", "k", b"%d" % (mode or 0), properties)
        channel.queue_bind("h2", "h", "9")
    router = Router.from_broker(broker.http_url, "h")
    source = {"url": broker.http_url, "exchange": "h"}
    assert rebalance(spark, source, router, str(tmp_path / "checkpoint")) == 3
    found = table(spark, broker, exchange="h").orderBy("body").select("body", "properties.delivery_mode").collect()
    assert [(bytes(row.body), row.delivery_mode) for row in found] == [(b"0", None), (b"1", 1), (b"2", 2)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"deliveryMode": "3"}, "option 'deliveryMode' must be persistent or transient or 2 or 1, not '3'"),
        ({"deliveryMode": "2", "PERSISTENT": "true"}, "either option 'deliveryMode' or option 'persistent'"),
    ],
)
def test_a_delivery_mode_that_is_none_is_refused(
    spark: SparkSession, broker: Restartable, options: dict[str, str], reason: str
) -> None:
    writer = spark.sql("select 'b' as body").write.format("jumpmq").mode("append")
    with pytest.raises(PySparkException, match=reason):
        writer.options(url=broker.http_url, queue="said", **options).save()
