"""How fast PySpark reads four queues: through the source `jumpmq`, and through pika in `mapPartitions`.

    python -m benchmarks.spark_read [MESSAGES]

One broker process, four queues behind a consistent hash exchange, bodies of 100 octets, Spark on two local cores. Every
way of reading has the same sink (`noop`), which wants queue, routing key and body of every row. The stream and pika
also consume the messages. Each way has read a few messages before its clock starts; publishing is not measured.
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


def publish(port: int, count: int) -> None:
    """Publish so many messages with 100,000 different keys; they are in the queues when this returns."""
    connection = Connection(Address(port))
    messages = Messages(EXCHANGE, size=100, keys=100_000, persistent=False)
    for _, octets in messages.chunks(0, count, connection.frame_max, 500):
        connection.send(octets)
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


if __name__ == "__main__":
    main()
