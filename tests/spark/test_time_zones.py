"""Sessions in different time zones read and write the same times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.sources import table

import jumpmq

AT = 1_700_000_000
ZONES = ("America/New_York", "Asia/Tokyo", "UTC")


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    """The session; a test may change its time zone."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_a_time_written_in_one_zone_is_the_same_in_each(
    zoned: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    channel.queue_declare("q", durable=True)
    for zone in ZONES:
        zoned.conf.set("spark.sql.session.timeZone", zone)
        at = zoned.sql(f"SELECT timestamp_seconds({AT}) AS at")
        frame = at.selectExpr("'b' AS body", "at AS timestamp", "map('at', at) AS headers")
        frame.write.format("jumpmq").mode("append").options(url=broker.http_url, queue="q").save()
    for zone in ZONES:
        zoned.conf.set("spark.sql.session.timeZone", zone)
        found = table(zoned, broker, queue="q").selectExpr("unix_timestamp(properties.timestamp)", "headers.at")
        assert found.collect() == [(AT, "2023-11-14T22:13:20+00:00")] * 3
    for _ in ZONES:
        _, properties, _ = channel.basic_get("q", auto_ack=True)
        assert properties.timestamp == AT
        assert properties.headers == {"at": datetime.fromtimestamp(AT, UTC)}


def test_a_stream_is_read_from_a_time_whatever_the_zone(
    zoned: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    """A stream is read from a time independently of the session's zone; a time without a zone is UTC."""
    channel.confirm_delivery()
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "s", b"before", pika.BasicProperties(delivery_mode=2))
    time.sleep(1.1)
    at = datetime.now(UTC).replace(microsecond=0)
    for body in (b"after", b"last"):
        channel.basic_publish("", "s", body, pika.BasicProperties(delivery_mode=2))
    tokyo = at.astimezone(timezone(timedelta(hours=9)))
    for zone in ZONES:
        zoned.conf.set("spark.sql.session.timeZone", zone)
        for text in (f"{at:%Y-%m-%dT%H:%M:%S}", f"{at:%Y-%m-%dT%H:%M:%SZ}", tokyo.isoformat()):
            assert table(zoned, broker, queue="s", startingOffsets=text).count() == 2
            assert table(zoned, broker, queue="s", endingOffsets=text).count() == 1
