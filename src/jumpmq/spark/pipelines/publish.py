"""Publishing of tables and streams to an exchange."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, lit, struct, to_json
from pyspark.sql.types import ArrayType, MapType, StructType

from jumpmq.spark.client import Client
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.message_keys import header
from jumpmq.spark.router import hashed_by
from jumpmq.spark.schema import PROPERTIES, SCHEMA
from jumpmq.spark.sink import SinkOptions

FORMATS = ("parquet", "csv", "json")


def publish(
    spark: SparkSession, path: str, format: str, key: str, target: Mapping[str, str], body: str | None = None
) -> int:
    """Publish every row of a table; return the number of rows.

    Args:
        path: the table's files.
        format: ``parquet``, ``csv`` or ``json``.
        key: the column that becomes the routing key and, if the exchange hashes a header or property, that too.
        target: options of the sink.
        body: the column that becomes the body; None for all columns as JSON.

    Raises:
        JumpMQError: a column does not exist, or the type of the key's column is no type of keys.
    """
    frame = read(spark, path, format)
    for name in (key, body):
        if name is not None and name not in frame.columns:
            raise JumpMQError(f"there is no column '{name}' in {path}; there are {', '.join(frame.columns)}")
    if isinstance(frame.schema[key].dataType, ArrayType | MapType | StructType):
        type_ = frame.schema[key].dataType.simpleString()
        raise JumpMQError(f"column '{key}' in {path} is of type {type_}, which is no key: text, octets and numbers are")
    content = to_json(struct(*frame.columns)) if body is None else col(body)
    rows = frame.select(
        col(key).cast("string").alias("routing_key"), content.alias("body"), *_hashed(key, frame, target)
    )
    return _write(rows, target)


def _hashed(key: str, frame: DataFrame, target: Mapping[str, str]) -> list[Column]:
    """Return the column with the header or property that the exchange hashes; empty if it hashes the routing key."""
    options = SinkOptions.parse(dict(target))
    if options.exchange is None or options.broker.speaks_amqp:
        return []
    hashed = hashed_by(Client(options.broker).exchange(options.exchange))
    if hashed is None:
        return []
    kind, name = hashed
    if kind == "property":
        return [col(key).cast(PROPERTIES[name].dataType).alias(name)]
    return [header(name, col(key), frame.schema[key].dataType).alias("amqp_properties")]


def replay(spark: SparkSession, table: str, target: Mapping[str, str], where: str | None = None) -> int:
    """Publish the rows of an archived table again, in the order of each queue; return the number of rows.

    Args:
        target: options of the sink; without exchange and queue, a message goes to its original exchange.
        where: a SQL condition on the table's columns, to select rows.

    Raises:
        JumpMQError: the table is not an archive.
    """
    frame = spark.read.parquet(table)
    missing = {"queue", "seq", "routing_key", "body"} - set(frame.columns)
    if missing:
        raise JumpMQError(f"{table} was not made by `jumpmq pipeline archive`: it has no column '{min(missing)}'")
    return _replayed(frame, target, where)


def replay_stream(
    spark: SparkSession, source: Mapping[str, str], target: Mapping[str, str], where: str | None = None
) -> int:
    """Publish the messages of streams again, in the order of the stream; return the number of messages.

    Args:
        source: options of the source: the stream, and optionally ``startingOffsets`` and ``endingOffsets``.
        target, where: as for :func:`replay`.
    """
    return _replayed(spark.read.format("jumpmq").options(**source).load(), target, where)


def _replayed(frame: DataFrame, target: Mapping[str, str], where: str | None) -> int:
    found = frame if where is None else frame.where(where)
    ordered = found.repartition("queue").sortWithinPartitions("queue", "seq")
    dropped = {"queue", *({"exchange"} if {"exchange", "queue"} & set(target) else ())}
    return _write(
        ordered.select(*(name for name in SCHEMA.names if name in frame.columns and name not in dropped)), target
    )


def read(spark: SparkSession, path: str, format: str) -> DataFrame:
    """Return a table from files; the first line of a CSV file has the names of the columns."""
    reader = spark.read.option("header", True) if format == "csv" else spark.read
    return reader.format(format).load(path)


def _write(rows: DataFrame, target: Mapping[str, str]) -> int:
    counted = Observation()
    rows.observe(counted, count(lit(1)).alias("rows")).write.format("jumpmq").mode("append").options(**target).save()
    found: int = counted.get["rows"]
    return found
