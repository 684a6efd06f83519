"""What `jumpmq uniformity` and `jumpmq plan` look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from jumpmq.hashing import HashRing
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.router import Router
from jumpmq.spark.routing import route
from jumpmq.spark.uniformity import SpreadTest, spread_test


def bucket_tests(spark: SparkSession, buckets: Iterable[int], keys: int) -> list[SpreadTest]:
    """How evenly so many keys, the numbers from 0 as text, spread over several numbers of queues of weight 1."""
    frame = spark.range(keys).selectExpr("cast(id as string) as key")
    tests = []
    for number in buckets:
        router = Router.even(number)
        rows = route(frame, "key", router).groupBy("queue").count().collect()
        counts = dict.fromkeys(router.destinations, 0) | {row["queue"]: row["count"] for row in rows}
        tests.append(spread_test("keys", counts, router.weights))
    return tests


def waiting_keys(spark: SparkSession, url: str, vhost: str, exchange: str) -> DataFrame:
    """The routing keys of the messages that wait in an exchange's queues."""
    reader = spark.read.format("jumpmq").schema("routing_key binary")
    return reader.options(url=url, vhost=vhost, exchange=exchange).load()


def changed(before: Router, add: Sequence[str], remove: Sequence[str]) -> Router:
    """An exchange's decision after queues are bound (``NAME`` or ``NAME=WEIGHT``) and unbound.

    Raises:
        JumpMQError: a queue is there already, or not there, or a weight is none.
    """
    if before.ring is None:
        left = [name for name in before.destinations if name not in remove]
        return Router(None, tuple(sorted({*left, *(one.partition("=")[0] for one in add)})), before.source)
    ring = HashRing.restore(before.ring.state())
    try:
        for name in remove:
            ring.remove(name)
        for one in add:
            name, _, weight = one.partition("=")
            ring.add(name, int(weight or 1))
    except (KeyError, ValueError) as error:
        raise JumpMQError(str(error.args[0])) from None
    return Router(ring, tuple(ring.names), before.source)
