"""Numbers of a checkpoint's next micro-batches, set above the numbers in the table: Spark would skip lower numbers.

Spark continues after the last micro-batch in a checkpoint's logs ``offsets`` and ``commits``. So these logs get an
empty micro-batch with the table's last number, which ends at the last offset of the checkpoint. The logs also get the
micro-batch before it, because Spark reads the end of that one.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource
from jumpmq.spark.starting import LOG_OF_FILES, last_number, read_text


def number_behind(spark: SparkSession, source: Mapping[str, str], table: str, checkpoint: str) -> None:
    """Number a query's next micro-batch after the table's last one.

    Args:
        source: options of the query's source.
        table: the folder that the query is to write to; the table has micro-batches.
        checkpoint: the query's checkpoint; created unless it has a micro-batch.

    Raises:
        JumpMQError: the last micro-batch of the checkpoint is not complete.
    """
    has, done = last_number(spark, f"{table}/{LOG_OF_FILES}"), last_number(spark, f"{checkpoint}/offsets")
    assert has is not None, "the table has micro-batches"
    if done is not None and last_number(spark, f"{checkpoint}/commits") != done:
        raise JumpMQError(
            f"micro-batch {done} of {checkpoint} is not complete: run the query to its end with its former table, or "
            "give --checkpoint a new directory"
        )
    jvm: Any = spark._jvm
    target = jvm.org.apache.hadoop.fs.Path(checkpoint)
    files = target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def write(folder: str, name: str, text: str) -> None:
        out = files.create(jvm.org.apache.hadoop.fs.Path(f"{folder}/{name}"), True)
        try:
            out.write(bytearray(text.encode()))
        finally:
            out.close()

    if done is not None:
        _write_logs(write, checkpoint, has, read_text(spark, f"{checkpoint}/offsets/{done}"))
        return
    begun = f"{checkpoint.rstrip('/')}.{uuid.uuid4().hex[:8]}"  # renamed once complete
    write(begun, "metadata", json.dumps({"id": str(uuid.uuid4())}))
    times = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
    initial = JumpMQDataSource(dict(source)).streamReader(SCHEMA).initialOffset()
    _write_logs(write, begun, has, f"v1\n{json.dumps(times)}\n{json.dumps(initial)}")
    files.delete(target, True)  # it has no micro-batch
    files.rename(jvm.org.apache.hadoop.fs.Path(begun), target)


def _write_logs(write: Callable[[str, str, str], None], folder: str, last: int, offsets: str) -> None:
    for number in range(max(0, last - 1), last + 1):
        write(folder, f"offsets/{number}", offsets)
        write(folder, f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')
