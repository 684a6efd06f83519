"""A real cluster of processes: pipelines run on it, and what of it is killed loses and repeats nothing."""

import os
import signal

import pika
import pyarrow as pa
import pytest
from tests.http.api import API
from tests.spark.processes import Cluster, Driver
from tests.spark.sources import declare, numbered, publish, table

from jumpmq.spark import Router

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def archived(spark, place):
    return sorted(bytes(row.body) for row in spark.read.parquet(place).select("body").collect())


def test_archive_publish_and_rebalance_run_on_a_cluster(spark, cluster, broker, channel, tmp_path):
    published = publish(channel, numbered(1, 2000))
    channel.exchange_declare("y", "x-consistent-hash", durable=True)
    for queue in ("y1", "y2"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "y", "1")
    place = str(tmp_path / "table")
    with Driver("pipelines", cluster.url, tmp_path, url=broker.http_url, table=place) as driver:
        assert driver.until("archived") == "2000"
        assert driver.until("published") == "2000"
        assert driver.until("done") == "2000"
    assert archived(spark, place) == published
    rows = table(spark, broker, exchange="y").select("queue", "routing_key", "body").collect()
    assert sorted(bytes(row.body) for row in rows) == published
    assert_placed(rows, Router.from_broker(broker.http_url, "y"))
    assert API(broker.http_url).counts("y3")[0] > 300


def assert_placed(rows, router):
    """Each message is in the queue that its key belongs to."""
    keys = pa.array([bytes(row.routing_key) for row in rows], pa.binary())
    assert router.route(keys).to_pylist() == [row.queue for row in rows]


def test_an_executor_that_is_killed_repeats_and_loses_nothing(spark, cluster, broker, channel, tmp_path):
    published = publish(channel, numbered(1, 2000))
    place = str(tmp_path / "table")
    with Driver("archive", cluster.url, tmp_path, url=broker.http_url, table=place, limit=250) as driver:
        driver.until("batch")
        for executor in cluster.executors():
            os.kill(executor, signal.SIGKILL)
        driver.until("done")
    assert archived(spark, place) == published


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(spark, cluster, broker, channel, tmp_path):
    published = publish(channel, numbered(1, 1500))
    place = str(tmp_path / "table")
    arguments = {"url": broker.http_url, "table": place, "limit": 300}
    for word in ("ready", "batch"):
        with Driver("archive", cluster.url, tmp_path, **arguments) as driver:
            driver.until(word)
            driver.kill()
    with Driver("archive", cluster.url, tmp_path, **arguments) as driver:
        driver.until("done")
    assert archived(spark, place) == published
    assert [API(broker.http_url).counts(queue) for queue in ("q1", "q2")] == [(0, 0)] * 2


def test_rebalancing_may_be_killed_at_any_moment(spark, broker, channel, tmp_path):
    channel.confirm_delivery()
    for number in range(1500):
        channel.basic_publish("x", str(number % 50), b"%d" % number, pika.BasicProperties(delivery_mode=2))
    declare(channel, ("q3",))
    arguments = {"url": broker.http_url, "exchange": "x", "queues": "q1,q2,q3", "limit": 300}
    arguments["checkpoint"] = str(tmp_path / "checkpoint")
    for word in ("ready", "batch"):
        with Driver("rebalance", "local[2]", tmp_path, **arguments) as driver:
            driver.until(word)
            driver.kill()
    with Driver("rebalance", "local[2]", tmp_path, **arguments) as driver:
        driver.until("done")
    rows = sorted(table(spark, broker, exchange="x").collect(), key=lambda row: (row.queue, row.seq))
    assert sorted(int(row.body) for row in rows) == list(range(1500))
    assert_placed(rows, Router.from_broker(broker.http_url, "x"))
    for key in range(50):
        mine = [int(row.body) for row in rows if bytes(row.routing_key) == b"%d" % key]
        assert mine == sorted(mine)
