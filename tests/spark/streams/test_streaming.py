"""Streaming from streams: exactly once by offsets, by any number of queries, across failures."""

import json
from pathlib import Path
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.spark.streams.published import SHORT, STREAM, Query, bodies, fill, read, source

import jumpmq
from jumpmq.management import ManagementClient
from jumpmq.spark import SCHEMA, JumpMQError
from jumpmq.spark.streams.reader import OffsetStreamReader


def test_each_query_reads_everything_and_takes_nothing(
    broker: jumpmq.RunningBroker, streams: BlockingChannel, api: API
) -> None:
    published = fill(streams, "s1", 20) + fill(streams, "s2", 10, start=20)
    queries = [Query(broker, exchange="x", startingOffsets="earliest") for _ in range(2)]
    assert [bodies(query.batch()) for query in queries] == [published] * 2
    assert (api.counts("s1"), api.counts("s2")) == ((20, 0), (10, 0))
    more = fill(streams, "s1", 5, start=30)
    again = Query(broker, queries[0].end, exchange="x", startingOffsets="earliest")
    assert bodies(again.batch()) == more
    assert again.batch() == []


def test_a_limit_bounds_micro_batches_over_all_streams(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    published = fill(streams, "s1", 40) + fill(streams, "s2", 10, start=40)
    query = Query(broker, exchange="x", startingOffsets="earliest", maxMessagesPerPartition=6)
    batches = [query.batch(20) for _ in range(4)]
    assert [len(batch) for batch in batches] == [20, 20, 10, 0]
    assert {row["queue"] for row in batches[0]} == {"s1", "s2"}
    assert sorted(body for batch in batches for body in bodies(batch)) == published


@pytest.mark.parametrize(("start", "expected"), [("latest", 0), ("7", 3), ("earliest", 10), ("2001-01-01", 10)])
def test_where_a_query_begins(
    broker: jumpmq.RunningBroker, streams: BlockingChannel, start: str, expected: int
) -> None:
    published = fill(streams, "s1", 10)
    query = Query(broker, queue="s1", startingOffsets=start)
    assert bodies(query.batch()) == published[10 - expected :]
    more = fill(streams, "s1", 5, start=10)
    assert bodies(query.batch()) == more


def test_a_repeated_batch_has_the_same_rows_whatever_came_since(
    broker: jumpmq.RunningBroker, streams: BlockingChannel
) -> None:
    fill(streams, "s1", 10)
    query = Query(broker, queue="s1", startingOffsets="4")
    first = query.batch()
    fill(streams, "s1", 10, start=10)
    assert query.repeated() == first
    assert len(query.batch()) == 10


def test_the_first_batch_of_all_is_repeated_though_its_beginning_is_in_no_record(
    broker: jumpmq.RunningBroker, streams: BlockingChannel
) -> None:
    """The first micro-batch is repeated after a restart, though Spark logs only its end and requests the start
    again.
    """
    fill(streams, "s1", 10)
    query = Query(broker, queue="s1")
    published = fill(streams, "s1", 5, start=10)
    assert bodies(query.batch()) == published
    reader = source(broker, {"queue": "s1"}).streamReader(SCHEMA)
    (one,) = reader.partitions(reader.initialOffset(), json.loads(query.end))
    assert bodies(read(reader, [one])) == published


def test_a_stream_that_is_bound_later_is_read_from_its_beginning(
    broker: jumpmq.RunningBroker, streams: BlockingChannel
) -> None:
    query = Query(broker, exchange="x", startingOffsets="latest")
    streams.queue_declare("s3", durable=True, arguments=STREAM)
    published = fill(streams, "s3", 5)
    streams.queue_bind("s3", "x", "1")
    assert bodies(query.batch()) == published


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_is_deleted_ends_the_query_unless_that_is_accepted(
    broker: jumpmq.RunningBroker, streams: BlockingChannel, again: bool
) -> None:
    fill(streams, "s1", 5)
    query = Query(broker, queues="s1,s2", startingOffsets="earliest")
    query.batch()
    streams.queue_delete("s1")
    anew = []
    if again:
        streams.queue_declare("s1", durable=True, arguments=STREAM)
        anew = fill(streams, "s1", 9, start=20)
    with pytest.raises(JumpMQError, match=r"stream 's1' was deleted .*failOnDataLoss"):
        query.batch()
    going_on = Query(broker, query.end, queues="s1,s2", failOnDataLoss=False)
    assert bodies(going_on.batch()) == anew
    assert going_on.batch() == []


def test_retention_that_overtook_the_query_ends_it_unless_that_is_accepted(
    broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    channel.queue_declare("short", durable=True, arguments=SHORT)
    fill(channel, "short", 1, size=800)
    query = Query(broker, queue="short", startingOffsets="earliest")
    query.batch()
    published = fill(channel, "short", 20, start=1, size=800)
    with pytest.raises(JumpMQError, match=r"retention has deleted 1 to .*failOnDataLoss"):
        query.batch()
    found = bodies(Query(broker, query.end, queue="short", failOnDataLoss=False).batch())
    assert 0 < len(found) < 20
    assert found == published[-len(found) :]


def test_what_is_published_during_an_available_now_query_is_for_the_next(
    broker: jumpmq.RunningBroker, streams: BlockingChannel
) -> None:
    published = fill(streams, "s1", 10)
    query = Query(broker, exchange="x", startingOffsets="earliest")
    assert isinstance(query._reader, OffsetStreamReader)
    query._reader.prepareForTriggerAvailableNow()
    fill(streams, "s1", 5, start=10)
    assert bodies(query.batch(6)) == published[:6]
    told = query._reader.reportLatestOffset()
    assert told is not None
    assert {"ready": {"s1": 4, "s2": 0}, "rows": {"s1": 6}, "total": 4}.items() <= told.items()
    assert bodies(query.batch()) == published[6:]
    assert query.batch() == []


def test_a_checkpoint_belongs_to_what_it_was_made_for(broker: jumpmq.RunningBroker, streams: BlockingChannel) -> None:
    streams.queue_declare("q", durable=True)
    of_stream, of_queue = Query(broker, queue="s1").end, Query(broker, queue="q").end
    with pytest.raises(JumpMQError, match="checkpoint is of queue 's1' in vhost '/', but the query reads queue 's2'"):
        Query(broker, of_stream, queue="s2").batch()
    with pytest.raises(JumpMQError, match="checkpoint is not of streams of JumpMQ"):
        Query(broker, of_queue, queue="s1").batch()
    with pytest.raises(JumpMQError, match="'s1' is a stream and 'q' is of type classic"):
        Query(broker, queues="q,s1")


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_checkpoint_belongs_to_its_broker(tmp_path: Path, kind: str) -> None:
    """A checkpoint is valid after a restart of the broker, and invalid for an equal queue name of a new broker."""
    with jumpmq.running(data_dir=tmp_path / "one") as broker:
        of_one = declared(broker, kind)
    with jumpmq.running(data_dir=tmp_path / "one") as broker:
        assert Query(broker, of_one, queue="here").batch() == []
    with jumpmq.running(data_dir=tmp_path / "another") as broker:
        declared(broker, kind)
        with pytest.raises(JumpMQError, match="checkpoint is of another broker: give it a checkpoint of its own"):
            Query(broker, of_one, queue="here").batch()


def declared(broker: jumpmq.RunningBroker, kind: str) -> str:
    """The checkpoint's end of a new queue."""
    body = {"durable": True, "arguments": {"x-queue-type": kind}}
    ManagementClient(broker.http_url).put("queues", "/", "here", body=body)
    query = Query(broker, queue="here")
    query.batch()
    return query.end


@pytest.mark.parametrize(
    "option",
    [{"group": "g"}, {"maxBytesPerTrigger": 5}, {"lease": 5}, {"sameEnds": "true"}, {"endingOffsets": "latest"}],
)
def test_options_that_mean_nothing_to_a_query_of_streams_are_refused(
    broker: jumpmq.RunningBroker, streams: BlockingChannel, option: dict[str, Any]
) -> None:
    with pytest.raises(JumpMQError, match=f"option '{next(iter(option))}' is for"):
        Query(broker, queue="s1", **option)
