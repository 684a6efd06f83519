"""Routing and reports in Spark agree with the broker, for every hashed field."""

import json
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.http.api import API
from tests.spark.sources import table

import jumpmq
from jumpmq.hashing import HashRing
from jumpmq.hashing.chi_squared import critical_value
from jumpmq.spark import JumpMQError, Router, movement, register_route, repartition_by_queue, route, uniformity
from jumpmq.spark.page import buckets_page, movement_page, uniformity_page
from jumpmq.spark.pipelines.tables import bucket_tests

KEYS = 300


@pytest.fixture
def exchanges(channel: BlockingChannel) -> list[str]:
    """Hash exchanges of every kind with separate queues; two have an unbound queue."""
    kinds = {
        "by_key": ("x-consistent-hash", {}),
        "shifting": ("x-consistent-hash", {"ring-removal": "shift"}),
        "by_property": ("x-consistent-hash", {"hash-property": "message_id"}),
        "by_header": ("x-consistent-hash", {"hash-header": "h"}),
        "by_time": ("x-consistent-hash", {"hash-property": "timestamp"}),
        "modulus": ("x-modulus-hash", {}),
        "modulus_by_header": ("x-modulus-hash", {"hash-header": "h"}),
    }
    for name, (kind, arguments) in kinds.items():
        channel.exchange_declare(name, kind, arguments=arguments)
        for number in (1, 2, 3):
            channel.queue_declare(f"{name}-{number}")
            channel.queue_bind(f"{name}-{number}", name, str(number))
        if name in ("by_key", "shifting"):
            channel.queue_unbind(f"{name}-1", name, "1")
    return list(kinds)


def test_every_hash_exchange_decides_as_the_broker_does(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, exchanges: list[str]
) -> None:
    for name in exchanges:
        for number in range(KEYS):
            sent = pika.BasicProperties(message_id=f"m{number}", headers={"h": f"h{number}"}, timestamp=number * 1000)
            channel.basic_publish(name, f"k{number}", b"", sent)
    columns = {"by_property": "properties.message_id", "by_header": "headers['h']", "by_time": "properties.timestamp"}
    columns["modulus_by_header"] = columns["by_header"]
    for name in exchanges:
        router = Router.from_broker(broker.http_url, name)
        frame = table(spark, broker, exchange=name).selectExpr(
            "queue as found", f"{columns.get(name, 'routing_key')} as key"
        )
        routed = route(frame, "key", router)
        assert routed.where("found = queue").count() == KEYS, name
    for name in ("by_header", "modulus_by_header"):
        assert Router.from_broker(broker.http_url, name).source == "header 'h'"


def test_a_router_from_definitions_decides_as_the_exchange_does(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.exchange_declare("m", "x-modulus-hash", durable=True)
    channel.exchange_declare("k", "x-modulus-hash", durable=True, arguments={"hash-function": "murmur2"})
    for queue in ("q2", "q1"):
        channel.queue_bind(queue, "m", "")
    for number in reversed(range(12)):
        channel.queue_declare(f"orders-{number}", exclusive=True)
        channel.queue_bind(f"orders-{number}", "k", "")
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(API(broker.http_url).get("definitions")))
    for name in ("x", "m"):
        made, live = Router.from_definitions(file, name), Router.from_broker(broker.http_url, name)
        assert made.destinations == live.destinations
        assert made.weights == live.weights
    topic = Router.from_broker(broker.http_url, "k")
    assert topic.destinations == tuple(f"orders-{number}" for number in range(12))
    assert topic.route(pa.array(["foobar"])).to_pylist() == [f"orders-{(-790332482 & 0x7FFFFFFF) % 12}"]
    assert topic.changed(remove=["orders-11"], add=["orders-9a"]).destinations[9:] == (
        "orders-9",
        "orders-9a",
        "orders-10",
    )
    followed = API(broker.http_url).get("exchanges", "/", "k", "key", key="foobar", destinations=7)
    assert followed["hash"] == -790332482 & 0x7FFFFFFF
    assert followed["destination"] == f"orders-{followed['hash'] % 12}"
    assert followed["then"]["destination"] == f"orders-{followed['hash'] % 7}"
    for name, reason in {"nothing": "has no exchange 'nothing'", "amq.topic": "has no exchange"}.items():
        with pytest.raises(JumpMQError, match=reason):
            Router.from_definitions(file, name)
    with pytest.raises(JumpMQError, match="which hashes nothing; x-consistent-hash and x-modulus-hash do"):
        Router.from_broker(broker.http_url, "amq.topic")


@pytest.mark.slow
def test_rows_of_a_queue_meet_in_one_partition_and_sql_has_the_function(spark: SparkSession) -> None:
    frame = spark.range(1000).selectExpr("cast(id as string) as key")
    gathered = repartition_by_queue(frame, "key", Router.even(4))
    parts = gathered.selectExpr("queue", "spark_partition_id() as part").distinct().collect()
    assert len({row.queue for row in parts}) == len(parts) == 4
    register_route(spark, "place_of", Router.even(4))
    frame.createOrReplaceTempView("keys")
    assert (
        spark.sql("select count(*) from keys where place_of(key) = 'q1'").collect()[0][0]
        == gathered.where("queue = 'q1'").count()
    )
    with pytest.raises(JumpMQError, match="there is no column 'nothing'; there are key"):
        route(frame, "nothing", Router.even(4))


def test_uniformity_counts_keys_and_messages_and_finds_hot_keys(spark: SparkSession, tmp_path: Path) -> None:
    ring = HashRing()
    for queue, weight in {"a": 1, "b": 3}.items():
        ring.add(queue, weight)
    frame = spark.range(20_000).selectExpr("cast(if(id < 5000, 0, id) as string) as key")
    found = uniformity(frame, "key", ring)
    counts = {row.queue: row["count"] for row in route(frame, "key", ring).groupBy("queue").count().collect()}
    assert {one.queue: one.messages for one in found.shares} == counts
    assert sum(one.keys for one in found.shares) == 15_001
    keys, messages = found.tests
    assert (keys.over, keys.degrees, keys.statistic < keys.critical_01) == ("keys", 1, True)
    assert messages.statistic > messages.critical_01
    assert [(one.key, one.messages) for one in found.hot_keys] == [("0", 5000)]
    assert found.hot_share_of_skew > 0.5
    assert found.frames(spark)["queues"].count() == 2
    page = uniformity_page(found, "Title <1>")
    assert page.startswith("<!doctype html>") and "<svg" in page and "Title &lt;1&gt;" in page
    drawn = page[page.index("<svg") : page.index("</svg>")]
    assert all(f">{one.queue}</text>" in drawn for one in found.shares), "its chart names the queues"
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_movement_is_the_least_there_is(spark: SparkSession) -> None:
    frame = spark.range(50_000).selectExpr("cast(id as string) as key")
    before = Router.even(4)
    found = movement(frame, "key", before, before.changed(add=["q5"]))
    assert found.keys == 50_000
    assert {one.target for one in found.moves} == {"q5"}
    assert found.least == pytest.approx(0.2)
    assert found.moved == pytest.approx(0.2, rel=0.05)
    assert found.frame(spark).count() == 4
    assert "of the keys have to" in movement_page(found, "Movement")
    gone = movement(frame, "key", before, before.changed(remove=["q2"]))
    assert {one.source for one in gone.moves} == {"q2"}
    with pytest.raises(JumpMQError, match="'q9' is not on the ring"):
        before.changed(remove=["q9"])


def test_the_table_of_the_reference_document(spark: SparkSession) -> None:
    tests = bucket_tests(spark, range(2, 21, 6), 100_000)
    assert [one.buckets for one in tests] == [2, 8, 14, 20]
    assert all(one.statistic < one.critical_01 for one in tests)
    assert "chi-squared" in buckets_page({"phash2": tests}, "Buckets")


@pytest.mark.slow
def test_two_million_keys_are_enough_to_tell_the_hash_functions_apart(spark: SparkSession) -> None:
    """Two million keys distinguish the hashes: RabbitMQ's has 2^21 uneven positions, 64-bit hashes have no such
    floor.
    """
    few, many = (bucket_tests(spark, [13], keys)[0] for keys in (100_000, 6_000_000))
    wide = bucket_tests(spark, [13], 6_000_000, "xxh64")[0]
    assert few.p_value > 0.05
    assert many.p_value < 0.01
    assert wide.p_value > 0.05


@pytest.mark.parametrize(
    ("degrees", "p05", "p01"), [(1, 3.841, 6.635), (4, 9.488, 13.277), (10, 18.307, 23.209), (17, 27.587, 33.409)]
)
def test_critical_values(degrees: int, p05: float, p01: float) -> None:
    assert critical_value(0.05, degrees) == pytest.approx(p05, abs=0.001)
    assert critical_value(0.01, degrees) == pytest.approx(p01, abs=0.001)
