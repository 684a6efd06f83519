"""Streaming from queues: every message exactly once, across failures."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.http.api import API
from tests.spark.sources import Sink, declare, numbered, publish, run_available, stream

import jumpmq


def test_available_now_writes_what_was_published_and_leaves_nothing(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 200))
    query = (
        stream(spark, broker, exchange="x")
        .writeStream.format("parquet")
        .partitionBy("queue")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("queue", "seq").collect()
    assert sorted(bytes(row.body) for row in rows) == published
    for queue in ("q1", "q2"):
        mine = [row for row in rows if row.queue == queue]
        assert [row.seq for row in mine] == list(range(1, len(mine) + 1))
        assert [row.body for row in mine] == sorted(row.body for row in mine)
        assert api.counts(queue) == (0, 0)


def test_a_limit_bounds_micro_batches(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 50))
    sink = Sink()
    query = run_available(stream(spark, broker, exchange="x", maxMessagesPerTrigger=20), tmp_path, sink)
    assert sink.bodies == published
    sizes = [len(rows) for rows in sink.batches.values()]
    assert max(sizes) == 20
    assert sum(sizes) == 50
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == sizes
    assert api.counts("q1") == api.counts("q2") == (0, 0)


def test_available_now_leaves_what_comes_later_to_the_next_run(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    first = publish(channel, numbered(1, 20))
    sink = Sink()

    def publish_more(frame: DataFrame, number: int) -> None:
        sink(frame, number)
        if number == 0:
            publish(channel, numbered(21, 30))

    run_available(stream(spark, broker, exchange="x", maxMessagesPerTrigger=8), tmp_path, publish_more)
    assert sink.bodies == first
    assert sum(api.counts("q1") + api.counts("q2")) == 10
    run_available(stream(spark, broker, exchange="x"), tmp_path, sink)
    assert sink.bodies == numbered(1, 30)


def test_empty_queues_make_no_micro_batch_but_the_first_that_spark_always_makes(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    sink = Sink()
    for _ in range(2):
        run_available(stream(spark, broker, exchange="x"), tmp_path, sink)
        assert sink.batches == {0: []}


def test_continuous_micro_batches_and_a_queue_bound_while_it_runs(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 10))
    sink = Sink()
    query = (
        stream(spark, broker, exchange="x")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        assert sink.bodies == published
        declare(channel, ["q3"])
        published += publish(channel, numbered(11, 60))
        query.processAllAvailable()
        assert sink.bodies == published
        assert {row.queue for row in sink.rows} == {"q1", "q2", "q3"}
        assert [api.counts(queue) for queue in ("q1", "q2", "q3")] == [(0, 0)] * 3
    finally:
        query.stop()


@pytest.mark.slow
@pytest.mark.parametrize("collected", [True, False], ids=["after the batch was written", "before it was"])
def test_a_query_that_dies_in_a_micro_batch_repeats_it_with_the_same_rows(
    spark: SparkSession,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    api: API,
    tmp_path: Path,
    collected: bool,
) -> None:
    publish(channel, numbered(1, 60))
    frame = stream(spark, broker, exchange="x", maxMessagesPerTrigger=20)
    sink = Sink()

    def die(frame: DataFrame, number: int) -> None:
        if collected or number != 1:
            sink(frame, number)
        if number == 1:
            raise RuntimeError("lightning")

    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(frame, tmp_path, die)
    once = dict(sink.batches)
    publish(channel, numbered(61, 70))
    run_available(frame, tmp_path, sink)
    assert sink.bodies == numbered(1, 70)
    for number, rows in once.items():
        assert sorted(sink.batches[number]) == sorted(rows)
    assert api.counts("q1") == api.counts("q2") == (0, 0)


def test_a_query_stopped_anywhere_and_restarted_reads_every_message_once(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 100))
    sink = Sink()
    for _ in range(3):
        query = (
            stream(spark, broker, exchange="x", maxMessagesPerTrigger=10)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        reached = len(sink.batches) + 2
        while len(sink.batches) < reached and query.isActive:
            time.sleep(0.01)
        query.stop()
    run_available(stream(spark, broker, exchange="x", maxMessagesPerTrigger=10), tmp_path, sink)
    assert sink.bodies == published
    assert api.counts("q1") == api.counts("q2") == (0, 0)


def test_a_retried_task_sees_the_same_rows(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 40))
    attempts = str(tmp_path / "attempts")

    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Note the task's rows, and fail at the first attempt."""
        import uuid
        from pathlib import Path

        from pyspark import TaskContext

        batches = list(batches)
        context = TaskContext.get()
        assert context is not None
        place = Path(attempts, str(context.partitionId()))
        place.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(place / uuid.uuid4().hex), "wb") as file, pa.ipc.new_stream(file, batches[0].schema) as out:
            for batch in batches:
                out.write(batch)
        if len(list(place.iterdir())) == 1:
            raise RuntimeError("the first attempt fails")
        return iter(batches)

    frame = stream(spark, broker, exchange="x")
    sink = Sink()
    run_available(frame.mapInArrow(fail_once, frame.schema), tmp_path, sink)
    assert sink.bodies == published
    for place in (tmp_path / "attempts").iterdir():
        first, second = [pa.ipc.open_stream(pa.OSFile(str(file))).read_all() for file in place.iterdir()]
        assert first.equals(second)


def test_a_micro_batch_may_take_longer_than_the_lease(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 10))
    sink, seen = Sink(), []

    def dawdle(frame: DataFrame, number: int) -> None:
        sink(frame, number)
        time.sleep(1.5)
        seen.append([api.counts(queue)[0] for queue in ("q1", "q2")])

    run_available(stream(spark, broker, exchange="x", lease=1), tmp_path, dawdle)
    assert sink.bodies == published
    assert seen == [[0, 0]], "nothing went back to the queues"


def test_what_a_silent_query_holds_goes_back_and_its_batch_cannot_be_repeated_once_consumed(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 20))

    def die(frame: DataFrame, number: int) -> None:
        raise RuntimeError("lightning")

    frame = stream(spark, broker, exchange="x", lease=1)
    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(frame, tmp_path, die)
    while api.counts("q1")[1]:
        time.sleep(0.05)
    assert channel.basic_get("q1", auto_ack=True)[0].redelivered
    with pytest.raises(StreamingQueryException, match="has lapsed, and messages of it have left the queue"):
        run_available(frame, tmp_path, Sink())


def test_a_named_group_goes_on_with_a_new_checkpoint(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """Reserved and unfinished messages of the lost checkpoint's query are in the first new micro-batch."""
    publish(channel, numbered(1, 20))
    frame = stream(spark, broker, exchange="x", group="g", maxMessagesPerTrigger=10)
    sink = Sink()

    def die_in_the_second(frame: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("lightning")
        sink(frame, number)

    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(frame, tmp_path / "lost", die_in_the_second)
    rest = Sink()
    run_available(frame, tmp_path / "new", rest)
    assert sorted(sink.bodies + rest.bodies) == numbered(1, 20)


def test_a_checkpoint_belongs_to_its_group(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 4))
    run_available(stream(spark, broker, exchange="x", group="one"), tmp_path, Sink())
    with pytest.raises(PySparkException, match="checkpoint belongs to group 'one', but option 'group' is 'other'"):
        run_available(stream(spark, broker, exchange="x", group="other"), tmp_path, Sink())


def test_a_checkpoint_belongs_to_what_it_was_made_for(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 4))
    run_available(stream(spark, broker, exchange="x"), tmp_path, Sink())
    with pytest.raises(PySparkException, match="checkpoint is of exchange 'x' in vhost '/', but the query reads queue"):
        run_available(stream(spark, broker, queue="q1"), tmp_path, Sink())


def test_a_checkpoint_of_another_source_is_told(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    run_available(spark.readStream.format("rate").load(), tmp_path, Sink())
    with pytest.raises(
        PySparkException, match="checkpoint is not of queues of JumpMQ: give it a checkpoint of its own"
    ):
        run_available(stream(spark, broker, exchange="x"), tmp_path, Sink())


@pytest.mark.slow
def test_a_stream_joined_with_itself_is_refused_with_what_to_do(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A stream joined with itself is refused: its sources would divide the messages, and no row would find its
    partner.
    """
    publish(channel, numbered(1, 20))
    frame = stream(spark, broker, exchange="x").select("body")
    with pytest.raises(StreamingQueryException, match=r"is read by .*, to one source of a query, .*shareQueues"):
        run_available(frame.join(frame, "body"), tmp_path / "refused", Sink())
    more = publish(channel, numbered(21, 40))  # the earlier messages are reserved for the failed query's lease
    one, other = (stream(spark, broker, exchange="x", shareQueues=True).select("body") for _ in range(2))
    sink = Sink()
    run_available(one.unionAll(other), tmp_path / "shared", sink)
    assert sink.bodies == more


def test_octets_bound_micro_batches(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 50))
    sink = Sink()
    run_available(stream(spark, broker, exchange="x", maxBytesPerTrigger=120), tmp_path, sink)
    assert sink.bodies == published
    assert max(len(rows) for rows in sink.batches.values()) == 30
