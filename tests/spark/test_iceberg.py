"""Micro-batches into an Iceberg table: a repeated micro-batch is in the table once."""

import shutil
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sources import numbered, publish, run_available, stream

import jumpmq
from jumpmq.spark import iceberg_writer

catalogs = pytest.importorskip("pyiceberg.catalog")


@pytest.mark.slow
def test_a_query_that_dies_between_the_two_commits_repeats_nothing(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    published = publish(channel, numbered(1, 60))
    catalog = {"name": "local", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog["warehouse"] = f"file://{tmp_path}/lake"
    write = iceberg_writer(catalog, "lake.messages", "archive")
    died: list[int] = []

    def write_and_die(frame: DataFrame, number: int) -> None:
        write(frame, number)
        if number == 1 and not died:
            died.append(number)
            raise RuntimeError("lightning")

    frame = stream(spark, broker, exchange="x", maxMessagesPerTrigger=20)
    with pytest.raises(StreamingQueryException, match="lightning"):
        run_available(frame, tmp_path, write_and_die)
    found = catalogs.load_catalog(**catalog)
    assert found.load_table("lake.messages").scan().count() == 40
    run_available(frame, tmp_path, write_and_die)
    table = found.load_table("lake.messages")
    rows = table.scan().to_arrow()
    assert sorted(rows["body"].to_pylist()) == published
    assert set(rows["queue"].to_pylist()) == {"q1", "q2"}
    assert {one["delivery_mode"] for one in rows["properties"].to_pylist()} == {2}
    assert int(table.properties["jumpmq.archive"]) >= 2
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="'archive', from a query with another checkpoint"):
        run_available(frame, tmp_path, write)
