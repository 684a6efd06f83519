"""A moved message is unchanged: headers keep their types, and only a delivery mode is added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.sources import table

import jumpmq
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties, persistent_unless_said
from jumpmq.spark.pipelines.archive import archive
from jumpmq.spark.pipelines.publish import replay
from jumpmq.spark.pipelines.rebalance import rebalance
from jumpmq.spark.router import Router

HEADERS = [
    Field("number", "b", 5),
    Field("list", "A", [("I", 1), ("S", "two")]),
    Field("octets", "x", b"\xff\x00"),
    Field("x-death", "A", [("F", [Field("count", "l", 2), Field("queue", "S", "q")])]),
]


@pytest.fixture(params=["x-consistent-hash", "x-modulus-hash"])
def published(channel: BlockingChannel, request: pytest.FixtureRequest) -> None:
    """Messages published to an exchange that hashes the numbers in a header."""
    channel.exchange_declare("h", request.param, durable=True, arguments={"hash-header": "number"})
    for queue in ("h1", "h2"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "h", "1")
    channel.confirm_delivery()
    for number in range(20):
        headers = {"number": number, "list": [1, "two"], "x-death": [{"count": 2, "queue": "q"}]}
        sent = pika.BasicProperties(headers=headers, cluster_id="c", delivery_mode=2, timestamp=1357034400)
        channel.basic_publish("h", str(number), b"%d" % number, sent)
    channel.basic_publish("h", "none", b"none")


def octets_of(spark: SparkSession, broker: jumpmq.RunningBroker, **options: Any) -> dict[bytes, set[tuple[str, bytes]]]:
    """Queues and octets of properties, by body."""
    found: dict[bytes, set[tuple[str, bytes]]] = {}
    for row in table(spark, broker, **options).select("queue", "body", "amqp_properties").collect():
        found.setdefault(bytes(row.body), set()).add((row.queue, bytes(row.amqp_properties)))
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_a_rebalance_places_by_the_header_that_is_hashed(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    before = octets_of(spark, broker, exchange="h")
    rebalance(spark, source(broker), Router.from_broker(broker.http_url, "h"), str(tmp_path / "same"))
    assert octets_of(spark, broker, exchange="h") == before, "everything is where it belongs"
    channel.queue_declare("h3", durable=True)
    channel.queue_bind("h3", "h", "1")
    rebalance(spark, source(broker), Router.from_broker(broker.http_url, "h"), str(tmp_path / "three"))
    after = octets_of(spark, broker, exchange="h")
    assert {body: {octets for _, octets in found} for body, found in after.items()} == {
        body: {octets for _, octets in found} for body, found in before.items()
    }
    assert {queue for found in after.values() for queue, _ in found} == {"h1", "h2", "h3"}
    rebalance(spark, source(broker), Router.from_broker(broker.http_url, "h"), str(tmp_path / "again"))
    assert octets_of(spark, broker, exchange="h") == after


def source(broker: jumpmq.RunningBroker) -> dict[str, str]:
    return {"url": broker.http_url, "vhost": "/", "exchange": "h"}


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_an_archive_is_replayed_as_it_was(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    before = octets_of(spark, broker, exchange="h")
    ((queue, octets),) = before[b"none"]
    before[b"none"] = {(queue, persistent_unless_said(octets))}
    archived = str(tmp_path / "archive")
    assert archive(spark, source(broker), archived) == 21
    assert replay(spark, archived, {"url": broker.http_url}) == 21
    assert octets_of(spark, broker, exchange="h") == before


def test_what_was_changed_is_changed_and_the_rest_stays(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    first = Properties(headers=HEADERS, priority=3, cluster_id="c", delivery_mode=1)
    frame = spark.createDataFrame([(b"b", first.encode())], "body binary, amqp_properties binary")
    options = {"url": broker.http_url, "queue": "q1"}
    frame.write.format("jumpmq").mode("append").options(**options).save()
    changed = table(spark, broker, queue="q1").selectExpr(
        *("body", "amqp_properties", "map_concat(map_filter(headers, (k, v) -> k != 'octets'), map('n', 'x')) headers"),
        "named_struct('content_type', 'text/plain', 'content_encoding', properties.content_encoding, "
        "'delivery_mode', 2, 'priority', properties.priority, 'correlation_id', properties.correlation_id, "
        "'reply_to', properties.reply_to, 'expiration', properties.expiration, 'message_id', "
        "properties.message_id, 'timestamp', properties.timestamp, 'type', properties.type, "
        "'user_id', properties.user_id, 'app_id', properties.app_id) properties",
        "'m' message_id",
    )
    changed.write.format("jumpmq").mode("append").options(**options | {"queue": "q2"}).save()
    (row,) = table(spark, broker, queue="q2").collect()
    wanted = Properties(
        content_type="text/plain",
        headers=[*(one for one in HEADERS if one.name != "octets"), Field("n", "S", "x")],
        delivery_mode=2,
        priority=3,
        message_id="m",
        cluster_id="c",
    )
    assert Properties.parse(bytes(row.amqp_properties)) == wanted
