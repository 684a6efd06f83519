"""Parquet files written by the tasks of a job, for tables that the driver commits."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from jumpmq.spark.errors import JumpMQError

GROUP_ROWS = 1 << 17
GROUP_OCTETS = 64 << 20
"""Maximum size of a row group, and so of a task's memory, in octets."""

Open = Callable[[str], pa.NativeFile]
"""Opens a new file with the given name; runs in tasks."""


class WrittenFile(NamedTuple):
    """A file written by a task."""

    name: str
    rows: int
    octets: int


def require(package: str, needed_by: str, install: str) -> None:
    """Refuse unless a package is installed.

    Raises:
        JumpMQError: the package is missing; the text has the command that installs it.
    """
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # the parent package is missing
        found = None
    if found is None:
        raise JumpMQError(f"{needed_by} needs the package {package}: pip install '{install}'")


def query_of(frame: DataFrame) -> str | None:
    """Return the id of the streaming query of a micro-batch's frame; None outside a query and over Spark Connect.

    The query's checkpoint keeps the id.
    """
    try:
        query: str | None = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    except PySparkException:
        return None
    return query


def another_query(app: str, done: int) -> JumpMQError:
    """Return the error for a query whose first micro-batches would be skipped."""
    return JumpMQError(
        f"the table has micro-batches up to {done} of '{app}', from a query with another checkpoint, so that "
        "micro-batches of this query would be skipped: give 'app' another name"
    )


def write_files(frame: DataFrame, open_file: Open) -> list[WrittenFile]:
    """Write the rows of every task into a file; a task without rows writes none.

    The result has one file per successful task. Files of failed or duplicate attempts are not in the result, and so
    belong to no table.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = _write(batches, open_file)
        if written is not None:
            yield pa.record_batch({"name": [written.name], "rows": [written.rows], "octets": [written.octets]})

    rows = frame.mapInArrow(write, "name string, rows bigint, octets bigint").collect()
    return [WrittenFile(row["name"], row["rows"], row["octets"]) for row in rows]


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the schema of the files, without computing a row."""
    return _in_utc(frame.limit(0).toArrow().schema)


def _write(batches: Iterator[pa.RecordBatch], open_file: Open) -> WrittenFile | None:
    groups = _groups(batches)
    first = next(groups, None)
    if first is None:
        return None
    name = f"part-{uuid.uuid4()}.parquet"
    with open_file(name) as file:
        with pq.ParquetWriter(file, first.schema) as writer:
            rows = _write_groups(writer, first, groups)
        octets = file.tell()
    return WrittenFile(name, rows, octets)


def _write_groups(writer: pq.ParquetWriter, first: pa.Table, others: Iterator[pa.Table]) -> int:
    writer.write_table(first)
    rows = len(first)
    for group in others:
        writer.write_table(group)
        rows += len(group)
    return rows


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = octets = 0
    for batch in batches:
        if len(batch):
            waiting.append(batch)
            rows, octets = rows + len(batch), octets + batch.nbytes
        if rows >= GROUP_ROWS or octets >= GROUP_OCTETS:
            yield _table(waiting)
            waiting, rows, octets = [], 0, 0
    if waiting:
        yield _table(waiting)


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    found = pa.Table.from_batches(batches)
    return found.cast(_in_utc(found.schema))


def _in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_type_in_utc(field.type)) for field in schema])


def _type_in_utc(type_: pa.DataType) -> pa.DataType:
    """Return a type with timestamps in UTC, the only zone of Delta and Iceberg tables; Spark has the session's zone."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_type_in_utc(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_type_in_utc(type_.key_type), _type_in_utc(type_.item_type))
    return pa.list_(_type_in_utc(type_.value_type)) if pa.types.is_list(type_) else type_
