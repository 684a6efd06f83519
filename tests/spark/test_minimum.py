"""A micro-batch that waits for a minimum of messages, as of Kafka's source, without a Spark session."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.http.api import API
from tests.spark.sources import numbered, publish

from jumpmq import RunningBroker
from jumpmq.spark import SCHEMA, JumpMQDataSource

KINDS: dict[str, dict[str, str]] = {"classic": {}, "stream": {"x-queue-type": "stream"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_micro_batch_waits_for_its_minimum_and_the_last_one_is_acknowledged(
    broker: RunningBroker, channel: BlockingChannel, api: API, kind: str
) -> None:
    channel.queue_declare("some", durable=True, arguments=KINDS[kind])
    channel.queue_bind("some", "x", "1")
    channel.queue_unbind("q1", "x", "1")
    channel.queue_unbind("q2", "x", "1")
    options = {"url": broker.http_url, "queue": "some", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    options |= {"startingOffsets": "earliest"} if kind == "stream" else {}
    query: Any = JumpMQDataSource(options).streamReader(SCHEMA)

    def next_batch(start: Any) -> tuple[Any, int]:
        end = query.latestOffset(start, ReadMaxRows(1000))
        return end, sum(len(batch) for part in query.partitions(start, end) for batch in query.read(part))

    publish(channel, numbered(1, 3))
    first, count = next_batch(query.initialOffset())
    assert count == 3, "the first is not held back"
    publish(channel, numbered(4, 12))
    assert next_batch(first) == (first, 0)
    if kind == "classic":
        assert api.counts("some") == (9, 0), "what was processed is acknowledged"
    publish(channel, numbered(13, 13))
    second, count = next_batch(first)
    assert count == 10
    assert next_batch(second) == (second, 0)


def test_a_run_that_reads_what_is_there_waits_for_nothing(broker: RunningBroker, channel: BlockingChannel) -> None:
    published = publish(channel, numbered(1, 30))
    options = {"url": broker.http_url, "exchange": "x", "minMessagesPerTrigger": "20", "maxMessagesPerTrigger": "20"}
    query: Any = JumpMQDataSource(options).streamReader(SCHEMA)
    query.prepareForTriggerAvailableNow()
    start, found = query.initialOffset(), []
    while (end := query.latestOffset(start, ReadMaxRows(20))) != start:
        for part in query.partitions(start, end):
            for batch in query.read(part):
                found += batch.column("body").to_pylist()
        start = end
    assert sorted(found) == published
