"""Cost of a row published by Spark's sink: processor time of the task and of the broker, without Spark's own.

    python -m benchmarks.spark_write [ROWS [ROUNDS]]

A task of the sink gets record batches as from Spark and runs in this process; no JVM takes part. Persistent rows of 100
octets go to four queues behind a consistent hash exchange, and to a stream: plain rows, and rows with a ``message_id``
and a header. The baseline is the same number of messages published over AMQP, with confirms. All variants take turns; a
figure is the median of all rounds, in microseconds of processor time per row, which depends less on other processes
than elapsed time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.types import MapType, StringType, StructField, StructType

from benchmarks.load.client import Address, Connection
from benchmarks.load.traffic import CHUNK, Confirms, Messages
from benchmarks.spark_read import queues_of
from jumpmq.spark.sink import BatchWriter, SinkOptions
from jumpmq.testing import HOST, JumpMQ

ROWS = 400_000
ROUNDS = 5
SPARK_BATCH = 10_000
"""Rows of a record batch from Spark (``spark.sql.execution.arrow.maxRecordsPerBatch``)."""

WINDOW = 20_000
"""Maximum number of unconfirmed messages over AMQP."""

EXCHANGE, STREAM = "written", "written-stream"

PLAIN = StructType([StructField("routing_key", StringType()), StructField("body", StringType())])
WITH_PROPERTIES = StructType(
    [*PLAIN, StructField("message_id", StringType()), StructField("headers", MapType(StringType(), StringType()))]
)


def batches(rows: int, *, properties: bool) -> list[pa.RecordBatch]:
    """Record batches of the size that Spark passes to a task."""
    return [_batch(range(first, min(first + SPARK_BATCH, rows)), properties) for first in range(0, rows, SPARK_BATCH)]


def _batch(numbers: range, properties: bool) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "routing_key": pa.array([str(number % 100_000) for number in numbers]),
        "body": pa.array([str(number).rjust(100, "x") for number in numbers]),
    }
    if properties:
        columns["message_id"] = pa.array([str(number) for number in numbers])
        headers = [[("tenant", str(number % 1000))] for number in numbers]
        columns["headers"] = pa.array(headers, pa.map_(pa.string(), pa.string()))
    return pa.record_batch(columns)


def by_sink(broker: JumpMQ, given: list[pa.RecordBatch], schema: StructType, target: dict[str, str]) -> None:
    """Publish rows as one task of a job."""
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    writer = BatchWriter(SinkOptions.parse({"url": url} | target), schema)
    written = writer._publish(iter(given), writer._writer, "0")
    assert written.published == sum(map(len, given))
    writer.commit([written])


def by_amqp(broker: JumpMQ, chunks: list[tuple[int, list[bytes]]]) -> None:
    """Publish messages with confirms."""
    connection = Connection(Address(broker.port))
    connection.select_confirms()
    confirms = Confirms(connection)
    for count, parts in chunks:
        while confirms.missing + count > WINDOW:
            confirms.read()
        connection.send_parts(parts)
        confirms.sent += count
    while confirms.missing:
        confirms.read()
    connection.close()


def encoded(broker: JumpMQ, rows: int) -> list[tuple[int, list[bytes]]]:
    """The same number of persistent messages of the same size, encoded as AMQP frames."""
    connection = Connection(Address(broker.port))
    messages = Messages(EXCHANGE, size=100, keys=100_000, persistent=True)
    found = [(count, list(parts)) for count, parts in messages.chunks(0, rows, connection.frame_max, CHUNK)]
    connection.close()
    return found


def declare(port: int) -> None:
    """Declare the exchange with its queues, and the stream."""
    connection = Connection(Address(port))
    connection.declare_exchange(EXCHANGE, "x-consistent-hash")
    for queue in queues_of(EXCHANGE):
        connection.declare_queue(queue)
        connection.bind(queue, EXCHANGE, "1")
    connection.declare_queue(STREAM, "stream")
    connection.close()


def empty(port: int) -> None:
    """Purge the queues, and recreate the stream."""
    connection = Connection(Address(port))
    for queue in queues_of(EXCHANGE):
        connection.purge(queue)
    connection.delete_queue(STREAM)
    connection.declare_queue(STREAM, "stream")
    connection.close()


def measured(broker: JumpMQ, publish: Callable[[], None]) -> tuple[float, float, float]:
    """Elapsed seconds, processor seconds of this process, and of the broker, which was idle before."""
    rest(broker)
    before, own, began = broker.cpu_seconds(), time.process_time(), time.perf_counter()
    publish()
    seconds, own = time.perf_counter() - began, time.process_time() - own
    return seconds, own, broker.cpu_seconds() - before


def rest(broker: JumpMQ) -> None:
    used = -1.0
    while broker.cpu_seconds() - used > 0.02:
        used = broker.cpu_seconds()
        time.sleep(0.2)


def in_turns(
    broker: JumpMQ, ways: dict[str, Callable[[], None]], rounds: int
) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Yield the times of every variant by round, in rotating order, after one warm-up round."""
    titles = list(ways)
    for number in range(-1, rounds):
        first = number % len(titles)
        for title in titles[first:] + titles[:first]:
            empty(broker.port)
            taken = measured(broker, ways[title])
            if number >= 0:
                yield title, taken


def main() -> None:
    """Measure and print every variant."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    plain, rich = batches(rows, properties=False), batches(rows, properties=True)
    with JumpMQ() as broker:
        declare(broker.port)
        chunks = encoded(broker, rows)
        ways = {
            "AMQP, with confirms, four queues": partial(by_amqp, broker, chunks),
            "sink, plain rows, four queues": partial(by_sink, broker, plain, PLAIN, {"exchange": EXCHANGE}),
            "sink, plain rows, a stream": partial(by_sink, broker, plain, PLAIN, {"queue": STREAM}),
            "sink, with header and message_id, four queues": partial(
                by_sink, broker, rich, WITH_PROPERTIES, {"exchange": EXCHANGE}
            ),
            "sink, with header and message_id, a stream": partial(
                by_sink, broker, rich, WITH_PROPERTIES, {"queue": STREAM}
            ),
        }
        taken: dict[str, list[tuple[float, float, float]]] = {title: [] for title in ways}
        for title, found in in_turns(broker, ways, rounds):
            taken[title].append(found)
    print(f"{'microseconds a row':<48} {'broker':>8} {'client':>8} {'rows/s':>10}")
    for title, found_all in taken.items():
        seconds, own, brokers = (statistics.median(values) for values in zip(*found_all, strict=True))
        print(f"{title:<48} {brokers / rows * 1e6:>8.2f} {own / rows * 1e6:>8.2f} {rows / seconds:>10,.0f}")


if __name__ == "__main__":
    main()
