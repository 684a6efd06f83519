"""A data directory restored from a backup older than a query's checkpoint."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.spark.streams.published import Query, bodies

import jumpmq
from jumpmq.spark import JumpMQError

STREAM_OPTIONS = {"queue": "it", "startingOffsets": "earliest"}


def fill(channel: BlockingChannel, queue: str, count: int, *, start: int = 0) -> list[bytes]:
    """Publish numbered persistent messages. They are on disk on return."""
    channel.confirm_delivery()
    published = [b"%04d" % number for number in range(start, start + count)]
    for body in published:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
    return published


class Restorable:
    """A durable broker with backups made while it is stopped."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._directory, self._backup = directory / "broker", directory / "backup"
        self._options = options

    @contextlib.contextmanager
    def running(self, kind: str) -> Iterator[tuple[Any, Any]]:
        """The broker, and a channel with a queue ``it``."""
        with jumpmq.running(data_dir=self._directory, **self._options) as broker:
            connection = pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_url}?heartbeat=0"))
            channel = connection.channel()
            channel.queue_declare("it", durable=True, arguments={"x-queue-type": kind})
            yield broker, channel
            connection.close()

    def back_up(self) -> None:
        shutil.copytree(self._directory, self._backup)

    def restore(self) -> None:
        shutil.rmtree(self._directory)
        shutil.copytree(self._backup, self._directory)


def restored_stream(tmp_path: Path, read: int) -> tuple[Restorable, Query]:
    """A stream restored to 50 messages from a backup, after a query had read ``read`` of 100 messages."""
    place = Restorable(tmp_path)
    with place.running("stream") as (_, channel):
        fill(channel, "it", 50)
    place.back_up()
    with place.running("stream") as (broker, channel):
        fill(channel, "it", 50, start=50)
        query = Query(broker, **STREAM_OPTIONS)
        assert len(query.batch(read)) == read
    place.restore()
    return place, query


def test_a_stream_that_has_grown_again_beyond_the_checkpoint_is_not_read_on(tmp_path: Path) -> None:
    place, query = restored_stream(tmp_path, read=100)
    with place.running("stream") as (broker, channel):
        fill(channel, "it", 60, start=1000)
        with pytest.raises(JumpMQError, match=r"stream 'it' has other messages before offset 100 than .* older backup"):
            Query(broker, query.end, **STREAM_OPTIONS).batch()
        going_on = Query(broker, query.end, failOnDataLoss=False, **STREAM_OPTIONS)
        assert bodies(going_on.batch()) == [b"%04d" % number for number in range(1050, 1060)]
        fill(channel, "it", 5, start=2000)
        again = Query(broker, going_on.end, **STREAM_OPTIONS)
        assert bodies(again.batch()) == [b"%04d" % number for number in range(2000, 2005)]


@pytest.mark.slow
def test_a_stream_that_ends_before_the_checkpoint_is_not_read_on(tmp_path: Path) -> None:
    place, query = restored_stream(tmp_path, read=70)
    with place.running("stream") as (broker, channel):
        with pytest.raises(
            JumpMQError, match=r"stream 'it' ends with offset 49, before the query's next offset 70: .* older backup"
        ):
            Query(broker, query.end, **STREAM_OPTIONS).batch()
        going_on = Query(broker, query.end, failOnDataLoss=False, **STREAM_OPTIONS)
        assert going_on.batch() == []
        assert bodies(going_on.batch()) == []
        published = fill(channel, "it", 5, start=1000)
        assert bodies(going_on.batch()) == published


def test_a_micro_batch_that_is_repeated_is_not_of_other_messages(tmp_path: Path) -> None:
    place, query = restored_stream(tmp_path, read=100)
    with place.running("stream") as (broker, channel):
        fill(channel, "it", 60, start=1000)
        query.at(broker, **STREAM_OPTIONS)
        with pytest.raises(JumpMQError, match="older backup"):
            query.repeated()


def test_a_stream_that_only_was_restarted_is_read_on(tmp_path: Path) -> None:
    place = Restorable(tmp_path)
    with place.running("stream") as (broker, channel):
        fill(channel, "it", 50)
        query = Query(broker, **STREAM_OPTIONS)
        assert len(query.batch(30)) == 30
    place.back_up()
    with place.running("stream"):
        pass
    place.restore()
    with place.running("stream") as (broker, channel):
        published = fill(channel, "it", 10, start=50)
        assert bodies(Query(broker, query.end, **STREAM_OPTIONS).batch())[20:] == published


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_query_has_consumed_does_not_come_again_unsaid(tmp_path: Path, workers: int) -> None:
    place = Restorable(tmp_path, workers=workers)
    with place.running("classic") as (broker, channel):
        fill(channel, "it", 30)
        query = Query(broker, queue="it", lease=1)
        assert len(query.batch(10)) == 10
    place.back_up()
    with place.running("classic") as (broker, _):
        query.at(broker, queue="it", lease=1)
        assert len(query.batch(10)) == 10
    place.restore()
    with place.running("classic") as (broker, channel):
        fill(channel, "it", 30, start=1000)
        with pytest.raises(JumpMQError, match=r"older than .*restored from an older backup.*failOnDataLoss"):
            Query(broker, query.end, queue="it", lease=1).batch()
        time.sleep(1.5)  # its lease
        with pytest.raises(JumpMQError, match="restored from an older backup"):
            Query(broker, query.end, queue="it", lease=1).batch()
        going_on = Query(broker, query.end, failOnDataLoss=False, queue="it", lease=1)
        assert len(going_on.batch()) == 50, "what it had read between the backup and its end comes again"
        published = fill(channel, "it", 5, start=2000)
        assert bodies(Query(broker, going_on.end, queue="it", lease=1).batch()) == published


def test_a_backup_that_is_younger_than_the_checkpoint_is_read_on(tmp_path: Path) -> None:
    place = Restorable(tmp_path)
    with place.running("classic") as (broker, channel):
        fill(channel, "it", 30)
        query = Query(broker, queue="it")
        assert len(query.batch(10)) == 10
    for _ in range(2):
        with place.running("classic"):
            pass
    place.back_up()
    with place.running("classic"):
        pass
    place.restore()
    with place.running("classic") as (broker, _):
        assert len(Query(broker, query.end, queue="it").batch()) == 20
