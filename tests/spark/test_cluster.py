"""Pipelines on a cluster of processes: killed processes lose and repeat no message."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import Row, SparkSession
from tests.http.api import API
from tests.spark.processes import SPECULATIVE, Cluster, Driver, Drivers
from tests.spark.sources import declare, numbered, publish, table

import jumpmq
from jumpmq.spark import Router
from jumpmq.spark.client import Client
from jumpmq.spark.options import BrokerAddress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def drivers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with Drivers(cluster.url, tmp_path_factory.mktemp("drivers")) as started:
        yield started


def archived(spark: SparkSession, place: str) -> list[bytes]:
    return sorted(bytes(row.body) for row in spark.read.parquet(place).select("body").collect())


def test_a_task_that_runs_twice_at_once_publishes_once(
    cluster: Cluster, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """Two concurrent attempts at a task publish once, and neither fails.

    This test precedes the tests whose drivers keep the cluster's cores.
    """
    channel.queue_declare("out", durable=True)
    driver = Driver(cluster.url, tmp_path, SPECULATIVE | {"spark.task.maxFailures": "1"})
    try:
        driver.begin("dawdling", url=broker.http_url, queue="out", marks=str(tmp_path), rows=120_000)
        driver.until("done")
    finally:
        driver.kill()
    for kind in ("table", "stream"):
        assert (tmp_path / f"{kind}-0-0").exists() and (tmp_path / f"{kind}-0-1").exists()
    rows = Client(BrokerAddress(broker.http_url)).ready([["out", 0, 1_000_000]], ["body"])
    found = Counter(int(body) for batch in rows for body in batch["body"].to_pylist())
    assert found == dict.fromkeys(range(120_000), 2)


def test_archive_publish_and_rebalance_run_on_a_cluster(
    spark: SparkSession, drivers: Drivers, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 2000))
    channel.exchange_declare("y", "x-consistent-hash", durable=True)
    for queue in ("y1", "y2"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "y", "1")
    place = str(tmp_path / "table")
    driver = drivers.living()
    driver.begin("pipelines", url=broker.http_url, table=place)
    assert driver.until("archived") == "2000"
    assert driver.until("published") == "2000"
    assert driver.until("done") == "2000"
    assert archived(spark, place) == published
    rows = table(spark, broker, exchange="y").select("queue", "routing_key", "body").collect()
    assert sorted(bytes(row.body) for row in rows) == published
    assert_placed(rows, Router.from_broker(broker.http_url, "y"))
    assert API(broker.http_url).counts("y3")[0] > 300


def assert_placed(rows: list[Row], router: Router) -> None:
    """Every message is in the queue of its key."""
    keys = pa.array([bytes(row.routing_key) for row in rows], pa.binary())
    assert router.route(keys).to_pylist() == [row.queue for row in rows]


def test_an_executor_that_is_killed_repeats_and_loses_nothing(
    spark: SparkSession,
    cluster: Cluster,
    drivers: Drivers,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    tmp_path: Path,
) -> None:
    published = publish(channel, numbered(1, 2000))
    place = str(tmp_path / "table")
    driver = drivers.living()
    driver.begin("archive", url=broker.http_url, table=place, limit=500)
    driver.until("batch")
    executors = cluster.executors()
    assert len(executors) == 2
    for executor in executors:
        os.kill(executor, signal.SIGKILL)
    driver.until("done")
    assert archived(spark, place) == published


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    spark: SparkSession, drivers: Drivers, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 1500))
    place = str(tmp_path / "table")
    for word in ("batch", "done"):
        driver = drivers.living()
        driver.begin("archive", url=broker.http_url, table=place, limit=300)
        driver.until(word)
        if word == "batch":
            driver.kill()
    assert archived(spark, place) == published
    assert [API(broker.http_url).counts(queue) for queue in ("q1", "q2")] == [(0, 0)] * 2


def test_rebalancing_may_be_killed_at_any_moment(
    spark: SparkSession, drivers: Drivers, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.confirm_delivery()
    for number in range(1500):
        channel.basic_publish("x", str(number % 50), b"%d" % number, pika.BasicProperties(delivery_mode=2))
    declare(channel, ("q3",))
    arguments = {"url": broker.http_url, "exchange": "x", "queues": "q1,q2,q3", "limit": 300}
    arguments["checkpoint"] = str(tmp_path / "checkpoint")
    for word in ("batch", "done"):
        driver = drivers.living()
        driver.begin("rebalance", **arguments)
        driver.until(word)
        if word == "batch":
            driver.kill()
    rows = sorted(table(spark, broker, exchange="x").collect(), key=lambda row: (row.queue, row.seq))
    assert sorted(int(row.body) for row in rows) == list(range(1500))
    assert_placed(rows, Router.from_broker(broker.http_url, "x"))
    for key in range(50):
        mine = [int(row.body) for row in rows if bytes(row.routing_key) == b"%d" % key]
        assert mine == sorted(mine)


def test_a_driver_killed_between_delta_s_commit_and_spark_s_repeats_nothing(
    drivers: Drivers, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    published = publish(channel, numbered(1, 500))
    place = str(tmp_path / "table")
    driver = drivers.living()
    driver.begin("delta", url=broker.http_url, table=place, limit=200)
    assert driver.wait() == -9
    assert Path(f"{place}.killed").exists()
    before = deltalake.DeltaTable(place)
    assert (before.transaction_version("archive"), before.count()) == (1, 400)
    driver = drivers.living()
    driver.begin("delta", url=broker.http_url, table=place, limit=200)
    driver.until("done")
    table = deltalake.DeltaTable(place).to_pyarrow_table(columns=["body", "queue"])
    assert sorted(table["body"].to_pylist()) == published
    assert set(table["queue"].to_pylist()) == {"q1", "q2"}
