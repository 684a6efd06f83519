"""An unpublishable constant is refused before the job runs, with the text of the error in a task."""

from __future__ import annotations

from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.http.api import API
from tests.spark.sources import numbered, publish, stream

from jumpmq import RunningBroker
from jumpmq.spark import JumpMQError, check_rows, plain_errors

PRIORITY = "the column 'priority' is 300, and must be from 0 to 255"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("300 as priority", PRIORITY),
        ("cast('300' as bigint) as priority", PRIORITY),
        ("named_struct('content_type', 'text/plain', 'priority', 200 + 100) as properties", PRIORITY),
        ("-5L as expiration", "the column 'expiration' is -5 milliseconds, and must be not below 0"),
        ("300 as delivery_mode", "the column 'delivery_mode' is 300"),
        ("3 as delivery_mode", "the column 'delivery_mode' is 3, and must be 1 .transient. or 2 .persistent."),
        ("array(1) as priority", "column 'priority' must be of type"),
        ("1 as colour", "column 'colour' cannot be published"),
    ],
)
def test_a_table(spark: SparkSession, columns: str, reason: str) -> None:
    frame = spark.range(3).selectExpr("string(id) as body", columns)
    for one in (frame, frame.where("body <> '1'").select("*").coalesce(1)):
        with pytest.raises(JumpMQError, match=reason):
            check_rows(one)


def test_what_is_no_constant_or_in_range_is_left_to_the_tasks(spark: SparkSession) -> None:
    rows = spark.range(3)
    for columns in (
        "id * 300 as priority",
        "9 as priority",
        "cast(null as int) as priority",
        "60000 as expiration",
        "'m' as type",
    ):
        check_rows(rows.selectExpr("string(id) as body", columns))
    check_rows(rows.selectExpr("string(id) as body").union(rows.selectExpr("'x'")))


def test_a_query_is_refused_as_it_starts_and_takes_nothing(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 20))
    rows = stream(spark, broker, exchange="x").selectExpr("body", "300 as priority")
    writer = rows.writeStream.format("jumpmq").options(url=broker.http_url, queue="q1")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(JumpMQError, match=PRIORITY), plain_errors():
        query.awaitTermination()
    counts = [API(broker.http_url).counts(queue) for queue in ("q1", "q2")]
    assert (sum(ready for ready, _ in counts), [held for _, held in counts]) == (20, [0, 0])
