"""The queries of :mod:`tests.spark.kills`, in a killable process: ``python -m tests.spark.kill_jobs MASTER``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.jobs import say

from jumpmq.spark import delta_writer
from jumpmq.spark.pipelines.session import session

LIMIT = 10_000
"""Messages per micro-batch: few, for many micro-batches to kill."""

AGAIN = 0.5
"""Seconds before a failed query restarts."""


def to_parquet(rows: Any, directory: Path, url: str) -> Any:
    return rows.writeStream.format("parquet").option("path", str(directory / "parquet"))


def to_delta(rows: Any, directory: Path, url: str) -> Any:
    return rows.writeStream.foreachBatch(delta_writer(str(directory / "delta"), app="kills"))


def to_exchange(rows: Any, directory: Path, url: str) -> Any:
    return rows.writeStream.format("jumpmq").option("url", url).option("exchange", "back")


def from_streams(rows: Any, directory: Path, url: str) -> Any:
    return rows.writeStream.format("parquet").option("path", str(directory / "streams"))


STREAMS = "streams"
"""The query of streams, by offsets."""

QUERIES: dict[str, Callable[[Any, Path, str], Any]] = {
    "parquet": to_parquet, "delta": to_delta, "back": to_exchange, STREAMS: from_streams
}  # fmt: skip
"""The sinks of the queries; a query reads the exchange ``feed.NAME``."""


def dawdling(batches: Iterator[Any]) -> Iterator[Any]:
    """Delay the first attempt of some tasks, so that Spark starts speculative attempts."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    slow = context.attemptNumber() == 0 and context.taskAttemptId() % 10 == 0
    for batch in batches:
        if slow:
            time.sleep(2)
        yield batch


def start(spark: SparkSession, name: str, url: str, directory: Path) -> Any:
    source = {"url": url, "exchange": f"feed.{name}", "maxMessagesPerTrigger": str(LIMIT), "minPartitions": "3"}
    source |= {"startingOffsets": "earliest"} if name == STREAMS else {}
    rows = spark.readStream.format("jumpmq").options(**source).load().drop("queue", "exchange")
    writer = QUERIES[name](rows.mapInArrow(dawdling, rows.schema), directory, url)
    return writer.option("checkpointLocation", str(directory / f"{name}.checkpoint")).queryName(name).start()


def run(spark: SparkSession, url: str, directory: Path) -> None:
    """Keep all queries running until a file ``stop`` exists; report and restart failed queries."""
    running: dict[str, Any] = {}
    while not (directory / "stop").exists():
        for name in QUERIES:
            query = running.get(name)
            if query is not None and query.isActive:
                continue
            if query is not None:
                say("failed", json.dumps([name, str(query.exception()).strip()[:2000]]))
            try:
                running[name] = start(spark, name, url, directory)
            except PySparkException as error:
                say("failed", json.dumps([name, str(error).strip()[:2000]]))
        time.sleep(AGAIN)
    running[STREAMS].processAllAvailable()  # the other queries have finished when their queues are empty
    for query in running.values():
        query.stop()


def count(spark: SparkSession, url: str, directory: Path) -> dict[str, dict[str, int]]:
    """Number of arrivals per message: ``{WHERE: {"rows": N, "numbers": N, "highest": N}}``."""
    import deltalake

    tables = {
        "parquet": spark.read.parquet(str(directory / "parquet")),
        "delta": spark.read.parquet(*deltalake.DeltaTable(str(directory / "delta")).file_uris()),
        STREAMS: spark.read.parquet(str(directory / STREAMS)),
        "back": spark.read.format("jumpmq").option("url", url).option("exchange", "back").load(),
    }
    wanted = [
        "count(*) as rows",
        "count(distinct body) as numbers",
        "max(cast(cast(body as string) as long)) as highest",
    ]
    return {name: table.selectExpr(*wanted).collect()[0].asDict() for name, table in tables.items()}


def main() -> None:
    master, url, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with session(master, "kills") as spark:
        say("ready")
        run(spark, url, directory)
        say("counted", json.dumps(count(spark, url, directory)))


if __name__ == "__main__":
    main()
