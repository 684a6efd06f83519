"""How fast PySpark reads queues and writes to an exchange: by the format `jumpmq`, and by pika.

    python -m benchmarks.spark_read [MESSAGES]

One broker process, four queues behind a consistent hash exchange, bodies of 100 octets, Spark on two local cores. Every
way of reading has the same sink (`noop`), which wants queue, routing key and body of every row. The stream and pika
also consume the messages. Each way has read as many messages before its clock starts, so that neither Spark's start nor
Java's compiler counts; publishing is not measured. What starting and ending a streaming query takes is told apart. pika
reads from RabbitMQ where that is installed, else from JumpMQ. Then the same from one queue and from 200; where every
message has its own message_id and two headers, of which all columns are wanted; from Arrow files of the same batches by
a Python data source that does nothing else; and rows published, confirmed, by the sink and by pika.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pika
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import jumpmq.spark
from benchmarks.brokers import HOST, BrokerProcess, JumpMQ, RabbitMQ
from benchmarks.load.client import Address, Connection
from benchmarks.load.traffic import Messages

EXCHANGE = "spark"
QUEUES = [f"spark-{number}" for number in range(4)]
COLUMNS = "queue string, routing_key binary, body binary"
MESSAGES = 2_000_000
WARM_UP = 2_000
PIKA_WRITE_SHARE = 200
PIKA_SHARE = 20
"""pika gets one message in so many, or it would take minutes."""


def declare(port: int) -> None:
    """Declare the exchange and its queues."""
    connection = Connection(Address(port))
    connection.declare_exchange(EXCHANGE, "x-consistent-hash")
    for queue in QUEUES:
        connection.declare_queue(queue)
        connection.bind(queue, EXCHANGE, "1")
    connection.close()


def redeclare(port: int, queues: int) -> None:
    """So many queues instead of those that there are."""
    connection = Connection(Address(port))
    connection.delete_exchange(EXCHANGE)
    QUEUES[:] = [f"spark-{queues}-{number}" for number in range(queues)]
    connection.close()
    declare(port)


def publish(port: int, count: int) -> None:
    """Publish so many messages with 100,000 different keys; they are in the queues when this returns."""
    connection = Connection(Address(port))
    messages = Messages(EXCHANGE, size=100, keys=100_000, persistent=False)
    for _, parts in messages.chunks(0, count, connection.frame_max, 500):
        connection.send_parts(parts)
    connection.close()


def from_table(spark: SparkSession, broker: BrokerProcess) -> None:
    """A batch read: nothing is consumed."""
    _source(spark.read, broker).load().write.format("noop").mode("overwrite").save()


def from_stream(spark: SparkSession, broker: BrokerProcess) -> None:
    """A streaming query over what there is."""
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = _source(spark.readStream, broker).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def from_pika(spark: SparkSession, broker: BrokerProcess) -> None:
    """A consumer a queue, acknowledging a thousand at a time: what one writes without a source."""
    port = broker.port

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

    rows = spark.sparkContext.parallelize(QUEUES, len(QUEUES)).mapPartitions(consume)
    frame: DataFrame = spark.createDataFrame(rows, COLUMNS)
    frame.write.format("noop").mode("overwrite").save()


def to_exchange(spark: SparkSession, broker: BrokerProcess, count: int) -> float:
    """Rows a second published by the sink, persistent."""
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    began = time.perf_counter()
    writer = _rows(spark, count).write.format("jumpmq").mode("append")
    writer.option("url", url).option("exchange", EXCHANGE).save()
    seconds = time.perf_counter() - began
    _empty(broker.port)
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
    _empty(broker.port)
    return count / seconds


def _rows(spark: SparkSession, count: int) -> DataFrame:
    frame = spark.range(count, numPartitions=2)
    return frame.selectExpr("cast(id % 100000 as string) as routing_key", "lpad(cast(id as string), 100, 'x') as body")


def _source(reader: Any, broker: BrokerProcess) -> Any:
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    return reader.format("jumpmq").schema(COLUMNS).option("url", url).option("exchange", EXCHANGE)


def rate(
    spark: SparkSession, broker: BrokerProcess, read: Callable[[SparkSession, BrokerProcess], None], count: int
) -> float:
    """Rows a second of reading so many messages, the second time."""
    return count / seconds(spark, broker, read, count)


def seconds(
    spark: SparkSession, broker: BrokerProcess, read: Callable[[SparkSession, BrokerProcess], None], count: int
) -> float:
    """How long reading so many messages takes, the second time."""
    for _ in range(2):
        publish(broker.port, count)
        began = time.perf_counter()
        read(spark, broker)
        taken = time.perf_counter() - began
        _empty(broker.port)
    return taken


def _empty(port: int) -> None:
    connection = Connection(Address(port))
    for queue in QUEUES:
        connection.purge(queue)
    connection.close()


@contextlib.contextmanager
def local_spark() -> Iterator[SparkSession]:
    """A quiet Spark on two cores of this machine."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
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


def from_arrow_files(spark: SparkSession, count: int) -> float:
    """Rows a second from two files with as many rows, as the broker's batches have them."""
    spark.dataSource.register(ArrowFiles)
    schema = pa.schema([("queue", pa.string()), ("routing_key", pa.binary()), ("body", pa.binary())])
    batch = pa.record_batch([["spark-0"] * 8192, [b"%010d" % n for n in range(8192)], [bytes(100)] * 8192], schema)
    with tempfile.TemporaryDirectory() as directory:
        files = [f"{directory}/{number}.arrow" for number in range(2)]
        rows = 0
        for file in files:
            with pa.OSFile(file, "w") as opened, pa.ipc.new_stream(opened, schema) as stream:
                for _ in range(max(1, count // 2 // 8192)):
                    stream.write_batch(batch)
                    rows += len(batch)
        frame = spark.read.format("arrow_files").option("files", ",".join(files)).load()
        for _ in range(2):
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            seconds = time.perf_counter() - began
    return rows / seconds


def with_own_properties(spark: SparkSession, broker: BrokerProcess, count: int) -> float:
    """Rows a second, all columns, where every message has its own message_id and two headers."""
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    headers = "map('tenant', cast(id % 1000 as string), 'trace', cast(id as string)) as headers"
    rows = spark.range(count, numPartitions=2).selectExpr(
        "cast(id % 100000 as string) as routing_key", "rpad(cast(id as string), 100, 'x') as body",
        "cast(id as string) as message_id", headers,
    )  # fmt: skip
    writer = rows.write.format("jumpmq").mode("append").option("url", url)
    writer.option("exchange", EXCHANGE).option("persistent", False).save()
    frame = spark.read.format("jumpmq").option("url", url).option("exchange", EXCHANGE).load()
    for _ in range(2):
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
    _empty(broker.port)
    return count / seconds


def main() -> None:
    """Measure and print each way, and its ratio to what it is compared with."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(JumpMQ())
        other = stack.enter_context(RabbitMQ()) if RabbitMQ.available() else broker
        spark = stack.enter_context(local_spark())
        for each in {broker, other}:
            declare(each.port)
        pika_rate = rate(spark, other, from_pika, max(WARM_UP, count // PIKA_SHARE))
        _show(f"pika in mapPartitions, {other.name}", pika_rate)
        streamed, empty = seconds(spark, broker, from_stream, count), seconds(spark, broker, from_stream, 0)
        _show("stream (availableNow)", count / streamed, pika_rate, "pika")
        _show(f"the same without the query's {empty:.2f} s", count / (streamed - empty), pika_rate, "pika")
        table = rate(spark, broker, from_table, count)
        _show("table", table, pika_rate, "pika")
        _show("Arrow files, by a Python source", from_arrow_files(spark, count), table, "table")
        _show("table, all columns, own properties", with_own_properties(spark, broker, count // 2), table, "table")
        written = to_exchange_with_pika(spark, other, max(1, count // PIKA_WRITE_SHARE))
        _show(f"pika in foreachPartition, {other.name}", written)
        to_exchange(spark, broker, WARM_UP)
        _show("written", to_exchange(spark, broker, count // 2), written, "pika")
        for queues, messages in ((1, count), (200, 200_000)):
            redeclare(broker.port, queues)
            ours = rate(spark, broker, from_table, min(count, messages))
            _show(f"table, {min(count, messages):,} in {queues} queues", ours, table, "table")


def _show(title: str, rows: float, other: float = 0, name: str = "") -> None:
    ratio = f" {rows / other:>8.2f}x {name}" if other else ""
    print(f"{title:<40} {rows:>12,.0f} rows/s{ratio}", flush=True)


if __name__ == "__main__":
    main()
