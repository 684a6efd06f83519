"""Writing to a broker of several processes: every row once, at any home, across kills of processes."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.processes import processes
from tests.waiting import until

import jumpmq
from jumpmq.spark.client import Client
from jumpmq.spark.options import BrokerAddress

QUEUES = [f"q{number}" for number in range(4)]
ROWS = 60_000
KILLS = 5
"""The broker ends after six early ends of a process."""
WORKER = b"jumpmq.nodes.processes.worker"
"""Part of the command of a broker's process."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[jumpmq.RunningBroker]:
    """A durable broker of two processes, with a hash exchange ``x`` over queues of both."""
    with jumpmq.running(data_dir=tmp_path / "broker", workers=2) as running:
        for queue in QUEUES:  # a connection per queue, to spread them over both processes
            with pika.BlockingConnection(pika.URLParameters(running.amqp_url)) as connection:
                channel = connection.channel()
                channel.exchange_declare("x", "x-consistent-hash", durable=True)
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "x", "1")
        yield running


def contents(broker: jumpmq.RunningBroker) -> tuple[list[int], list[int]]:
    """Numbers in the queues, and the size of every queue."""
    client = Client(BrokerAddress(broker.http_url), met=True)
    counts: list[int] = []
    numbers: list[int] = []
    for queue in QUEUES:
        before = len(numbers)
        for batch in client.ready([[queue, None, None]], ["body"]):
            numbers += map(int, batch.column("body").to_pylist())
        counts.append(len(numbers) - before)
    return sorted(numbers), counts


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).select(
        (f.col("id") % 1000).cast("string").alias("routing_key"), f.col("id").cast("string").alias("body")
    )


@pytest.mark.slow
def test_a_table_reaches_the_queues_of_all_processes(spark: SparkSession, broker: jumpmq.RunningBroker) -> None:
    rows(spark, 5000).write.format("jumpmq").mode("append").options(url=broker.http_url, exchange="x").save()
    numbers, counts = contents(broker)
    assert numbers == list(range(5000))
    assert all(counts)


@pytest.mark.slow
def test_micro_batches_are_there_once_through_kills_of_processes(
    spark: SparkSession, broker: jumpmq.RunningBroker, tmp_path: Path
) -> None:
    ended = threading.Event()
    killer = threading.Thread(target=kill_now_and_then, args=(ended,), daemon=True)
    directory = tmp_path / "rows"
    for part in range(12):
        rows(spark, ROWS).where(f.col("body").cast("long") % 12 == part).write.mode("append").parquet(str(directory))
    stream = spark.readStream.schema("routing_key string, body string").option("maxFilesPerTrigger", 2)
    query = (
        stream.parquet(str(directory))
        .writeStream.format("jumpmq")
        .options(url=broker.http_url, exchange="x", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    killer.start()
    try:
        while not ends(query, killer):
            time.sleep(1)
    finally:
        ended.set()
        killer.join()
    until(lambda: len(contents(broker)[0]) >= ROWS)  # rows kept for a killed process arrive
    assert contents(broker)[0] == list(range(ROWS))


def ends(query: DataStreamWriter, killer: threading.Thread) -> bool:
    """Return true if a query ends well; restart it if the broker was down at a begin or end of a micro-batch."""
    killing = killer.is_alive()
    try:
        query.start().awaitTermination()
    except StreamingQueryException:
        if not killing:
            raise
        return False
    return True


def kill_now_and_then(ended: threading.Event) -> None:
    """Kill a process every few seconds, for a limited time."""
    choose = random.Random(2)
    for _ in range(KILLS):
        if ended.wait(choose.uniform(3, 8)):
            break
        ours = [pid for pid, parent, command in processes() if parent == os.getpid() and WORKER in command]
        os.kill(choose.choice(ours), signal.SIGKILL)
