"""A Spark session for a command, and its queries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jumpmq.spark import register


@contextmanager
def session(master: str, name: str) -> Iterator[SparkSession]:
    """A quiet session whose Python workers are those of this environment, unless told otherwise.

    Args:
        master: of Spark, such as ``local[*]`` or ``spark://host:7077``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    found = SparkSession.builder.master(master).appName(name).config(map=settings).getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    register(found)
    try:
        yield found
    finally:
        found.stop()


def followed(query: StreamingQuery, progress: Callable[[int], None]) -> int:
    """Wait for the end of a query, which is stopped if the waiting is; returns how many rows it read.

    Args:
        progress: called with the rows of each micro-batch.
    """
    rows, seen, ended = 0, -1, False
    try:
        while not ended:
            ended = bool(query.awaitTermination(1))
            for batch in query.recentProgress:
                if batch.batchId > seen:
                    seen = batch.batchId
                    rows += batch.numInputRows
                    progress(batch.numInputRows)
    finally:
        query.stop()
    return rows
