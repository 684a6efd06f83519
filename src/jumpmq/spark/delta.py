"""Writing micro-batches to a Delta table, exactly once, with the package ``deltalake``: no jar is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.files import WrittenFile, another_query, arrow_schema, query_of, require, write_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction


def delta_writer(
    table: str, app: str, storage_options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that appends to a Delta table.

    The tasks write the table's files, and the driver commits them. The commit contains the number of the micro-batch
    (Delta's application transaction), so that a micro-batch repeated after a failure is skipped. Columns that the table
    lacks are added. A micro-batch with a column of another type than the table's is refused before anything is
    written; so is a table with partitions or constraints.

    Args:
        table: path or URI of the table, valid on all machines; the first micro-batch creates the table.
        app: name of the query in the table: different for each query, and the same after a restart from the query's
            checkpoint. A query with another checkpoint is refused, as its micro-batches are numbered from 0 again.
        storage_options: options of ``deltalake``, such as credentials of an object store.

    Raises:
        JumpMQError: ``deltalake`` is not installed.
    """
    require("deltalake", "delta_writer", "deltalake")
    options = dict(storage_options or {})
    uri = table if "://" in table else str(Path(table).absolute())

    def write(frame: DataFrame, number: int) -> None:
        from deltalake import CommitProperties, Transaction

        found, query = _table(uri, options, frame), query_of(frame)
        noted = [app] if query is None else [app, f"{app} {query}"]
        done = found.transaction_version(app)
        if done is not None and done >= number:
            if found.transaction_version(noted[-1]) is None:
                raise another_query(app, done)
            return
        added: list[AddAction | RemoveAction] = [_action(file) for file in write_files(frame, _opener(uri, options))]
        properties = CommitProperties(app_transactions=[Transaction(name, number) for name in noted])
        found.create_write_transaction(added, "append", found.schema(), commit_properties=properties)

    return write


def _table(uri: str, options: dict[str, str], frame: DataFrame) -> DeltaTable:
    """Return the table, created or with columns added where the frame has more.

    Raises:
        JumpMQError: the table cannot take rows of this frame.
    """
    from deltalake import DeltaTable, Schema

    if not DeltaTable.is_deltatable(uri, options):
        return DeltaTable.create(uri, arrow_schema(frame), mode="ignore", storage_options=options)
    found, wanted = DeltaTable(uri, storage_options=options), Schema.from_arrow(arrow_schema(frame)).fields
    _require_plain(found)
    known = {field.name: field for field in found.schema().fields}
    for field in wanted:
        if field.name in known and _kind(field.type) != _kind(known[field.name].type):
            raise JumpMQError(
                f"column '{field.name}' is of type {_shown(field.type)}, and of type {_shown(known[field.name].type)} "
                f"in the Delta table at {uri}: cast it"
            )
    nullable = {field.name for field in wanted if field.nullable}
    for field in known.values():
        if not field.nullable and (field.name in nullable or field.name not in frame.columns):
            raise JumpMQError(
                f"column '{field.name}' must not be null in the Delta table at {uri}, and may be here: "
                "coalesce it with another value"
            )
    if lacking := [field for field in wanted if field.name not in known]:
        found.alter.add_columns(lacking)
    return found


def _require_plain(table: DeltaTable) -> None:
    """Refuse a table with features beyond plain rows in files.

    Raises:
        JumpMQError: the table has partitions, constraints, or a column mapping.
    """
    shown, fields = table.metadata(), table.schema().fields
    configured = shown.configuration
    if shown.partition_columns:
        what = f"is partitioned by {', '.join(shown.partition_columns)}"
    elif any(name.startswith("delta.constraints.") for name in configured) or any(
        name in field.metadata for field in fields for name in ("delta.invariants", "delta.generationExpression")
    ):
        what = "has constraints"
    elif configured.get("delta.columnMapping.mode", "none") != "none":
        what = "maps columns to different names"
    else:
        return
    raise JumpMQError(
        f"the Delta table at {table.table_uri} {what}, which delta_writer does not write: write to another"
    )


def _kind(type_: Any) -> Any:
    """Return a type without nullability."""
    return _without_nullability(json.loads(type_.to_json()))


def _without_nullability(type_: Any) -> Any:
    if isinstance(type_, list):
        return [_without_nullability(one) for one in type_]
    if not isinstance(type_, dict):
        return type_
    left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
    return {name: _without_nullability(value) for name, value in type_.items() if name not in left_out}


def _shown(type_: Any) -> str:
    kind = _kind(type_)
    return kind if isinstance(kind, str) else json.dumps(kind)


def _opener(uri: str, options: dict[str, str]) -> Callable[[str], pa.NativeFile]:
    def open_file(name: str) -> pa.NativeFile:
        from deltalake.fs import DeltaStorageHandler

        file: pa.NativeFile = DeltaStorageHandler(uri, options).open_output_stream(name)
        return file

    return open_file


def _action(file: WrittenFile) -> AddAction:
    from deltalake.transaction import AddAction

    now = int(time.time() * 1000)
    return AddAction(file.name, file.octets, {}, now, True, json.dumps({"numRecords": file.rows}))
