"""How fast PySpark reads queues and writes to an exchange: by the format `jumpmq`, and by pika.

    python -m benchmarks.spark_read [MESSAGES [ROUNDS]]

One broker process, four queues behind a consistent hash exchange, bodies of 100 octets, Spark on two local cores. Every
way of reading has the same sink (`noop`), which wants queue, routing key and body of every row. The stream and pika
also consume the messages. Java compiles what is run often, so all ways of reading take turns, round after round; the
first round does not count, and of the others the medians are shown. Publishing is not measured. What a streaming query
takes that reads nothing is told apart, and what it takes where the Python source does nothing at all. pika reads from
RabbitMQ where that is installed, else from JumpMQ. Then the same from one queue; from 200 of 1,000 messages, beside as
many in four; all columns of messages with their own message_id and two headers, beside all columns of messages without
properties; Arrow files of the same batches read by a Python data source that does nothing else; and rows published,
confirmed, by the sink and by pika.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pika
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

import jumpmq.spark
from benchmarks.brokers import HOST, BrokerProcess, JumpMQ, RabbitMQ
from benchmarks.load.client import Address, Connection
from benchmarks.load.traffic import Messages

EXCHANGE = "spark"
COLUMNS = "queue string, routing_key binary, body binary"
MESSAGES = 1_000_000
ROUNDS = 5
WARM_UP = 2_000
PIKA_WRITE_SHARE = 100
PIKA_SHARE = 10
"""pika gets one message in so many, or it would take minutes."""


class Way(NamedTuple):
    """A way of reading so many rows; ``prepare`` is not measured."""

    rows: int
    read: Callable[[], None]
    prepare: Callable[[], None] = lambda: None


def queues_of(exchange: str, queues: int = 4) -> list[str]:
    """The names of an exchange's queues."""
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
    """Publish so many messages with 100,000 different keys; they are in the queues when this returns."""
    connection = Connection(Address(port))
    messages = Messages(exchange, size=100, keys=100_000, persistent=False)
    for _, parts in messages.chunks(0, count, connection.frame_max, 500):
        connection.send_parts(parts)
    connection.close()


def from_table(spark: SparkSession, broker: BrokerProcess, exchange: str, columns: str | None = COLUMNS) -> None:
    """A batch read: nothing is consumed."""
    _unread(_source(spark.read, broker, exchange, columns).load())


def from_stream(spark: SparkSession, broker: BrokerProcess, exchange: str) -> None:
    """A streaming query over what there is."""
    _run(_source(spark.readStream, broker, exchange, COLUMNS).load())


def from_pika(spark: SparkSession, broker: BrokerProcess, exchange: str) -> None:
    """A consumer a queue, acknowledging a thousand at a time: what one writes without a source."""
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
    """Rows a second published by the sink, persistent."""
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    began = time.perf_counter()
    writer = _rows(spark, count).write.format("jumpmq").mode("append")
    writer.option("url", url).option("exchange", EXCHANGE).save()
    seconds = time.perf_counter() - began
    _empty(broker.port, EXCHANGE)
    return count / seconds


def to_exchange_with_pika(spark: SparkSession, broker: BrokerProcess, count: int) -> float:
    """The same by a channel a partition that waits for each confirm: what one writes without a sink."""
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
    """Publish messages each of which has its own message_id and two headers."""
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
    """Make every row of a table, for nobody."""
    frame.write.format("noop").mode("overwrite").save()


def _run(frame: DataFrame) -> None:
    """Make every row that a stream has, for nobody."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def _empty(port: int, exchange: str) -> None:
    connection = Connection(Address(port))
    for queue in queues_of(exchange):
        connection.purge(queue)
    connection.close()


def in_turns(ways: dict[str, Way], rounds: int) -> dict[str, float]:
    """The median seconds of each way; all take turns, and the first round does not count."""
    taken: dict[str, list[float]] = {title: [] for title in ways}
    for counts in [False] + [True] * rounds:
        for title, way in ways.items():
            way.prepare()
            began = time.perf_counter()
            way.read()
            if counts:
                taken[title].append(time.perf_counter() - began)
    return {title: statistics.median(found) for title, found in taken.items()}


@contextlib.contextmanager
def local_spark() -> Iterator[SparkSession]:
    """A quiet Spark on two cores of this machine."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    builder = builder.config("spark.ui.showConsoleProgress", False)
    spark = builder.config("spark.driver.memory", "2g").config("spark.driver.host", HOST).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jumpmq.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


class ArrowFiles(DataSource):
    """Record batches from files, a partition a file."""

    @classmethod
    def name(cls) -> str:
        return "arrow_files"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: object) -> DataSourceReader:
        return ArrowFilesReader(self.options["files"].split(","))


class ArrowFilesReader(DataSourceReader):
    """Reads them, and nothing else."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(partition.value) as file, pa.ipc.open_stream(file) as stream:
            yield from stream


class Nothing(DataSource):
    """A stream in which nothing ever is."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return NothingReader()


class NothingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says so at once."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names, here and below)
        pass

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


@contextlib.contextmanager
def arrow_files(count: int) -> Iterator[str]:
    """Two files with so many rows, as the broker's batches have them; their names."""
    schema = pa.schema([("queue", pa.string()), ("routing_key", pa.binary()), ("body", pa.binary())])
    batch = pa.record_batch([["spark-0"] * 8192, [b"%010d" % n for n in range(8192)], [bytes(100)] * 8192], schema)
    with tempfile.TemporaryDirectory() as directory:
        files = [f"{directory}/{number}.arrow" for number in range(2)]
        for file in files:
            with pa.OSFile(file, "w") as opened, pa.ipc.new_stream(opened, schema) as stream:
                for start in range(0, count // 2, 8192):
                    stream.write_batch(batch[: count // 2 - start])
        yield ",".join(files)


def ways_of_reading(spark: SparkSession, broker: BrokerProcess, files: str, count: int) -> dict[str, Way]:
    """What is read, by title; what tables read is published here."""
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
    return {
        "stream": Way(count, stream, partial(publish, port, count, "stream")),
        "stream, twice as many": Way(2 * count, stream, partial(publish, port, 2 * count, "stream")),
        "stream, nothing there": Way(0, stream),
        "a Python source that does nothing": Way(0, lambda: _run(spark.readStream.format("nothing").load())),
        "table": Way(count, partial(table, "four")),
        "table of one queue": Way(count, partial(table, "one")),
        "table of 200 queues of 1,000": Way(few, partial(table, "many")),
        "as many in four queues": Way(few, partial(table, "few")),
        "all columns": Way(count, partial(table, "four", None)),
        "all columns, own properties": Way(count, partial(table, "own", None)),
        "Arrow files, by a Python source": Way(
            count, lambda: _unread(spark.read.format("arrow_files").option("files", files).load())
        ),
    }


BESIDE = {
    "stream": "pika",
    "stream, twice as many": "pika",
    "table": "pika",
    "table of one queue": "table",
    "table of 200 queues of 1,000": "as many in four queues",
    "as many in four queues": "table",
    "all columns": "table",
    "all columns, own properties": "all columns",
    "Arrow files, by a Python source": "table",
}


def main() -> None:
    """Measure and print each way, and its ratio to what it is compared with."""
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
        rates = {"pika": share / in_turns({"pika": pika_way}, 1)["pika"]}
        _show(f"pika in mapPartitions, {other.name}", rates["pika"])
        ways = ways_of_reading(spark, broker, files, count)
        seconds = in_turns(ways, rounds)
        rates |= {title: way.rows / seconds[title] for title, way in ways.items() if way.rows}
        for title in ways:
            if title in rates:
                _show(title, rates[title], rates[BESIDE[title]], BESIDE[title])
            else:
                print(f"{title:<40} {seconds[title]:>12.2f} s", flush=True)
        written = to_exchange_with_pika(spark, other, max(1, count // PIKA_WRITE_SHARE))
        _show(f"pika in foreachPartition, {other.name}", written)
        to_exchange(spark, broker, WARM_UP)
        _show("written", to_exchange(spark, broker, count), written, "pika")


def _show(title: str, rows: float, other: float = 0, name: str = "") -> None:
    ratio = f" {rows / other:>8.2f}x {name}" if other else ""
    print(f"{title:<40} {rows:>12,.0f} rows/s{ratio}", flush=True)


if __name__ == "__main__":
    main()
