"""Micro-batches into a Delta table, each once, by the package ``deltalake``: no jar is needed."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame


def delta_writer(table: str, app: str) -> Callable[[DataFrame, int], None]:
    """What ``foreachBatch`` takes to append to a Delta table.

    The table notes, in the commit of the rows themselves, which micro-batch it has (Delta's transaction of an
    application), so that one that is repeated after a failure is passed over. A micro-batch passes through the driver's
    memory: bound it with ``maxMessagesPerTrigger``.

    Args:
        table: its URI; made when the first micro-batch comes.
        app: names the query to the table: another one for each query, the same after a restart from its checkpoint.
    """

    def write(frame: DataFrame, number: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        done = DeltaTable(table).transaction_version(app) if DeltaTable.is_deltatable(table) else None
        if done is None or done < number:
            noted = CommitProperties(app_transactions=[Transaction(app, number)])
            write_deltalake(table, frame.toArrow(), mode="append", commit_properties=noted)

    return write
