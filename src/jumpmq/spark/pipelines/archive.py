"""Archive of an exchange's queues in a Parquet table, once or continuously."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, date_trunc

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.pipelines.alone import require_alone
from jumpmq.spark.pipelines.continuing import number_behind
from jumpmq.spark.pipelines.session import followed, known_to_source
from jumpmq.spark.starting import passed_over
from jumpmq.spark.streams.kinds import reads_streams


def archive(
    spark: SparkSession,
    source: Mapping[str, str],
    table: str,
    checkpoint: str | None = None,
    *,
    by_hour: bool = False,
    continuous: bool = False,
    go_on: bool = False,
    interval: str = "10 seconds",
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Move messages into a table partitioned by queue, exactly once; return their number.

    Args:
        source: options of the source; streams are read from the beginning unless the options name another start.
        table: the table's directory, on any file system known to Spark.
        checkpoint: directory of the checkpoint; by default beside the table.
        by_hour: True to partition the table also by the hour of publishing.
        continuous: True to run until the query is stopped; False to archive the messages present at the start.
        go_on: True to continue, with this checkpoint, a table written with another checkpoint.
        interval: time between two micro-batches, if continuous.
        progress: called with the number of rows of each micro-batch.

    Raises:
        JumpMQError: the table was written with another checkpoint, and ``go_on`` is false, or another run with the
            same checkpoint is active; no message is taken.
    """
    checkpoint = checkpoint or f"{table.rstrip('/')}.checkpoint"
    if reads_streams(SourceOptions.parse(source)):
        source = {"startingOffsets": "earliest"} | dict(source)
    require_alone(spark, source, checkpoint)
    if (reason := passed_over(spark, table, checkpoint)) is not None:
        if not go_on:
            raise JumpMQError(reason)
        number_behind(spark, source, table, checkpoint)
    frame, parts = spark.readStream.format("jumpmq").options(**source, **known_to_source(checkpoint)).load(), ["queue"]
    if by_hour:
        frame, parts = frame.withColumn("hour", date_trunc("hour", col("published_at"))), ["queue", "hour"]
    writer = frame.writeStream.format("parquet").partitionBy(*parts).option("path", table)
    writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.trigger(processingTime=interval) if continuous else writer.trigger(availableNow=True)
    return followed(writer.start(), progress)
