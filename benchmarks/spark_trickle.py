"""Delay of messages until `foreachBatch`: 100 messages per second through 4, 200 and 1,000 queues.

    python -m benchmarks.spark_trickle [SECONDS]

A streaming query without a trigger, on two local cores. Each message carries its publishing time; the first ten seconds
do not count.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time

import pika
from pyspark.sql import DataFrame

from benchmarks import spark_read
from jumpmq.testing import HOST, JumpMQ

RATE = 100
WARM_UP = 10.0


def trickle(port: int, exchange: str, seconds: float) -> None:
    """Publish at times fixed in advance; each body is the current time."""
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
        channel = connection.channel()
        began = time.time()
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, began + number / RATE - time.time()))
            channel.basic_publish(exchange, str(number), repr(time.time()).encode())


def main() -> None:
    """Measure and print the delays for every number of queues."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with JumpMQ() as broker, spark_read.local_spark() as spark:
        for queues in (4, 200, 1000):
            exchange = f"spark-{queues}"
            spark_read.declare(broker.port, exchange, queues)
            delays: list[tuple[float, float]] = []

            def note(frame: DataFrame, number: int, delays: list[tuple[float, float]] = delays) -> None:
                bodies = [float(row.body) for row in frame.select("body").collect()]
                now = time.time()
                delays += [(sent, now - sent) for sent in bodies]

            with tempfile.TemporaryDirectory() as checkpoint:
                reader = spark.readStream.format("jumpmq").schema("body binary").option("exchange", exchange)
                frame = reader.option("url", f"http://guest:guest@{HOST}:{broker.http_port}").load()
                query = frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
                began = time.time()
                publisher = threading.Thread(target=trickle, args=(broker.port, exchange, WARM_UP + seconds))
                publisher.start()
                publisher.join()
                query.processAllAvailable()
                query.stop()
            found = sorted(delay for sent, delay in delays if sent > began + WARM_UP)
            p99 = found[int(len(found) * 0.99)]
            print(
                f"{queues:>5} queues: p50 {statistics.median(found) * 1000:,.0f} ms, p99 {p99 * 1000:,.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
