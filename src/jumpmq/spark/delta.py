"""Micro-batches into a Delta table, each once, by the package ``deltalake``: no jar is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from jumpmq.spark.files import File, arrow_schema, require, write_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction


def delta_writer(
    table: str, app: str, storage_options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """What ``foreachBatch`` takes to append to a Delta table.

    The tasks write the table's files, and the driver commits them. The commit notes which micro-batch it has (Delta's
    transaction of an application), so that one that is repeated after a failure is passed over. Columns that the table
    lacks are added to it.

    Args:
        table: its path or URI, for all machines; made when the first micro-batch comes.
        app: names the query to the table: another one for each query, the same after a restart from its checkpoint.
        storage_options: of ``deltalake``, such as credentials of an object store.

    Raises:
        JumpMQError: ``deltalake`` is not installed.
    """
    require("deltalake", "delta_writer", "deltalake")
    options = dict(storage_options or {})
    uri = table if "://" in table else str(Path(table).absolute())

    def write(frame: DataFrame, number: int) -> None:
        from deltalake import CommitProperties, Transaction

        found = _table(uri, options, frame)
        done = found.transaction_version(app)
        if done is not None and done >= number:
            return
        added: list[AddAction | RemoveAction] = [_action(file) for file in write_files(frame, _opener(uri, options))]
        noted = CommitProperties(app_transactions=[Transaction(app, number)])
        found.create_write_transaction(added, "append", found.schema(), commit_properties=noted)

    return write


def _table(uri: str, options: dict[str, str], frame: DataFrame) -> DeltaTable:
    """The table, with all columns of a frame."""
    from deltalake import DeltaTable, Schema

    if not DeltaTable.is_deltatable(uri, options):
        return DeltaTable.create(uri, arrow_schema(frame), mode="ignore", storage_options=options)
    found = DeltaTable(uri, storage_options=options)
    lacking = set(frame.columns) - {field.name for field in found.schema().fields}
    if lacking:
        wanted = Schema.from_arrow(arrow_schema(frame)).fields
        found.alter.add_columns([field for field in wanted if field.name in lacking])
    return found


def _opener(uri: str, options: dict[str, str]) -> Callable[[str], pa.NativeFile]:
    def open_file(name: str) -> pa.NativeFile:
        from deltalake.fs import DeltaStorageHandler

        file: pa.NativeFile = DeltaStorageHandler(uri, options).open_output_stream(name)
        return file

    return open_file


def _action(file: File) -> AddAction:
    from deltalake.transaction import AddAction

    now = int(time.time() * 1000)
    return AddAction(file.name, file.octets, {}, now, True, json.dumps({"numRecords": file.rows}))
