"""Checks of a streaming query at its start, in the driver, where source, sink and checkpoint of a query are known.

How it works. Spark calls its listeners at a query's start in the query's own thread, before the first micro-batch is
planned. So a listener can still refuse the query:

- Spark's file sinks (Parquet, CSV, JSON) record the numbers of a table's micro-batches in the folder
  ``_spark_metadata``, and skip a micro-batch with a recorded number. A query with another checkpoint numbers its
  micro-batches from 0 again, so that its messages would be acknowledged and not written. Such a query is refused. For a
  table without micro-batches, the query writes a claim file (:data:`CLAIM`), so that a second query, also of another
  process, is refused. The file is deleted at the end of the query.
- Spark gives a Python sink the columns' types only. A constant that cannot be published is refused before the first
  micro-batch is read (:mod:`jumpmq.spark.constants`).
- Spark does not give the query's checkpoint to the process that plans the query. The listener writes it to a file in
  the temporary folder (:mod:`jumpmq.spark.checkpoints`), so that a micro-batch is acknowledged as soon as Spark's
  commit log has it.

Over Spark Connect, and in a session without :func:`jumpmq.spark.register`, there is no listener.
"""

from __future__ import annotations

import re
import sys
import traceback
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jumpmq.spark.checkpoints import announce_checkpoint
from jumpmq.spark.constants import problem_with

LOG_OF_FILES = "_spark_metadata"
"""Subfolder of a table with the log of Spark's file sink."""

CLAIM = "_jumpmq_query"
"""File in a table without micro-batches, with the id of the query that writes to the table."""

_FILE_SINK = re.compile(r"FileSink\[(.*)\]", re.DOTALL)

_listening: set[str] = set()
"""Ids of sessions with a listener."""


def listen(spark: SparkSession) -> None:
    """Check all streaming queries of a session that start after this call."""
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    session = f"{spark.sparkContext.applicationId} {spark._jsparkSession.sessionUUID()}"
    if session in _listening:
        return
    _listening.add(session)
    ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
    jvm: Any = spark._jvm
    listener = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(StartListener(spark))
    spark.streams._jsqm.addListener(listener)


class StartListener:
    """A listener by Java's interface: events stay in the JVM, as only start and end of a query matter."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._claimed: dict[str, str] = {}  # claimed tables, by the id of the query's run

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's names, here and below)
        try:
            table = check_query(self._spark, self._spark.streams._jsqm.get(event.id()))
            if table is not None:
                self._claimed[str(event.runId())] = table
        except Exception:  # the query runs unchecked
            traceback.print_exc(file=sys.stderr)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        if (table := self._claimed.pop(str(event.runId()), None)) is not None:
            with suppress(Exception):  # file system or Spark is gone: the file stays, and claim() tells the remedy
                file, files = _file(self._spark, f"{table}/{CLAIM}")
                files.delete(file, False)

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def check_query(spark: SparkSession, query: Any) -> str | None:
    """Check a starting query; return the table that the query has claimed, if any.

    Args:
        query: Spark's query, in the JVM.
    """
    execution = query.streamingQuery()
    plan = execution.analyzedPlan()
    if _writes_jumpmq(execution) and (reason := problem_with(plan)) is not None:
        _refuse(spark._jvm, query, execution, reason)
        return None
    if not _reads_jumpmq(plan):
        return None
    checkpoint = execution.resolvedCheckpointRoot()
    jvm: Any = spark._jvm
    announce_checkpoint(jvm.java.lang.ProcessHandle.current().pid(), checkpoint)
    sink = _FILE_SINK.fullmatch(execution.sink().toString())
    if sink is None:
        return None
    table = sink[1]
    reason = also_written(spark, query, table) or passed_over(spark, table, checkpoint)
    is_new = reason is None and last_number(spark, f"{table}/{LOG_OF_FILES}") is None
    if is_new:
        reason = claim(spark, str(query.id()), table)
    if reason is not None:
        _refuse(jvm, query, execution, reason)
        return None
    return table if is_new else None


def also_written(spark: SparkSession, query: Any, table: str) -> str | None:
    """Return the reason to refuse a query if another running query of the session writes its table; None otherwise.

    Args:
        query: the starting query.
        table: the folder that the query writes to.
    """
    for one in spark.streams._jsqm.active():
        if one.id() != query.id() and one.streamingQuery().sink().toString() == f"FileSink[{table}]":
            return (
                f"{table} is also written by the running query {one.id()}: Spark skips a micro-batch whose number the "
                "table has from the other query, and its messages would not be written. No message was taken. Give "
                "each query a path of its own, or make one query of both sources, with unionByName"
            )
    return None


def passed_over(spark: SparkSession, table: str, checkpoint: str) -> str | None:
    """Return the reason for Spark to skip the next micro-batches of a query that writes files; None if it would not.

    Args:
        table: the folder that the query writes to.
        checkpoint: the query's checkpoint.
    """
    has = last_number(spark, f"{table}/{LOG_OF_FILES}")
    done = last_number(spark, f"{checkpoint}/offsets")
    if has is None or (done is not None and done >= has):
        return None
    known = "none" if done is None else f"those up to {done}"
    return (
        f"{table} has micro-batches up to number {has} of a query with another checkpoint, and {checkpoint} has "
        f"{known}: Spark would skip the next micro-batches, and their messages would not be written. No message was "
        "taken. Write to another path, or use the checkpoint of the table's first query; "
        "`jumpmq pipeline archive --continue` continues with another checkpoint"
    )


def claim(spark: SparkSession, query: str, table: str) -> str | None:
    """Claim a table without micro-batches for a query; return the reason if another query has claimed the table.

    Args:
        query: the id of the query, kept by its checkpoint.
        table: the folder that the query writes to.
    """
    location = f"{table}/{CLAIM}"
    file, files = _file(spark, location)
    if not files.exists(file):
        try:
            made = files.create(file, False)
        except Py4JJavaError:
            if not files.exists(file):
                raise
        else:
            made.write(bytearray(query.encode()))
            made.close()
            return None
    owner = read_text(spark, location).strip()
    if owner == query:
        return None
    return (
        f"{table} is also written by query {owner}, of another session or process: Spark would "
        "skip micro-batches of one of the two, and their messages would not be written. No message was taken. "
        f"Write to another path; or, if that query does not run any more, delete {location}"
    )


def _file(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """Return a Hadoop path and its file system."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def last_number(spark: SparkSession, folder: str) -> int | None:
    """Return the highest micro-batch number in a log of Spark; None if the log is empty or missing."""
    path, files = _file(spark, folder)
    if not files.exists(path):
        return None
    names = [found.getPath().getName().removesuffix(".compact") for found in files.listStatus(path)]
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)


def read_text(spark: SparkSession, file: str) -> str:
    """Read a text file from any file system known to Spark."""
    jvm: Any = spark._jvm
    path, files = _file(spark, file)
    opened = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
    finally:
        opened.close()


def _reads_jumpmq(plan: Any) -> bool:
    leaves = plan.collectLeaves()
    for place in range(leaves.size()):
        with suppress(Exception):  # unknown classes of sources
            if leaves.apply(place).sourceName() == "jumpmq":
                return True
    return False


def _writes_jumpmq(execution: Any) -> bool:
    with suppress(Exception):  # unknown classes of sinks
        return bool(execution.sink().name() == "jumpmq")
    return False


def _refuse(jvm: Any, query: Any, execution: Any, reason: str) -> None:
    """End a starting query with an error."""
    error = f"jumpmq.spark.errors.JumpMQError: {reason}"
    print(f"jumpmq: query refused: {reason}", file=sys.stderr)
    package = execution.state().get().getClass().getPackageName()
    states = jvm.java.lang.Class.forName(f"{package}.TERMINATED$", True, execution.getClass().getClassLoader())
    ended = states.getField("MODULE$").get(None)
    cause = jvm.java.lang.IllegalStateException(error)
    nothing = jvm.PythonUtils.toScalaMap({})
    failure = jvm.org.apache.spark.sql.streaming.StreamingQueryException(error, cause, "STREAM_FAILED", nothing)
    getattr(execution, "streamDeathCause_$eq")(failure)
    execution.state().set(ended)  # the query then ends at once, and raises the error
