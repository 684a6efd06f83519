"""A Spark session with JumpMQ: its configuration, the format without `register`, the table function."""

from __future__ import annotations

import threading
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.sources import Restartable, Sink, declare, numbered, publish, run_available, stream

import jumpmq.spark
from jumpmq.spark import JumpMQError
from jumpmq.spark.client import Client
from jumpmq.spark.options import BrokerAddress
from jumpmq.spark.source import URL_VARIABLE, JumpMQDataSource
from jumpmq.testing import free_ports


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session without registrations."""
    return spark.newSession()


def test_spark_finds_the_format_by_itself(
    session: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    published = publish(channel, numbered(1, 10))
    given = f"OPTIONS (url '{broker.http_url}', exchange 'x')"
    session.sql(f"CREATE TEMPORARY VIEW waiting USING jumpmq {given}")
    assert session.sql("SELECT count(*) FROM waiting").collect()[0][0] == len(published)


def test_the_sessions_configuration_has_the_broker(
    session: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 10))
    url = tmp_path / "url"
    url.write_text(broker.http_url)
    session.conf.set("spark.jumpmq.url", url.as_uri())
    jumpmq.spark.register(session)
    assert session.read.format("jumpmq").option("exchange", "x").load().count() == len(published)
    rows = session.sql("SELECT queue, seq, string(body) AS body, headers FROM jumpmq_queue('q1,q2')").collect()
    assert sorted(row.body.encode() for row in rows) == published
    named = "jumpmq_queue(queues => 'q1', url => 'http://127.0.0.1:1')"
    with pytest.raises(PySparkException, match=r"nothing listens at http://127\.0\.0\.1:1"):
        session.sql(f"SELECT * FROM {named}").collect()
    with pytest.raises(PySparkException, match="jumpmq_queue takes text as 'queues', not null: names of queues"):
        session.sql("SELECT * FROM jumpmq_queue()").collect()


def test_a_query_with_a_url_of_its_own_has_nothing_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JumpMQDataSource, "session", {"url": "http://one", "vhost": "theirs"})
    assert JumpMQDataSource({"queue": "q"}).given == {"url": "http://one", "vhost": "theirs", "queue": "q"}
    assert JumpMQDataSource({"URL": "http://two", "queue": "q"}).given == {"URL": "http://two", "queue": "q"}
    monkeypatch.setattr(JumpMQDataSource, "session", {})
    monkeypatch.setenv(URL_VARIABLE, "http://three")
    assert JumpMQDataSource({"queue": "q"}).given == {"url": "http://three", "queue": "q"}


def test_the_next_of_several_urls_is_asked_where_one_is_away(
    broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    dead = f"http://guest:guest@127.0.0.1:{free_ports(1)[0]}"
    client = Client(BrokerAddress(f"{dead},{broker.http_url}"))
    assert client.ranges(None, ["q1"]).keys() == {"q1"}
    with pytest.raises(JumpMQError, match="nothing listens at"):
        Client(BrokerAddress(f"{dead},{dead}")).ranges(None, ["q1"])


@pytest.mark.parametrize("checkpoint_known", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_query_that_starts_while_the_broker_is_away_waits_if_it_has_a_checkpoint(
    spark: SparkSession, tmp_path: Path, checkpoint_known: bool
) -> None:
    sink = Sink()
    options = {"checkpointLocation": str(tmp_path / "checkpoint")} if checkpoint_known else {}
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
            published = publish(connection.channel(), numbered(1, 20))
        run_available(stream(spark, broker, exchange="x", **options), tmp_path, sink)
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            published += publish(connection.channel(), numbered(21, 40))
        broker.stop()
        back = threading.Timer(1, broker.restart)
        back.start()
        run_available(stream(spark, broker, exchange="x", **options), tmp_path, sink)
        back.join()
    assert sink.bodies == published


def test_a_new_query_does_not_wait_for_a_broker_that_never_answered(spark: SparkSession, tmp_path: Path) -> None:
    url = f"http://guest:guest@127.0.0.1:{free_ports(1)[0]}"
    frame = spark.readStream.format("jumpmq").option("url", url).option("queue", "q").load()
    with pytest.raises(PySparkException, match="nothing listens at"):
        run_available(frame, tmp_path, Sink())
