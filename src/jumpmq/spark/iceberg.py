"""Micro-batches into an Iceberg table, each once, by the package ``pyiceberg``: no jar is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame


def iceberg_writer(catalog: Mapping[str, str], table: str, app: str) -> Callable[[DataFrame, int], None]:
    """What ``foreachBatch`` takes to append to an Iceberg table.

    The commit that adds the rows notes in a property of the table, ``jumpmq.APP``, which micro-batch it has, so that
    one that is repeated after a failure is passed over. A micro-batch passes through the driver's memory: bound it with
    ``maxMessagesPerTrigger``.

    Args:
        catalog: what pyiceberg's ``load_catalog`` takes: ``name``, ``type``, ``uri``, ``warehouse`` and others.
        table: ``NAMESPACE.NAME``; made, with its namespace, when the first micro-batch comes.
        app: names the query to the table: another one for each query, the same after a restart from its checkpoint.
    """

    def write(frame: DataFrame, number: int) -> None:
        from pyiceberg.catalog import load_catalog

        rows = frame.toArrow()
        rows = rows.cast(pa.schema([field.with_type(_in_utc(field.type)) for field in rows.schema]))
        found = load_catalog(**catalog)
        found.create_namespace_if_not_exists(table.rpartition(".")[0])
        into = found.create_table_if_not_exists(table, schema=rows.schema)
        if int(into.properties.get(f"jumpmq.{app}", -1)) < number:
            with into.transaction() as commit:
                commit.append(rows)
                commit.set_properties({f"jumpmq.{app}": str(number)})

    return write


def _in_utc(type_: pa.DataType) -> pa.DataType:
    """The same with timestamps in UTC, of which alone Iceberg knows; Spark names the session's time zone."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_in_utc(type_.key_type), _in_utc(type_.item_type))
    return pa.list_(_in_utc(type_.value_type)) if pa.types.is_list(type_) else type_
