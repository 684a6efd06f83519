"""Writing micro-batches to an Iceberg table, exactly once, with the package ``pyiceberg``: no jar is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from jumpmq.spark.files import another_query, arrow_schema, query_of, require, write_files


def iceberg_writer(catalog: Mapping[str, str], table: str, app: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that appends to an Iceberg table.

    The tasks write the table's files, and the driver commits them. The commit sets two properties of the table:
    ``jumpmq.APP``, the number of the micro-batch, and ``jumpmq.APP.query``, the id of the query. So a micro-batch
    repeated after a failure is skipped. Columns that the table lacks are added.

    Args:
        catalog: arguments of pyiceberg's ``load_catalog``: ``name``, ``type``, ``uri``, ``warehouse`` and others.
        table: ``NAMESPACE.NAME``; the first micro-batch creates the table and its namespace.
        app: name of the query in the table: different for each query, and the same after a restart from the query's
            checkpoint. A query with another checkpoint is refused, as its micro-batches are numbered from 0 again.

    Raises:
        JumpMQError: ``pyiceberg`` is not installed.
    """
    require("pyiceberg", "iceberg_writer", "pyiceberg[sql-sqlite]")

    def write(frame: DataFrame, number: int) -> None:
        from pyiceberg.catalog import load_catalog

        found = load_catalog(**catalog)
        if not found.table_exists(table):
            found.create_namespace_if_not_exists(table.rpartition(".")[0])
            found.create_table_if_not_exists(table, schema=arrow_schema(frame))
        into, query = found.load_table(table), query_of(frame)
        if (done := int(into.properties.get(f"jumpmq.{app}", -1))) >= number:
            if query is not None and into.properties.get(f"jumpmq.{app}.query", query) != query:
                raise another_query(app, done)
            return
        if set(frame.columns) - {field.name for field in into.schema().fields}:
            with into.update_schema() as update:
                update.union_by_name(arrow_schema(frame))
        place = f"{into.location()}/data"
        files = write_files(frame, _opener(dict(into.io.properties), place))
        with into.transaction() as commit:
            if files:
                commit.add_files([f"{place}/{file.name}" for file in files], check_duplicate_files=False)
            commit.set_properties(
                {f"jumpmq.{app}": str(number)} | ({} if query is None else {f"jumpmq.{app}.query": query})
            )

    return write


def _opener(properties: dict[str, str], place: str) -> Callable[[str], pa.NativeFile]:
    def open_file(name: str) -> pa.NativeFile:
        from pyiceberg.io import load_file_io

        location = f"{place}/{name}"
        created = load_file_io(properties, location).new_output(location).create()
        file: pa.NativeFile = created if isinstance(created, pa.NativeFile) else pa.PythonFile(created, "w")
        return file

    return open_file
