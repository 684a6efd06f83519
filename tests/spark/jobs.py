"""Pipelines in a separate process that reports its progress: ``python -m tests.spark.jobs MASTER``.

Its input is a line ``[JOB, {ARGUMENT: VALUE}]`` per job.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from jumpmq.management import ManagementClient
from jumpmq.spark import Router, delta_writer
from jumpmq.spark.pipelines.archive import archive
from jumpmq.spark.pipelines.publish import publish
from jumpmq.spark.pipelines.rebalance import rebalance
from jumpmq.spark.pipelines.session import session


def say(word: str, value: object = "") -> None:
    print(word, value, flush=True)


def run_archive(spark: SparkSession, url: str, table: str, limit: int) -> int:
    source = {"url": url, "exchange": "x", "maxMessagesPerTrigger": str(limit)}
    return archive(spark, source, table, progress=lambda rows: say("batch", rows))


def run_rebalance(spark: SparkSession, url: str, exchange: str, queues: str, checkpoint: str, limit: int) -> int:
    source = {"url": url, "queues": queues, "maxMessagesPerTrigger": str(limit)}
    router = Router.from_broker(url, exchange)
    return rebalance(spark, source, router, checkpoint, progress=lambda rows: say("batch", rows))


def run_pipelines(spark: SparkSession, url: str, table: str) -> int:
    """From ``x`` to a table, then to ``y``; at last rebalance the messages behind ``y`` over one queue more."""
    say("archived", run_archive(spark, url, table, 1000))
    say("published", publish(spark, table, "parquet", "routing_key", {"url": url, "exchange": "y"}, body="body"))
    broker = ManagementClient(url)
    broker.put("queues", "/", "y3", body={"durable": True})
    broker.post("bindings", "/", "e", "y", "q", "y3", body={"routing_key": "1"})
    return run_rebalance(spark, url, "y", "y1,y2,y3", f"{table}.rebalance", 1000)


def run_delta(spark: SparkSession, url: str, table: str, limit: int) -> int:
    """Into a Delta table; once, all processes are killed with a micro-batch in the table that Spark has not
    committed.
    """
    write, mark = delta_writer(table, "archive"), Path(f"{table}.killed")

    def write_and_die(frame: Any, number: int) -> None:
        write(frame, number)
        if number == 1 and not mark.exists():
            mark.touch()
            os.killpg(0, signal.SIGKILL)

    source = {"url": url, "exchange": "x", "maxMessagesPerTrigger": str(limit)}
    frame = spark.readStream.format("jumpmq").options(**source).load()
    writer = frame.writeStream.foreachBatch(write_and_die).option("checkpointLocation", f"{table}.checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    return 0


LONGEST = 120.0
"""Seconds that a task waits for its second attempt."""


def run_dawdling(spark: SparkSession, url: str, queue: str, marks: str, rows: int) -> int:
    """Write numbers to a queue, from a table and then from a stream.

    An attempt at a partition creates a file ``KIND-PARTITION-ATTEMPT``. The first attempt at the first partition waits
    in the middle for the second attempt.
    """
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10_000)

    def dawdling(kind: str) -> Any:
        def slow(batches: Any) -> Any:
            context = TaskContext.get()
            assert context is not None
            Path(marks, f"{kind}-{context.partitionId()}-{context.attemptNumber()}").touch()
            dawdles = context.partitionId() == 0 and context.attemptNumber() == 0
            until = time.monotonic() + LONGEST
            for batch in batches:
                yield batch
                while dawdles and not Path(marks, f"{kind}-0-1").exists() and time.monotonic() < until:
                    time.sleep(0.1)

        return slow

    def numbers(kind: str, frame: Any) -> Any:
        found = frame.selectExpr("cast(id as string) as body")
        return found.mapInArrow(dawdling(kind), found.schema)

    table = spark.range(0, rows, numPartitions=4)
    options = {"url": url, "queue": queue}
    numbers("table", table).write.format("jumpmq").mode("append").options(**options).save()
    table.write.parquet(f"{marks}/in")
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 4).parquet(f"{marks}/in")
    writer = numbers("stream", stream).writeStream.format("jumpmq").options(**options)
    writer.option("checkpointLocation", f"{marks}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    return rows


JOBS: dict[str, Callable[..., Any]] = {
    "delta": run_delta,
    "archive": run_archive,
    "rebalance": run_rebalance,
    "pipelines": run_pipelines,
    "dawdling": run_dawdling,
}


def main() -> None:
    with session(sys.argv[1], "jobs") as spark:
        say("ready")
        for line in sys.stdin:
            job, arguments = json.loads(line)
            say("done", JOBS[job](spark, **arguments))


if __name__ == "__main__":
    main()
