"""How fast PySpark reads queues and writes to an exchange: by the format `jumpmq`, and by pika.

    python -m benchmarks.spark_read [MESSAGES]

One broker process, four queues behind a consistent hash exchange, bodies of 100 octets, Spark on two local cores. Every
way of reading has the same sink (`noop`), which wants queue, routing key and body of every row. The stream and pika
also consume the messages. Each way has read a few messages before its clock starts; publishing is not measured. Then
the same from one queue and from 200, and rows published, confirmed, by the sink and by pika in `foreachPartition`.
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
from pyspark.sql import DataFrame, SparkSession

import jumpmq.spark
from benchmarks.brokers import HOST, JumpMQ
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


def from_table(spark: SparkSession, broker: JumpMQ) -> None:
    """A batch read: nothing is consumed."""
    _source(spark.read, broker).load().write.format("noop").mode("overwrite").save()


def from_stream(spark: SparkSession, broker: JumpMQ) -> None:
    """A streaming query over what there is."""
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = _source(spark.readStream, broker).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def from_pika(spark: SparkSession, broker: JumpMQ) -> None:
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


def to_exchange(spark: SparkSession, broker: JumpMQ, count: int) -> float:
    """Rows a second published by the sink, persistent."""
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    began = time.perf_counter()
    writer = _rows(spark, count).write.format("jumpmq").mode("append")
    writer.option("url", url).option("exchange", EXCHANGE).save()
    seconds = time.perf_counter() - began
    _empty(broker.port)
    return count / seconds


def to_exchange_with_pika(spark: SparkSession, broker: JumpMQ, count: int) -> float:
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


def _source(reader: Any, broker: JumpMQ) -> Any:
    url = f"http://guest:guest@{HOST}:{broker.http_port}"
    return reader.format("jumpmq").schema(COLUMNS).option("url", url).option("exchange", EXCHANGE)


def rate(spark: SparkSession, broker: JumpMQ, read: Callable[[SparkSession, JumpMQ], None], count: int) -> float:
    """Rows a second of reading so many messages."""
    publish(broker.port, WARM_UP)
    read(spark, broker)
    _empty(broker.port)
    publish(broker.port, count)
    began = time.perf_counter()
    read(spark, broker)
    seconds = time.perf_counter() - began
    _empty(broker.port)
    return count / seconds


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


def main() -> None:
    """Measure and print each way, and its ratio to pika."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    with JumpMQ() as broker, local_spark() as spark:
        declare(broker.port)
        pika_rate = rate(spark, broker, from_pika, count // PIKA_SHARE)
        print(f"{'pika in mapPartitions':<32} {pika_rate:>12,.0f} rows/s")
        for title, read in {"jumpmq, stream (availableNow)": from_stream, "jumpmq, table": from_table}.items():
            ours = rate(spark, broker, read, count)
            print(f"{title:<32} {ours:>12,.0f} rows/s {ours / pika_rate:>8.1f}x")
        written = to_exchange_with_pika(spark, broker, max(1, count // PIKA_WRITE_SHARE))
        print(f"{'pika in foreachPartition':<32} {written:>12,.0f} rows/s")
        to_exchange(spark, broker, WARM_UP)
        ours = to_exchange(spark, broker, count // 2)
        print(f"{'jumpmq, written':<32} {ours:>12,.0f} rows/s {ours / written:>8.1f}x")
        for queues in (1, 200):
            redeclare(broker.port, queues)
            ours = rate(spark, broker, from_table, count)
            print(f"{f'jumpmq, table, {queues} queues':<32} {ours:>12,.0f} rows/s {ours / pika_rate:>8.1f}x")


if __name__ == "__main__":
    main()
