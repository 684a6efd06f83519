"""Speed of PySpark reading queues and writing to an exchange: by the format `jumpmq`, and by pika.

    python -m benchmarks.spark_read [MESSAGES [ROUNDS]]

One broker process, four queues behind a consistent hash exchange, bodies of 100 octets, Spark on two local cores. Every
query has the same sink (`noop`), which consumes queue, routing key and body of every row. The stream and pika also
consume the messages. The figures include the start of a query, but not publishing and the start of the session.

Java compiles frequent code, and the load of a machine varies. Hence the queries take turns, every round starts with a
different query, the first two rounds do not count, and a ratio compares two times of the same round (the median of all
rounds). Before every query the broker is idle. Processor seconds depend less on other load of the machine.

pika reads from RabbitMQ if installed, else from JumpMQ. The stream and the table of four queues are compared with the
same rows from Arrow files, by minimal Python sources: the remainder is Spark's own cost. The costs of a streaming query
without rows, and of a minimal Python source, are printed separately. Further cases: one queue; 200 queues of 1,000
messages, next to as many messages in four; all columns of messages with a message_id and two headers, next to all
columns of messages without properties; and rows published, confirmed, by the sink and by pika.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pika
from pyspark.sql import DataFrame, SparkSession

import jumpmq.spark
from benchmarks.load.client import Address, Connection
from benchmarks.load.traffic import Messages
from benchmarks.spark_sources import COLUMNS, ArrowFiles, Nothing, arrow_files
from jumpmq.testing import HOST, BrokerProcess, JumpMQ, RabbitMQ

EXCHANGE = "spark"
MESSAGES = 1_000_000
ROUNDS = 5
WARM_ROUNDS = 2
MICRO_BATCHES = 4
BARE_STREAM = "Arrow files, by a Python stream"
WARM_UP = 2_000
PIKA_WRITE_SHARE = 100
PIKA_SHARE = 10
"""pika gets one message in this number, to keep the benchmark short."""


class Taken(NamedTuple):
    """Cost of a query, in seconds: elapsed, processor time of all processes, and the broker's share of it."""

    seconds: float
    processor: float
    broker: float


class Way(NamedTuple):
    """A query over the given number of rows; ``prepare`` is not measured."""

    rows: int
    read: Callable[[], None]
    prepare: Callable[[], None] = lambda: None


def queues_of(exchange: str, queues: int = 4) -> list[str]:
    """Names of an exchange's queues."""
    return [f"{exchange}-{number}" for number in range(queues)]


def declare(port: int, exchange: str = EXCHANGE, queues: int = 4) -> None:
    """Declare a consistent hash exchange and its queues."""
    connection = Connection(Address(port))
    connection.declare_exchange(exchange, "x-consistent-hash")
    for queue in queues_of(exchange, queues):
        connection.declare_queue(queue)
        connection.bind(queue, exchange, "1")
    connection.close()


def publish(port: int, count: int, exchange: str = EXCHANGE) -> None:
    """Publish messages with 100,000 distinct keys. They are in the queues on return."""
    connection = Connection(Address(port))
    messages = Messages(exchange, size=100, keys=100_000, persistent=False)
    for _, parts in messages.chunks(0, count, connection.frame_max, 500):
        connection.send_parts(parts)
    connection.close()


def from_table(spark: SparkSession, broker: BrokerProcess, exchange: str, columns: str | None = COLUMNS) -> None:
    """A batch read, without consuming."""
    _unread(_source(spark.read, broker, exchange, columns).load())


def from_stream(spark: SparkSession, broker: BrokerProcess, exchange: str) -> None:
    """Run a streaming query over the present messages."""
    _run(_source(spark.readStream, broker, exchange, COLUMNS).load())


def from_pika(spark: SparkSession, broker: BrokerProcess, exchange: str) -> None:
    """One consumer per queue with an acknowledgement per thousand messages: code without a source."""
    port, names = broker.port, queues_of(exchange)

    def consume(queues: Iterable[str]) -> Iterator[tuple[str, bytes, bytes]]:
        connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10_000)
        for queue in queues:
            missing = channel.queue_declare(queue, passive=True).method.message_count
            for method, _, body in channel.consume(queue) if missing else ():
                yield queue, method.routing_key.encode(), body
                missing -= 1
                if missing % 1000 == 0:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if not missing:
                    break
            channel.cancel()
        connection.close()

    _unread(spark.createDataFrame(spark.sparkContext.parallelize(names, len(names)).mapPartitions(consume), COLUMNS))


def to_exchange(spark: SparkSession, broker: BrokerProcess, count: int) -> float:
    """Rows per second published by the sink, persistent."""
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    began = time.perf_counter()
    writer = _rows(spark, count).write.format("jumpmq").mode("append")
    writer.option("url", url).option("exchange", EXCHANGE).save()
    seconds = time.perf_counter() - began
    _empty(broker.port, EXCHANGE)
    return count / seconds


def to_exchange_with_pika(spark: SparkSession, broker: BrokerProcess, count: int) -> float:
    """Publish through one channel per partition, waiting for each confirm: code without a sink."""
    port = broker.port

    def publish_rows(rows: Iterable[Any]) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
        channel = connection.channel()
        channel.confirm_delivery()
        for row in rows:
            channel.basic_publish(EXCHANGE, row.routing_key, row.body, pika.BasicProperties(delivery_mode=2))
        connection.close()

    began = time.perf_counter()
    _rows(spark, count).foreachPartition(publish_rows)
    seconds = time.perf_counter() - began
    _empty(broker.port, EXCHANGE)
    return count / seconds


def publish_with_own_properties(spark: SparkSession, broker: BrokerProcess, count: int, exchange: str) -> None:
    """Publish messages, each with its own message_id and two headers."""
    headers = "map('tenant', cast(id % 1000 as string), 'trace', cast(id as string)) as headers"
    rows = spark.range(count, numPartitions=2).selectExpr(
        "cast(id % 100000 as string) as routing_key", "rpad(cast(id as string), 100, 'x') as body",
        "cast(id as string) as message_id", headers,
    )  # fmt: skip
    writer = rows.write.format("jumpmq").mode("append").option("url", f"http://guest:guest@{HOST}:{broker.http_port}")
    writer.option("exchange", exchange).option("persistent", False).save()


def _rows(spark: SparkSession, count: int) -> DataFrame:
    frame = spark.range(count, numPartitions=2)
    return frame.selectExpr("cast(id % 100000 as string) as routing_key", "lpad(cast(id as string), 100, 'x') as body")


def _source(reader: Any, broker: BrokerProcess, exchange: str, columns: str | None) -> Any:
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    found = reader.format("jumpmq").option("url", url).option("exchange", exchange)
    return found if columns is None else found.schema(columns)


def _unread(frame: DataFrame) -> None:
    """Compute every row of a table, and discard it."""
    frame.write.format("noop").mode("overwrite").save()


def _run(frame: DataFrame) -> None:
    """Compute every row of a stream, and discard it."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def _empty(port: int, exchange: str) -> None:
    connection = Connection(Address(port))
    for queue in queues_of(exchange):
        connection.purge(queue)
    connection.close()


def in_turns(ways: dict[str, Way], rounds: int, broker: BrokerProcess) -> dict[str, list[Taken]]:
    """Cost of every query in every round. Each round starts with a different query; warm-up rounds do not count."""
    taken: dict[str, list[Taken]] = {title: [] for title in ways}
    titles = list(ways)
    for number in range(WARM_ROUNDS + rounds):
        first = number % len(titles)
        for title in titles[first:] + titles[:first]:
            ways[title].prepare()
            _at_rest(broker)
            before, began = (processor_seconds(), broker.cpu_seconds()), time.perf_counter()
            ways[title].read()
            seconds = time.perf_counter() - began
            found = Taken(seconds, processor_seconds() - before[0], broker.cpu_seconds() - before[1])
            if number >= WARM_ROUNDS:
                taken[title].append(found)
    return taken


def _at_rest(broker: BrokerProcess) -> None:
    """Wait until the broker is idle: messages are released after the answer."""
    used = -1.0
    while broker.cpu_seconds() - used > 0.02:
        used = broker.cpu_seconds()
        time.sleep(0.2)


def processor_seconds() -> float:
    """Processor seconds of this process and its descendants, ended ones included."""
    parents, used = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            parents[int(place.name)], used[int(place.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def local_spark() -> Iterator[SparkSession]:
    """A quiet Spark session on two local cores."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    builder = builder.config("spark.ui.showConsoleProgress", False)
    spark = builder.config("spark.driver.memory", "2g").config("spark.driver.host", HOST).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jumpmq.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def ways_of_reading(spark: SparkSession, broker: BrokerProcess, files: str, count: int) -> dict[str, Way]:
    """The queries, by title. Publishes the messages of the tables."""
    port, few = broker.port, min(count, 200_000)
    for exchange, queues, messages in (
        ("stream", 4, 0), ("four", 4, count), ("one", 1, count), ("many", 200, few), ("few", 4, few), ("own", 4, 0),
    ):  # fmt: skip
        declare(port, exchange, queues)
        publish(port, messages, exchange)
    publish_with_own_properties(spark, broker, count, "own")
    spark.dataSource.register(ArrowFiles)
    spark.dataSource.register(Nothing)
    stream, table = partial(from_stream, spark, broker, "stream"), partial(from_table, spark, broker)
    bare = spark.readStream.format("arrow_files").option("files", files)
    more = MICRO_BATCHES * count
    return {
        "stream": Way(count, stream, partial(publish, port, count, "stream")),
        BARE_STREAM: Way(count, lambda: _run(bare.option("times", 1).load())),
        "stream, four times as many": Way(more, stream, partial(publish, port, more, "stream")),
        f"{BARE_STREAM}, four times": Way(more, lambda: _run(bare.option("times", MICRO_BATCHES).load())),
        "stream, nothing there": Way(0, stream),
        "a Python stream that does nothing": Way(0, lambda: _run(spark.readStream.format("nothing").load())),
        "table": Way(count, partial(table, "four")),
        "Arrow files, by a Python source": Way(
            count, lambda: _unread(spark.read.format("arrow_files").option("files", files).load())
        ),
        "table of one queue": Way(count, partial(table, "one")),
        "table of 200 queues of 1,000": Way(few, partial(table, "many")),
        "as many in four queues": Way(few, partial(table, "few")),
        "all columns": Way(count, partial(table, "four", None)),
        "all columns, own properties": Way(count, partial(table, "own", None)),
    }


BESIDE = {
    "stream": ["pika", BARE_STREAM],
    "stream, four times as many": ["pika", f"{BARE_STREAM}, four times"],
    BARE_STREAM: ["pika"],
    f"{BARE_STREAM}, four times": ["pika"],
    "table": ["pika", "Arrow files, by a Python source"],
    "Arrow files, by a Python source": ["pika"],
    "table of one queue": ["table"],
    "table of 200 queues of 1,000": ["as many in four queues"],
    "as many in four queues": ["table"],
    "all columns": ["table"],
    "all columns, own properties": ["all columns"],
}


def main() -> None:
    """Measure and print all queries, with ratios to their baselines."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(JumpMQ())
        other = stack.enter_context(RabbitMQ()) if RabbitMQ.available() else broker
        spark = stack.enter_context(local_spark())
        files = stack.enter_context(arrow_files(count))
        for each in {broker, other}:
            declare(each.port)
        share = max(WARM_UP, count // PIKA_SHARE)
        pika_way = Way(share, partial(from_pika, spark, other, EXCHANGE), partial(publish, other.port, share))
        ways = {"pika": pika_way} | ways_of_reading(spark, broker, files, count)
        taken = in_turns(ways, rounds, broker)
        print(f"pika in mapPartitions reads from {other.name}; processor seconds of all processes, and the broker's")
        for title, way in ways.items():
            beside = {name: (ways[name].rows, taken[name]) for name in BESIDE.get(title, [])}
            show(title, way.rows, taken[title], beside)
        written = to_exchange_with_pika(spark, other, max(1, count // PIKA_WRITE_SHARE))
        print(f"{f'pika in foreachPartition, {other.name}':<45} {written:>10,.0f} rows/s")
        to_exchange(spark, broker, WARM_UP)
        ours = to_exchange(spark, broker, count)
        print(f"{'written':<45} {ours:>10,.0f} rows/s  {ours / written:.2f}x pika", flush=True)


def show(title: str, rows: int, taken: list[Taken], beside: dict[str, tuple[int, list[Taken]]]) -> None:
    """Print a line: medians of all rounds, and ratios as the median of the ratios per round."""
    seconds, processor, brokers = (statistics.median(values) for values in zip(*taken, strict=True))
    rate = f"{rows / seconds:>10,.0f} rows/s" if rows else f"{seconds:>10.2f} s     "
    ratios = []
    for name, (others, found) in beside.items():
        times = (theirs.seconds / ours.seconds for ours, theirs in zip(taken, found, strict=True))
        ratios.append(f"{rows / others * statistics.median(times):.2f}x {name}")
    print(f"{title:<45} {rate}  {processor:.2f} s, {brokers:.2f} s  {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
