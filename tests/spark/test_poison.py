"""A row that fails every micro-batch, in a queue with a delivery limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.http.api import API, publish
from tests.spark.sources import Sink, numbered, run_available, stream
from tests.waiting import until

import jumpmq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_the_micro_batch_of_a_poison_row_is_dead_lettered_and_the_query_goes_on(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, tmp_path: Path
) -> None:
    """Restarts within the lease repeat the micro-batch, and do not count; restarts after the lease do."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1} | dead)
    publish(channel, "q", numbered(1, 30))
    sink = Sink()

    def refuse(frame: DataFrame, number: int) -> None:
        sink(frame, number)
        if b"0007" in sink.bodies:
            del sink.batches[number]
            raise ValueError("poison")

    def run(lease: float) -> None:
        given = {"queue": "q", "maxMessagesPerTrigger": 10, "lease": lease, "failOnDataLoss": False}
        run_available(stream(spark, broker, **given), tmp_path, refuse)

    for lease in (60, 60, 60, 1, 1):
        assert api.counts("dead") == (0, 0)
        with pytest.raises(StreamingQueryException, match="poison"):
            run(lease)
        if lease == 1:
            until(lambda: api.counts("q")[1] == 0)
    assert api.counts("dead") == (10, 0)
    run(60)
    assert sink.bodies == numbered(11, 30)
    assert sorted(channel.basic_get("dead", auto_ack=True)[2] for _ in range(10)) == numbered(1, 10)
    assert api.counts("q") == api.counts("dead") == (0, 0)
