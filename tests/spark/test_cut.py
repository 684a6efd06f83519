"""A micro-batch that is repeated has the same partitions, on any number of cores, and after options were changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructType

from jumpmq.spark import SCHEMA, JumpMQDataSource
from jumpmq.spark.partitions import WORTHWHILE

ROWS = 3 * WORTHWHILE


def fill(broker: Any, queue: str) -> None:
    schema = StructType().add("queue", StringType()).add("body", BinaryType())
    writer = JumpMQDataSource({"url": broker.http_url, "txnAppId": queue, "txnVersion": "1"}).writer(schema, False)
    rows = pa.record_batch({"queue": [queue] * ROWS, "body": [b"x"] * ROWS})
    writer._publish(iter([rows]), queue, 1)


def reader(broker: Any, parallelism: int, **options: str) -> Any:
    source = type("On", (JumpMQDataSource,), {"parallelism": parallelism})
    return source({"url": broker.http_url} | options).streamReader(SCHEMA)


@pytest.mark.parametrize(
    ("kind", "more"), [("classic", {}), ("stream", {"startingOffsets": "earliest"})], ids=["reservations", "offsets"]
)
def test_a_repeated_micro_batch_is_cut_as_it_was(broker: Any, channel: Any, kind: str, more: dict[str, str]) -> None:
    channel.queue_declare("long", durable=True, arguments={"x-queue-type": kind})
    fill(broker, "long")
    first = reader(broker, 2, queue="long", **more)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(ROWS))
    planned = first.partitions(start, end)
    assert len(planned) == 2
    elsewhere = reader(broker, 4, queue="long", **more)
    changed = reader(broker, 3, queue="long", maxMessagesPerPartition="1000", **more)
    for again in (elsewhere, changed):
        assert [vars(one) for one in again.partitions(start, end)] == [vars(one) for one in planned]
    older = {name: value for name, value in end.items() if name != "cut"}
    assert len(elsewhere.partitions(start, older)) == 3, "of a checkpoint that does not say"
    for one in (first, elsewhere, changed):
        if (session := vars(one).get("_session")) is not None:
            session.stop()
