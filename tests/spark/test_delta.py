"""Micro-batches into a Delta table: written by the tasks, each once."""

import importlib.util

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.sources import numbered, publish, run_available, stream

from jumpmq.spark import JumpMQError, delta_writer, files

deltalake = pytest.importorskip("deltalake")


def test_a_query_that_dies_between_the_two_commits_repeats_nothing(spark, broker, channel, tmp_path):
    published = publish(channel, numbered(1, 60))
    path = str(tmp_path / "lake")
    write, died = delta_writer(path, "archive"), []

    def write_and_die(frame, number):
        frame.toArrow = None  # no row passes through the driver
        write(frame, number)
        if number == 1 and not died:
            died.append(number)
            raise RuntimeError("lightning")

    def query(*columns, **options):
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


def test_a_package_that_is_missing_is_named_at_the_call(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JumpMQError, match="delta_writer needs the package deltalake: pip install 'deltalake'"):
        delta_writer("lake", "archive")
    assert files.importlib.util is importlib.util
