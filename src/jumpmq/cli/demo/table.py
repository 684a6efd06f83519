"""The demo's streaming query: from the queues into a Parquet table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

from jumpmq.spark import register


@contextmanager
def spark_session(partitions: int) -> Iterator[Callable[[], SparkSession]]:
    """Start a local Spark session in the background, with ``partitions`` parallel tasks and workers in this Python
    environment.

    An existing session of this process is used instead, and not stopped.

    Yields:
        a function that waits for the session, and returns it.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{partitions}]").appName("JumpMQ demo")
    # The demo ends before Java's second compiler pays off: without this compiler, Spark takes two thirds of the time.
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
    }
    had_one = SparkContext._active_spark_context is not None
    with ThreadPoolExecutor(1) as thread:
        session = thread.submit(builder.config(map=settings).getOrCreate)

        def started() -> SparkSession:
            found = session.result()
            jvm: Any = found._jvm
            # Spark finds registered sources through the session active in the calling thread.
            jvm.org.apache.spark.sql.SparkSession.setActiveSession(found._jsparkSession)
            return found

        try:
            yield started
        finally:
            if not had_one:
                session.result().stop()


def write_table(spark: SparkSession, url: str, exchange: str, schema: str, directory: Path) -> None:
    """Read all messages of the exchange's queues, a partition per queue, into a Parquet table partitioned by queue.

    Args:
        url: URL of the management API, with user and password.
        exchange: exchange whose bound queues are read.
        schema: fields of the JSON bodies, as a Spark DDL string.
        directory: directory for the table `flights` and the query's checkpoint.
    """
    register(spark)
    messages = (
        spark.readStream.format("jumpmq").option("url", url).option("exchange", exchange).option("group", "demo").load()
    )
    flight = from_json(col("body").cast("string"), schema).alias("flight")
    flights = messages.select("queue", "seq", "published_at", flight).select("queue", "seq", "published_at", "flight.*")
    query = (
        flights.writeStream.format("parquet")
        .partitionBy("queue")
        .option("path", str(directory / "flights"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def open_table(spark: SparkSession, directory: Path) -> None:
    """Register the table from `write_table` as SQL view `flights`."""
    spark.read.parquet(str(directory / "flights")).createOrReplaceTempView("flights")
