"""A Spark session for a command, and its queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jumpmq.spark import register
from jumpmq.spark.commit_log import CommitLog
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.pipelines.interrupts import interruptible


@contextmanager
def session(master: str, name: str) -> Iterator[SparkSession]:
    """Run a session without progress bars and log, with this Python environment for workers by default.

    Errors of queries are raised, so that Spark need not log them. The session is stopped at the end, unless it existed
    before.

    Args:
        master: Spark's master URL, such as ``local[*]`` or ``spark://host:7077``.
        name: name of the application.

    Raises:
        KeyboardInterrupt: Ctrl-C has ended the session's queries and jobs.
    """
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    had_one = SparkContext._active_spark_context is not None  # the active session is per thread
    found = SparkSession.builder.master(master).appName(name).config(map=settings).getOrCreate()
    try:
        with interruptible(found):
            found.sparkContext.setLogLevel("OFF")
            register(found)
            yield found
    finally:
        if not had_one:
            found.stop()


def known_to_source(checkpoint: str) -> dict[str, str]:
    """Return the option ``checkpointLocation``, or no option if the source cannot read the path.

    Arrow supports fewer file systems than Spark.
    """
    try:
        CommitLog(checkpoint)
    except JumpMQError:
        return {}
    return {"checkpointLocation": checkpoint}


def followed(query: StreamingQuery, progress: Callable[[int], None]) -> int:
    """Wait for the end of a query; return the number of rows read. An exception during the wait stops the query.

    Args:
        progress: called with the number of rows of each micro-batch.
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
