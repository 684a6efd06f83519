"""Streams as tables: any range, read repeatedly."""

import time
from datetime import UTC, datetime

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.spark.streams.published import SHORT, bodies, fill, rows, source

import jumpmq
from jumpmq.spark import SCHEMA, JumpMQError


def test_the_rows_are_what_was_published_as_often_as_they_are_read(
    broker: jumpmq.RunningBroker, streams: BlockingChannel
) -> None:
    published = fill(streams, "s1", 20) + fill(streams, "s2", 10, start=20)
    for _ in range(2):
        found = rows(broker, queues="s1,s2")
        assert bodies(found) == published
        assert [row["seq"] for row in found] == [*range(20), *range(10)]
        assert {row["redelivered"] for row in found} == {False}
    assert bodies(rows(broker, exchange="x")) == bodies(rows(broker, pattern="s.")) == published


def test_a_stream_is_cut_into_partitions(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    published = fill(streams, "s1", 30)
    assert bodies(rows(broker, queue="s1", maxMessagesPerPartition=4)) == published
    partitions = {
        name: len(source(broker, {"queue": "s1", **options}).reader(SCHEMA).partitions())
        for name, options in {
            "as it is": {},
            "short": {"maxMessagesPerPartition": 4},
            "several": {"minPartitions": 3},
            "in order": {"minPartitions": 3, "keepOrder": True},
        }.items()
    }
    assert partitions == {"as it is": 1, "short": 8, "several": 3, "in order": 1}


def test_places_by_stream(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    published = fill(streams, "s1", 10) + fill(streams, "s2", 10, start=10)
    first = rows(broker, queues="s1,s2", startingOffsets='{"s1": 8}')
    assert bodies(first) == published[8:]
    both = {"startingOffsets": '{"s1": "latest", "s2": 3}', "endingOffsets": '{"s2": 5}'}
    assert bodies(rows(broker, queues="s1,s2", **both)) == published[13:15]
    with pytest.raises(JumpMQError, match="there are offsets for stream 's3', which is not read"):
        rows(broker, queues="s1,s2", startingOffsets='{"s3": 8}')


def test_where_reading_begins_and_ends(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    fill(streams, "s1", 10)
    time.sleep(0.01)
    between = datetime.now(UTC).isoformat()
    fill(streams, "s1", 10, start=10)
    expected = {
        ("earliest", "latest"): [*range(20)],
        ("5", "8"): [5, 6, 7],
        ("15", "latest"): [*range(15, 20)],
        (between, "latest"): [*range(10, 20)],
        ("earliest", between): [*range(10)],
        ("8", between): [8, 9],
        ("latest", "latest"): [],
        ("18", "100"): [18, 19],
    }
    found = {
        (start, end): [int(body) for body in bodies(rows(broker, queue="s1", startingOffsets=start, endingOffsets=end))]
        for start, end in expected
    }
    assert found == expected
    with pytest.raises(JumpMQError, match="begins with offset 50, and its next message has offset 20"):
        rows(broker, queue="s1", startingOffsets="50", endingOffsets="latest")
    with pytest.raises(JumpMQError, match="leave nothing of stream 's1': it would be read from offset 8 to before 5"):
        rows(broker, queue="s1", startingOffsets="8", endingOffsets="5")


def test_what_retention_took_is_an_error_unless_that_is_accepted(
    broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    channel.queue_declare("short", durable=True, arguments=SHORT)
    published = fill(channel, "short", 10, size=800)
    left = len(rows(broker, queue="short"))
    assert 0 < left < 10
    with pytest.raises(JumpMQError, match=r"stream 'short' begins with offset .*failOnDataLoss"):
        rows(broker, queue="short", startingOffsets=0)
    assert bodies(rows(broker, queue="short", startingOffsets=0, failOnDataLoss=False)) == published[-left:]


def test_what_retention_takes_after_planning_is_an_error_unless_that_is_accepted(
    broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    channel.queue_declare("short", durable=True, arguments=SHORT)
    fill(channel, "short", 2, size=800)
    readers = [
        source(broker, {"queue": "short", "failOnDataLoss": accept}).reader(SCHEMA) for accept in ("true", "false")
    ]
    planned = [reader.partitions() for reader in readers]
    fill(channel, "short", 10, size=800)
    with pytest.raises(JumpMQError, match=r"stream 'short' .* has offsets .* not 0 to 1.*failOnDataLoss"):
        list(readers[0].read(planned[0][0]))
    assert list(readers[1].read(planned[1][0])) == []


def test_headers_and_properties_come_through(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    properties = pika.BasicProperties(headers={"a": 1}, message_id="m", delivery_mode=2)
    streams.basic_publish("", "s1", b"body", properties, mandatory=True)
    while not (found := rows(broker, queue="s1")):
        time.sleep(0.01)
    assert (found[0]["headers"], found[0]["properties"]["message_id"], found[0]["routing_key"]) == (
        [("a", "1")], "m", b"s1",
    )  # fmt: skip


def test_streams_and_other_queues_are_one_table(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    fill(streams, "s1", 5)
    streams.queue_declare("q", durable=True)
    fill(streams, "q", 1)
    assert len(rows(broker, queues="s1,q")) == 6
    with pytest.raises(JumpMQError, match="option 'startingOffsets' is for streams, and queue 'q' is of type classic"):
        rows(broker, queues="s1,q", startingOffsets="earliest")


def test_a_place_that_makes_no_sense_is_refused(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    with pytest.raises(JumpMQError, match="'startingOffsets' must be earliest, latest, an offset, or a time"):
        rows(broker, queue="s1", startingOffsets="soon")
