"""A repeated micro-batch has the same partitions, on any number of cores, and after a change of options."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructType
from tests.waiting import until

import jumpmq
from jumpmq import RunningBroker
from jumpmq.spark import SCHEMA, JumpMQDataSource, JumpMQError
from jumpmq.spark.client import Client
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.options import BrokerAddress
from jumpmq.spark.partitions import WORTHWHILE
from jumpmq.spark.sink import BatchWriter, StreamWriter, Written

ROWS = 3 * WORTHWHILE


def fill(broker: jumpmq.RunningBroker, queue: str) -> None:
    schema = StructType().add("queue", StringType()).add("body", BinaryType())
    writer = JumpMQDataSource({"url": broker.http_url}).writer(schema, False)
    assert isinstance(writer, BatchWriter)
    rows = pa.record_batch({"queue": [queue] * ROWS, "body": [b"x"] * ROWS})
    writer._publish(iter([rows]), writer._writer, "0")


def reader(broker: jumpmq.RunningBroker, parallelism: int, **options: str) -> Any:
    source = type("On", (JumpMQDataSource,), {"parallelism": parallelism})
    return source({"url": broker.http_url} | options).streamReader(SCHEMA)


@pytest.mark.parametrize(
    ("kind", "more"), [("classic", {}), ("stream", {"startingOffsets": "earliest"})], ids=["reservations", "offsets"]
)
def test_a_repeated_micro_batch_is_cut_as_it_was(
    broker: RunningBroker, channel: BlockingChannel, kind: str, more: dict[str, str]
) -> None:
    channel.queue_declare("long", durable=True, arguments={"x-queue-type": kind})
    fill(broker, "long")
    first = reader(broker, 2, queue="long", **more)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(ROWS))
    planned = first.partitions(start, end)
    assert len(planned) == 2
    older = {name: value for name, value in end.items() if name != "cut"}
    stop(first)  # the query restarts, with other cores and then other options
    for parallelism, options in ((4, {}), (3, {"maxMessagesPerPartition": "1000"})):
        again = reader(broker, parallelism, queue="long", **options, **more)
        cut = again.partitions(start, end)
        assert ranges(cut) == ranges(planned)
        if not options:
            assert len(again.partitions(start, older)) == 3, "of a checkpoint that does not say"
        stop(again)


def ranges(cut: Sequence[Any]) -> list[dict[str, Any]]:
    """Partitions, without the number of the reading query."""
    return [{name: value for name, value in vars(one).items() if name != "owner_epochs"} for one in cut]


def stop(one: Any) -> None:
    if (session := vars(one).get("_session")) is not None:
        session.stop()


def rows_of(numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(numbers), 5):
        bodies = [b"%d" % number for number in numbers[at : at + 5]]
        yield pa.record_batch({"queue": ["out"] * len(bodies), "body": bodies})


class Attempt:
    """The tasks of a micro-batch of 120 rows, divided evenly into partitions, as run by Spark."""

    def __init__(self, broker: jumpmq.RunningBroker, partitions: int) -> None:
        schema = StructType().add("queue", StringType()).add("body", BinaryType())
        writer = JumpMQDataSource({"url": broker.http_url, "brokerRetrySeconds": "1"}).streamWriter(schema, False)
        assert isinstance(writer, StreamWriter)
        self.writer = writer
        self.writer.chunk_rows = 5
        self._size = 120 // partitions
        self._partitions = partitions

    def task(self, part: int, rows: Iterator[pa.RecordBatch] | None = None) -> Any:
        found = self.rows(part) if rows is None else rows
        return self.writer._publish_once(found, "query-q", 7, str(part), self.writer._attempt)

    def rows(self, part: int) -> Iterator[pa.RecordBatch]:
        return rows_of(range(part * self._size, (part + 1) * self._size))

    def run(self) -> list[BaseException | None]:
        """Run all tasks at once. Return the exception of every task."""
        with ThreadPoolExecutor(self._partitions) as pool:
            return [one.exception() for one in [pool.submit(self.task, part) for part in range(self._partitions)]]


def dying(batches: Iterator[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == after:
            raise RuntimeError("lightning")
        yield batch


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 1)])
def test_a_sink_publishes_nothing_twice_when_a_micro_batch_is_divided_otherwise(
    broker: RunningBroker, channel: BlockingChannel, before: int, after: int
) -> None:
    channel.queue_declare("out", durable=True)
    client = Client(BrokerAddress(broker.http_url))
    first = Attempt(broker, before)
    for part in range(before):
        with pytest.raises(RuntimeError, match="lightning"):
            first.task(part, dying(first.rows(part), 4))
    before_it = client.ranges(None, ["out"])["out"]["messages"]
    assert 0 < before_it < 120
    other = Attempt(broker, after)
    assert any("in other partitions" in str(one) for one in other.run())
    assert client.ranges(None, ["out"])["out"]["messages"] == before_it, "nothing of it is published"
    with pytest.raises(JumpMQError, match="is complete, or another attempt has begun it"):
        late(first)
    again = Attempt(broker, before)
    assert again.run() == [None] * before
    assert sorted(published(client)) == list(range(120))
    again.writer.commit([Written(writer="query-q")], 7)
    assert Attempt(broker, after).run() == [None] * after, "a complete one is passed over, however it is divided"
    assert client.ranges(None, ["out"])["out"]["messages"] == 120


def late(attempt: Attempt) -> None:
    """A task of a superseded attempt continues at its position."""
    place = {"writer": "query-q", "part": "0", "batch": 7, "attempt": attempt.writer._attempt, "queue": "out"}
    known = attempt.writer._client.batch("query-q", 7)["parts"]["0"]
    table = next(rows_of(range(200, 205)))
    chunk = {"first": known["rows"], "rows": known["rows"] + 5, "digest": "x"}
    attempt.writer._client.publish(ipc_stream(table), place | chunk)


def overtaken(rows: Iterator[pa.RecordBatch], at: int, by: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """Rows of a task that is superseded before a batch."""
    for number, batch in enumerate(rows):
        if number == at:
            by()
        yield batch


def published(client: Client) -> list[int]:
    found = list(client.ready([["out", 0, 1000]], ["body"]))
    return [int(body) for batch in found for body in batch["body"].to_pylist()]


@pytest.mark.parametrize("far", [17, 60, 120])
def test_a_task_that_another_attempt_at_it_has_overtaken_goes_on_behind(
    broker: RunningBroker, channel: BlockingChannel, far: int
) -> None:
    """A superseded task continues behind the new attempt, and neither fails, as with speculation."""
    channel.queue_declare("out", durable=True)
    client = Client(BrokerAddress(broker.http_url))
    attempt = Attempt(broker, 1)

    def overtake() -> None:
        attempt.writer.chunk_rows = 7
        attempt.task(0, rows_of(range(far)))
        attempt.writer.chunk_rows = 5

    attempt.task(0, overtaken(rows_of(range(120)), 4, overtake))
    assert published(client) == list(range(120))
    attempt.writer.commit([Written(writer="query-q")], 7)
    schema = StructType().add("queue", StringType()).add("body", BinaryType())
    job = JumpMQDataSource({"url": broker.http_url}).writer(schema, False)
    assert isinstance(job, BatchWriter)
    job.chunk_rows = 5
    job._publish(
        overtaken(rows_of(range(120)), 4, lambda: job._publish(rows_of(range(far)), job._writer, "0")), job._writer, "0"
    )
    assert published(client) == [*range(120), *range(120)]


def test_a_task_that_was_overtaken_with_other_rows_fails(broker: RunningBroker, channel: BlockingChannel) -> None:
    channel.queue_declare("out", durable=True)
    attempt = Attempt(broker, 1)
    others = [*range(20), *range(200, 260)]
    with pytest.raises(JumpMQError, match="with other rows, in another order, or in other partitions"):
        attempt.task(0, overtaken(rows_of(range(120)), 4, lambda: attempt.task(0, rows_of(others))))
    assert published(Client(BrokerAddress(broker.http_url))) == others


def test_a_reader_that_is_gone_asks_nothing_more(tmp_path: Path) -> None:
    """A deleted reader sends no further requests: another server may listen at the broker's port later."""
    with jumpmq.running(data_dir=tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            connection.channel().queue_declare("q", durable=True)
        query = reader(broker, 1, queue="q")
        start = query.initialOffset()
        query.latestOffset(start, ReadMaxRows(1))
        working = [one for one in threading.enumerate() if one.name.endswith(start["group"])]
        assert len(working) == 2
        del query
    until(lambda: not any(one.is_alive() for one in working))
