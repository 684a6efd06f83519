"""A broker or a stream replaced by a new one of equal name, in the middle of a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest
from tests.spark.streams.published import STREAM, Query, bodies, fill, read, source

import jumpmq
from jumpmq import RunningBroker
from jumpmq.spark import SCHEMA, JumpMQError


def declare(broker: jumpmq.RunningBroker, kind: str) -> Any:
    """A channel of a new connection, with a queue ``it``."""
    channel = pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_url}?heartbeat=0")).channel()
    channel.queue_declare("it", durable=True, arguments={"x-queue-type": kind})
    return channel


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stream", "classic"])
def test_another_broker_at_the_same_place_is_not_read_on(tmp_path: Path, kind: str) -> None:
    with jumpmq.running(data_dir=tmp_path / "one") as broker:
        fill(declare(broker, kind), "it", 20)
        query = Query(broker, queue="it", **({"startingOffsets": "earliest"} if kind == "stream" else {}))
        assert len(query.batch()) == 20
        port, http_port = broker.port, broker.http_port
    with jumpmq.running(data_dir=tmp_path / "other", port=port, http_port=http_port) as broker:
        fill(declare(broker, kind), "it", 40)
        with pytest.raises(JumpMQError, match="another broker answers at http"):
            query.batch()


@pytest.mark.parametrize("kind", ["stream", "classic"])
def test_a_queue_that_is_another_one_after_planning_is_not_read(broker: RunningBroker, kind: str) -> None:
    channel = declare(broker, kind)
    fill(channel, "it", 20)
    reader = source(broker, {"queue": "it"}).reader(SCHEMA)
    planned = reader.partitions()
    channel.queue_delete("it")
    channel.queue_declare("it", durable=True, arguments={"x-queue-type": kind})
    fill(channel, "it", 40, start=100)
    with pytest.raises(JumpMQError, match="'it' in vhost '/': it was deleted and declared again, or has moved"):
        read(reader, planned)


def test_a_broker_that_has_lost_its_data_after_planning_is_not_read(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path / "one") as broker:
        fill(declare(broker, "stream"), "it", 20)
        reader = source(broker, {"queue": "it"}).reader(SCHEMA)
        planned = reader.partitions()
        port, http_port = broker.port, broker.http_port
    with jumpmq.running(data_dir=tmp_path / "other", port=port, http_port=http_port) as broker:
        fill(declare(broker, "stream"), "it", 40)
        with pytest.raises(
            JumpMQError, match="another broker, or to this broker before the loss of its data directory"
        ):
            read(reader, planned)


@pytest.mark.slow
def test_over_amqp_a_stream_that_is_shorter_than_what_was_read_is_another(broker: RunningBroker) -> None:
    channel = declare(broker, "stream")
    fill(channel, "it", 20)
    options = {"url": broker.amqp_url, "queue": "it", "startingOffsets": "earliest"}
    query = Query(broker, **options)
    assert len(query.batch()) == 20
    channel.queue_delete("it")
    channel.queue_declare("it", durable=True, arguments=STREAM)
    published = fill(channel, "it", 5, start=100)
    with pytest.raises(JumpMQError, match="stream 'it' was deleted and declared again"):
        query.batch()
    going_on = Query(broker, query.end, failOnDataLoss=False, **options)
    assert bodies(going_on.batch()) == published


def test_a_query_that_is_to_begin_beyond_the_end_waits_for_that_offset(broker: RunningBroker) -> None:
    channel = declare(broker, "stream")
    fill(channel, "it", 5)
    query = Query(broker, url=broker.amqp_url, queue="it", startingOffsets="8")
    assert query.batch() == []
    published = fill(channel, "it", 5, start=5)
    assert bodies(query.batch()) == published[3:]
