"""Proof of order for data too large for one process; see :mod:`jumpmq.ordering.verification`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

MISSING = {"number": "bigint", "message": "string", "consumer": "string"}
"""Optional columns, with their types."""


def verify(handled: DataFrame, *order: str | Column) -> DataFrame:
    """Find rows that violate a guarantee of order.

    Args:
        handled: records of handled messages, as written by consumers, with the columns ``key``, ``epoch`` and
            ``number`` or ``message`` (:mod:`jumpmq.ordering.verification`).
        order: columns that sort rows by the time of their effect, such as a table's sequence; by default ``time``,
            which is only as exact as the consumers' clocks.

    Returns:
        A row for each fault, none if all guarantees held: the columns of ``handled``, and ``fault``, which is
        ``order``, ``once`` or ``owner``.
    """
    absent = [f.lit(None).cast(kind).alias(name) for name, kind in MISSING.items() if name not in handled.columns]
    rows = handled.select("*", *absent)
    by = order or ("time",)
    before = Window.partitionBy("key").orderBy(*by).rowsBetween(Window.unboundedPreceding, -1)
    message = f.when(f.col("number").isNull(), f.col("message")).otherwise(f.col("number").cast("string"))
    handled_before = f.row_number().over(Window.partitionBy("key", "_message").orderBy(*by)) > 1
    first = f.first("consumer").over(Window.partitionBy("key", "epoch").orderBy(*by))
    known = rows.withColumn("_message", message).select(
        "*",
        f.max("epoch").over(before).alias("_latest"),
        first.alias("_owner"),
        f.max("number").over(before).alias("_highest"),
        (f.col("_message").isNotNull() & handled_before).alias("_again"),
    )
    again, epoch = f.col("_again"), f.col("epoch")
    other = (epoch == f.col("_latest")) & ~f.col("consumer").eqNullSafe(f.col("_owner"))
    stale = (epoch < f.col("_latest")) | other
    faults = f.array_compact(
        f.array(
            f.when(stale, "owner"),
            f.when(again, "once"),
            f.when(~again & (f.col("number") < f.col("_highest")), "order"),
        )
    )
    found = known.withColumn("fault", f.explode(faults))
    return found.select(*handled.columns, "fault")
