"""Queues into a Parquet table by a streaming query, next to the same rows from a Python source without a broker.

    python -m benchmarks.spark_parquet [ROWS [ROUNDS]]

Persistent messages of 100 octets in four queues become rows of queue, key and body. Python sources read equal rows from
Arrow files, make them in memory (a lower bound of Spark's cost), or read them from a bare server, which sends files
from its memory (a lower bound with rows of another process). Then rows are published: plain rows, and rows with a
header and a ``message_id``. The broker is idle when a query begins, as with a backlog: within some seconds it writes
messages without a waiting publisher, and pages out the messages of queues. Both belong to publishing, and took 0.3 to
0.5 microseconds per row in queries that began at once. All queries take turns, as in ``benchmarks.spark_read``; a ratio
is of processor time of all processes, and of elapsed time.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.load.client import Address, Connection
from benchmarks.load.traffic import Messages
from benchmarks.spark_read import COLUMNS, Taken, Way, declare, in_turns, local_spark, queues_of
from benchmarks.spark_sources import ArrowFiles, BareServer, InMemory, arrow_files, bare_server
from jumpmq.testing import HOST, BrokerProcess, JumpMQ

ROWS = 500_000
ROUNDS = 3
SETTLED = 6.0
"""Seconds until published messages are on disk and paged out: the broker checks for idle queues twice meanwhile."""
STREAM, FILES = "queues into Parquet", "Arrow files into Parquet"
MEMORY, SERVER = "rows made in memory into Parquet", "rows of a bare server into Parquet"
PLAIN, RICH = "published, plain", "published, with header and message_id"


def publish(port: int, count: int, exchange: str) -> None:
    """Publish persistent messages. They are in the queues on return."""
    connection = Connection(Address(port))
    messages = Messages(exchange, size=100, keys=100_000, persistent=True)
    for _, parts in messages.chunks(0, count, connection.frame_max, 500):
        connection.send_parts(parts)
    connection.count(queues_of(exchange)[0])
    connection.close()
    time.sleep(SETTLED)


def into_parquet(frame: DataFrame) -> None:
    """Write the rows of a stream into a new table."""
    with tempfile.TemporaryDirectory() as directory:
        writer = frame.writeStream.format("parquet").option("path", f"{directory}/table")
        writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()


def empty(port: int, exchange: str) -> None:
    """Purge the queues."""
    connection = Connection(Address(port))
    for queue in queues_of(exchange):
        connection.purge(queue)
    connection.close()


def rows(spark: SparkSession, count: int, *more: str) -> DataFrame:
    """Rows to publish."""
    columns = ("cast(id % 100000 as string) as routing_key", "lpad(cast(id as string), 100, 'x') as body")
    return spark.range(count, numPartitions=2).selectExpr(*columns, *more)


def ways(spark: SparkSession, broker: BrokerProcess, files: str, port: int, count: int) -> dict[str, Way]:
    """The measured queries, by title."""
    for exchange in ("read", "written"):
        declare(broker.port, exchange)
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    for source in (ArrowFiles, InMemory, BareServer):
        spark.dataSource.register(source)
    queues = spark.readStream.format("jumpmq").option("url", url).option("exchange", "read").schema(COLUMNS)
    bare = spark.readStream.format("arrow_files").option("files", files).option("times", 1)
    made = spark.readStream.format("in_memory").option("rows", count)
    served = spark.readStream.format("bare_server").option("port", port)
    plain = rows(spark, count)
    rich = rows(spark, count, "cast(id as string) as message_id", "map('tenant', cast(id % 1000 as string)) as headers")

    def write(frame: DataFrame) -> None:
        frame.write.format("jumpmq").mode("append").option("url", url).option("exchange", "written").save()

    prepare = partial(empty, broker.port, "written")
    return {
        STREAM: Way(count, lambda: into_parquet(queues.load()), partial(publish, broker.port, count, "read")),
        FILES: Way(count, lambda: into_parquet(bare.load())),
        MEMORY: Way(count, lambda: into_parquet(made.load())),
        SERVER: Way(count, lambda: into_parquet(served.load())),
        PLAIN: Way(count, lambda: write(plain), prepare),
        RICH: Way(count, lambda: write(rich), prepare),
    }


def main() -> None:
    """Measure and print every query."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(JumpMQ())
        files = stack.enter_context(arrow_files(count))
        port = stack.enter_context(bare_server(files))  # forked before this process has sockets of Spark
        spark = stack.enter_context(local_spark())
        taken = in_turns(ways(spark, broker, files, port, count), rounds, broker)
    print(f"{'microseconds of processor time a row':<40} {'all':>8} {'broker':>8} {'rows/s':>10}")
    for title, found in taken.items():
        seconds, processor, brokers = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"{title:<40} {processor / count * 1e6:>8.2f} {brokers / count * 1e6:>8.2f} {count / seconds:>10,.0f}")

    def ratio(field: str, beside: str) -> float:
        pairs = zip(taken[STREAM], taken[beside], strict=True)
        return statistics.median(getattr(ours, field) / getattr(bare, field) for ours, bare in pairs)

    assert Taken._fields[:2] == ("seconds", "processor")
    for beside in (FILES, MEMORY, SERVER):
        processor, seconds = ratio("processor", beside), ratio("seconds", beside)
        print(f"{STREAM}: {processor:.2f}x the processor time of {beside}, {seconds:.2f}x the time")


if __name__ == "__main__":
    main()
