"""Input of `jumpmq uniformity` and `jumpmq plan`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jumpmq.hashing.functions import HashFunction
from jumpmq.spark.message_keys import MessageRouter, message_keys
from jumpmq.spark.router import Router
from jumpmq.spark.spread import SpreadTest, spread_test


def bucket_tests(
    spark: SparkSession, buckets: Iterable[int], keys: int, function: HashFunction = "phash2"
) -> list[SpreadTest]:
    """Test the distribution of ``keys`` keys over queues of weight 1, for each number of queues in ``buckets``.

    The keys are the numbers from 0 as text.
    """
    routers = [Router.even(number, function) for number in buckets]
    partial = spark.range(keys).mapInArrow(_counter(routers), "ring int, queue int, keys bigint").collect()
    tests = []
    for place, router in enumerate(routers):
        counts = dict.fromkeys(router.destinations, 0)
        for row in partial:
            if row["ring"] == place:
                counts[router.destinations[row["queue"]]] += row["keys"]
        tests.append(spread_test("keys", counts, router.weights))
    return tests


def _counter(routers: Sequence[Router]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that counts a partition's keys by ring and queue; a key's text is made once for all rings."""

    def count_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = [np.zeros(len(router.destinations), np.int64) for router in routers]
        for batch in batches:
            keys = batch.column(0).cast(pa.string())
            for router, count in zip(routers, counts, strict=True):
                count += np.bincount(router.places(keys).to_numpy(), minlength=len(count))
        for place, count in enumerate(counts):
            columns = [np.full(len(count), place, np.int32), np.arange(len(count), dtype=np.int32), count]
            yield pa.RecordBatch.from_arrays([pa.array(one) for one in columns], ["ring", "queue", "keys"])

    return count_keys


def waiting_keys(spark: SparkSession, url: str, vhost: str, exchange: str, router: Router) -> tuple[DataFrame, Router]:
    """Return the hash keys of waiting messages as column ``key``, and the routing decision for them.

    Args:
        router: the decision of the exchange.
    """
    column = "routing_key" if router.hashed is None else "amqp_properties"
    reader = spark.read.format("jumpmq").schema(f"{column} binary")
    frame = reader.options(url=url, vhost=vhost, exchange=exchange).load()
    if router.hashed is None:
        return frame.withColumnRenamed(column, "key"), router
    return message_keys(frame, router), MessageRouter.like(router)
