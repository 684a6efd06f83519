"""The column `owner_epoch`: a superseded query has lower numbers than its successor, and writes nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.http.api import API
from tests.spark.members import Member, fall_silent
from tests.spark.processes import planners
from tests.spark.sources import Managed, Restartable, declare, numbered, publish, run_available, stream, table
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.ordering.verification import verify
from jumpmq.spark import JumpMQDataSource, JumpMQError, session
from jumpmq.spark.stream import QueueStreamReader

COLUMNS = "routing_key,owner_epoch"
CLAIM = """INSERT INTO accounts VALUES (:key, :epoch)
    ON CONFLICT (account) DO UPDATE SET epoch = excluded.epoch WHERE accounts.epoch <= excluded.epoch"""


class Database:
    """Rows of messages, written with their query's number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE accounts (account TEXT PRIMARY KEY, epoch INTEGER)")
            database.execute("CREATE TABLE deliveries (key TEXT, epoch INTEGER, number INTEGER, consumer TEXT)")

    def write(self, rows: list[Row], query: str) -> int:
        """Write rows whose key no query with a higher number has. Return their number."""
        database, written = sqlite3.connect(self._path, timeout=60), 0
        for row in rows:
            with database:
                said = {"key": bytes(row.routing_key).decode(), "epoch": row.owner_epoch}
                if database.execute(CLAIM, said).rowcount:
                    insert = "INSERT INTO deliveries VALUES (:key, :epoch, 1, :query)"
                    written += database.execute(insert, said | {"query": query}).rowcount
        database.close()
        return written

    def rows(self) -> list[dict[str, Any]]:
        database = sqlite3.connect(self._path)
        database.row_factory = sqlite3.Row
        found = [dict(row) for row in database.execute("SELECT * FROM deliveries ORDER BY rowid")]
        database.close()
        return found


def test_what_a_superseded_query_writes_late_is_refused(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 40))
    database, hangs, wakes = Database(tmp_path / "accounts.db"), threading.Event(), threading.Event()
    late: list[int] = []

    def hang(frame: Any, number: int) -> None:
        rows = frame.collect()
        hangs.set()
        wakes.wait()
        late.append(database.write(rows, "first"))

    def write(frame: Any, number: int) -> None:
        assert database.write(frame.collect(), "second")

    def query(**options: Any) -> Any:
        return stream(spark, broker, exchange="x", group="g", columns=COLUMNS, **options)

    writer = query(lease=1).writeStream.foreachBatch(hang).option("checkpointLocation", str(tmp_path / "first"))
    first = writer.start()
    try:
        hangs.wait()
        for process in planners():
            os.kill(process, signal.SIGSTOP)
        until(lambda: all(one["lapsed"] for one in api.get("readers")))
        (tmp_path / "other").mkdir()
        run_available(query(), tmp_path / "other", write)
        wakes.set()
        until(lambda: late)
    finally:
        wakes.set()
        for process in planners():
            os.kill(process, signal.SIGKILL)
        with pytest.raises(PySparkException):
            first.awaitTermination()
    assert late == [0]
    rows = database.rows()
    assert [row["consumer"] for row in rows] == ["second"] * len(published)
    assert not list(verify(rows))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query with a short wait for other queries."""
    monkeypatch.setattr(session, "TAKEOVER", 0.1)


def reader(broker: Managed, **options: str) -> QueueStreamReader:
    given = {"url": broker.http_url, "lease": "1", "columns": "*,owner_epoch"} | (options or {"exchange": "x"})
    source = JumpMQDataSource(given)
    found = source.streamReader(source.schema())
    assert isinstance(found, QueueStreamReader)
    return found


def epochs(query: QueueStreamReader, start: Any, end: Any) -> dict[str, int]:
    """The epoch of a micro-batch's rows, by queue."""
    batches = [batch for partition in query.partitions(start, end) for batch in query.read(partition)]
    pairs = {pair for batch in batches for pair in zip(*map(batch.column, ("queue", "owner_epoch")), strict=True)}
    found = {queue.as_py(): epoch.as_py() for queue, epoch in pairs}
    assert len(found) == len(pairs) == 2
    return found


def next_batch(query: QueueStreamReader, start: Any) -> tuple[Any, dict[str, int]]:
    """Reserve and read a micro-batch. Return its end and its epochs."""
    end = query.latestOffset(start, ReadMaxRows(10))
    return end, epochs(query, start, end)


def rose(*found: dict[str, int]) -> bool:
    """Return true if the epochs of every queue rise."""
    return all(before[queue] < after[queue] for before, after in pairwise(found) for queue in before)


def test_a_query_keeps_its_number_and_a_restarted_one_gets_a_higher_one(
    broker: RunningBroker, channel: BlockingChannel
) -> None:
    publish(channel, numbered(1, 30))
    query = reader(broker)
    start = query.initialOffset()
    end, first = next_batch(query, start)
    last, kept = next_batch(query, end)
    again = reader(broker)
    repeated = epochs(again, end, last)
    assert first == kept and rose(kept, repeated) and max(repeated.values()) < 1 << 53
    with pytest.raises(JumpMQError, match="which has taken over"):
        query.partitions(end, last)
    for each in (query, again):
        assert each._session is not None
        each._session.stop()


def test_a_query_that_goes_on_after_others_had_the_queues_has_a_higher_number(
    broker: RunningBroker, channel: BlockingChannel, api: API
) -> None:
    publish(channel, numbered(1, 30))
    query = reader(broker)
    end, before = next_batch(query, query.initialOffset())
    fall_silent(query, api)
    member = Member(broker)
    until(lambda: member.has(30))
    between = {unit["queue"]: unit["owner_epoch"] for unit in api.get("consumer-groups", "/")[0]["units"]}
    member.close()
    publish(channel, numbered(31, 40))
    until(lambda: not any(one["consumers"] for one in api.get("queues")))
    accepting = reader(broker, exchange="x", failOnDataLoss="false")
    accepting._session = query._session  # the same session resumes
    assert rose(before, between, next_batch(accepting, end)[1])


def test_numbers_grow_through_restarts_of_the_broker(tmp_path: Path) -> None:
    with Restartable(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
            publish(connection.channel(), numbered(1, 20))
        query = reader(broker, exchange="x", lease="60")
        start = query.initialOffset()
        end = query.latestOffset(start, ReadMaxRows(10))
        before = dict(query._owner_epochs)
        broker.restart()
        assert epochs(query, start, end) == before, "planned by the session that had reserved them"
        assert rose(before, next_batch(query, end)[1])


def test_what_has_no_single_owner_has_no_number(
    spark: SparkSession, broker: RunningBroker, channel: BlockingChannel
) -> None:
    publish(channel, numbered(1, 10))
    channel.queue_declare("clicks", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "clicks", b"")
    schema = "body binary, owner_epoch bigint"
    for options in ({"exchange": "x"}, {"queue": "clicks"}):
        frame = table(spark, broker, columns="body,owner_epoch", **options)
        assert {row.owner_epoch for row in frame.collect()} == {None}
        assert frame.schema.simpleString() == f"struct<{schema.replace(' ', ':').replace(',:', ',')}>"
    assert "owner_epoch" not in table(spark, broker, exchange="x").columns, "tables that exist keep their columns"
    shared = reader(broker, exchange="x", shareQueues="true")
    start = shared.initialOffset()
    assert next_batch(shared, start)[1] == {"q1": None, "q2": None}
    assert shared._session is not None
    shared._session.stop()
