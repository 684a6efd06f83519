"""Micro-batches into a Delta table, written by the tasks exactly once."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sources import numbered, publish, run_available, stream

import jumpmq
from jumpmq.spark import JumpMQError, delta_writer

deltalake = pytest.importorskip("deltalake")


@pytest.mark.slow
def test_a_query_that_dies_between_the_two_commits_repeats_nothing(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 60))
    path = str(tmp_path / "lake")
    write = delta_writer(path, "archive")
    died: list[int] = []

    def write_and_die(frame: DataFrame, number: int) -> None:
        frame.toArrow = None  # type: ignore[assignment, method-assign]  # no row passes through the driver
        write(frame, number)
        if number == 1 and not died:
            died.append(number)
            raise RuntimeError("lightning")

    def query(*columns: str, **options: Any) -> DataFrame:
        return stream(spark, broker, exchange="x", maxMessagesPerTrigger=20, minPartitions=2, **options).drop(*columns)

    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(query("amqp_properties"), tmp_path, write_and_die)
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 40
    run_available(query("amqp_properties"), tmp_path, write_and_die)
    table = deltalake.DeltaTable(path)
    rows = table.to_pyarrow_table()
    assert sorted(rows["body"].to_pylist()) == published
    assert {one["delivery_mode"] for one in rows["properties"].to_pylist()} == {2}
    assert table.transaction_version("archive") >= 2
    assert len(table.file_uris()) >= 6, "a file of each task"
    more = publish(channel, numbered(61, 80))
    run_available(query(), tmp_path, write)
    found = deltalake.DeltaTable(path).to_pyarrow_table()
    assert sorted(found["body"].to_pylist()) == published + more
    assert found["amqp_properties"].null_count == 60, "a column that the table lacked"


@pytest.mark.slow
def test_a_query_with_a_new_checkpoint_is_not_taken_for_the_old_one(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 5))
    write = delta_writer(str(tmp_path / "lake"), "archive")
    frame = stream(spark, broker, queue="q1")
    run_available(frame, tmp_path, write)
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="'archive', from a query with another checkpoint"):
        run_available(frame, tmp_path, write)


@pytest.mark.parametrize(
    ("row", "refusal"),
    [
        ("'two' as id", "column 'id' is of type string, and of type long in the Delta table"),
        ("2 as id", "column 'id' is of type integer, and of type long"),
        ("named_struct('a', 'b') as it", 'column \'it\' is of type {"type": "struct"'),
        ("cast(null as bigint) as id", "column 'id' must not be null in the Delta table"),
        ("named_struct('a', 1L) as it", "column 'id' must not be null in the Delta table"),
    ],
)
def test_rows_that_are_not_the_tables_are_not_written(
    spark: SparkSession, tmp_path: Path, row: str, refusal: str
) -> None:
    path = str(tmp_path / "lake")
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("it", pa.struct([("a", pa.int64())]))]
    deltalake.write_deltalake(path, pa.table({"id": [1], "it": [{"a": 1}]}, pa.schema(fields)))
    with pytest.raises(JumpMQError) as refused:
        delta_writer(path, "archive")(spark.sql(f"select {row}"), 0)
    assert refusal in str(refused.value)
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 1
    delta_writer(path, "archive")(spark.sql("select 2L as id, named_struct('a', 1L) as it, 'more' as more"), 0)
    assert sorted(deltalake.DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == [1, 2]


def test_a_table_with_partitions_or_constraints_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    row = spark.sql("select 2L as id, 'y' as day")
    for path, refusal in (
        (str(tmp_path / "parted"), "is partitioned by day"),
        (str(tmp_path / "bound"), "has constraints"),
    ):
        parted = ["day"] if refusal != "has constraints" else None
        deltalake.write_deltalake(path, pa.table({"id": [1], "day": ["x"]}), partition_by=parted)
        if parted is None:
            deltalake.DeltaTable(path).alter.add_constraint({"one": "id = 1"})
        with pytest.raises(JumpMQError, match=refusal):
            delta_writer(path, "archive")(row, 0)
        assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 1


def test_a_package_that_is_missing_is_named_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JumpMQError, match="delta_writer needs the package deltalake: pip install 'deltalake'"):
        delta_writer("lake", "archive")
