"""Uniformity of the distribution of keys and messages over queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count

from jumpmq.hashing import HashRing
from jumpmq.hashing.chi_squared import chi_squared_test, critical_value
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.router import Router

HOT_KEYS = 20
"""Number of most frequent keys to list."""

COUNTS = "queue string, keys bigint, messages bigint, hot array<struct<key: string, messages: bigint>>"
"""Columns of the counts of a partition: a row per queue."""


@dataclass(frozen=True)
class Share:
    """Actual and expected counts of a queue."""

    queue: str
    weight: int
    keys: int
    messages: int
    expected_keys: float
    expected_messages: float


@dataclass(frozen=True)
class SpreadTest:
    """Pearson's chi-squared test of the counted ``keys`` or ``messages``.

    Attributes:
        over: ``keys`` or ``messages``.
        buckets: number of queues.
        statistic: the chi-squared statistic.
        degrees: degrees of freedom.
        p_value: probability that a uniform hash gives a statistic at least as high.
        critical_05, critical_01: values that the statistic of a uniform hash exceeds with probability 0.05 and 0.01.
        largest_deviation: largest deviation of a queue's count from the expected count, as a share of the latter.
    """

    over: str
    buckets: int
    statistic: float
    degrees: int
    p_value: float
    critical_05: float
    critical_01: float
    largest_deviation: float


@dataclass(frozen=True)
class HotKey:
    """A frequent key, and the ``share`` of its messages in all messages."""

    key: str
    queue: str
    messages: int
    share: float


@dataclass(frozen=True)
class Uniformity:
    """Report on uniformity.

    Attributes:
        shares: counts by queue.
        tests: the tests of keys and of messages.
        hot_keys: the most frequent keys, at most 20, with more than twice the mean number of messages.
        hot_share_of_skew: share of the messages' unevenness caused by the hot keys, from 0 to 1.
    """

    shares: list[Share]
    tests: list[SpreadTest]
    hot_keys: list[HotKey]
    hot_share_of_skew: float

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Return ``queues``, ``tests`` and ``hot_keys`` as DataFrames."""
        queues = (
            "queue string, weight bigint, keys bigint, messages bigint, expected_keys double, expected_messages double"
        )
        tests = (
            "over string, buckets bigint, statistic double, degrees bigint, p_value double, critical_05 double, "
            "critical_01 double, largest_deviation double"
        )
        hot = "key string, queue string, messages bigint, share double"
        return {
            "queues": spark.createDataFrame([vars(one) for one in self.shares], queues),
            "tests": spark.createDataFrame([vars(one) for one in self.tests], tests),
            "hot_keys": spark.createDataFrame([vars(one) for one in self.hot_keys], hot),
        }


def uniformity(frame: DataFrame, key: str, ring: Router | HashRing) -> Uniformity:
    """Count keys and messages by destination, and test the counts against the weights.

    Args:
        frame: a row per message.
        key: the column to hash.

    Raises:
        JumpMQError: the column does not exist, or there is no row, or no destination.
    """
    router = Router.of(ring) if isinstance(ring, HashRing) else ring
    if not router.destinations:
        raise JumpMQError("there is nothing to route to: no queue is bound")
    if key not in frame.columns:
        raise JumpMQError(f"there is no column '{key}'; there are {', '.join(frame.columns)}")
    distinct = frame.groupBy(col(key).alias("key")).agg(count("*").alias("messages"))
    rows = distinct.mapInArrow(_counter(router), COUNTS).collect()
    if not rows:
        raise JumpMQError("there are no rows to test")
    counted: dict[str, tuple[int, int]] = {}
    for row in rows:
        keys, messages = counted.get(row["queue"], (0, 0))
        counted[row["queue"]] = keys + row["keys"], messages + row["messages"]
    hottest = sorted(
        ((one["messages"], one["key"], row["queue"]) for row in rows for one in row["hot"]),
        key=lambda one: (-one[0], one[1]),
    )
    all_messages = sum(messages for _, messages in counted.values())
    mean = all_messages / sum(found for found, _ in counted.values())
    hot = [
        HotKey(shown, queue, messages, messages / all_messages)
        for messages, shown, queue in hottest[:HOT_KEYS]
        if messages > 2 * mean
    ]
    shares = shares_of(counted, router.weights)
    tests = [spread_test("keys", {one.queue: one.keys for one in shares}, router.weights)]
    tests.append(spread_test("messages", {one.queue: one.messages for one in shares}, router.weights))
    return Uniformity(shares, tests, hot, _hot_share_of_skew(shares, hot, router.weights))


def _counter(router: Router) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that counts the distinct keys of a partition, and their messages, by queue."""

    def count_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted: Counter[tuple[str, str]] = Counter()
        hottest: list[tuple[int, str, str]] = []
        for batch in batches:
            table = pa.table({"place": router.places(batch.column("key")), "messages": batch.column("messages")})
            sums = table.group_by("place").aggregate([("messages", "count"), ("messages", "sum")])
            for place, keys, messages in zip(*(column.to_pylist() for column in sums.columns), strict=True):
                counted[router.destinations[place], "keys"] += keys
                counted[router.destinations[place], "messages"] += messages
            for row in pc.select_k_unstable(table, HOT_KEYS, [("messages", "descending")]).to_pylist():
                key, queue = batch.column("key")[row].as_py(), router.destinations[table["place"][row].as_py()]
                hottest.append((table["messages"][row].as_py(), router.shown(key), queue))
            hottest = nlargest(HOT_KEYS, hottest, key=lambda one: one[0])
        rows = [
            {
                "queue": queue,
                "keys": counted[queue, "keys"],
                "messages": counted[queue, "messages"],
                "hot": [{"key": key, "messages": messages} for messages, key, at in hottest if at == queue],
            }
            for queue, what in counted
            if what == "keys"
        ]
        if rows:
            hot = pa.list_(pa.struct([("key", pa.string()), ("messages", pa.int64())]))
            kinds = [("queue", pa.string()), ("keys", pa.int64()), ("messages", pa.int64()), ("hot", hot)]
            yield pa.RecordBatch.from_pylist(rows, pa.schema(kinds))

    return count_keys


def shares_of(counted: Mapping[str, tuple[int, int]], weights: Mapping[str, int]) -> list[Share]:
    """Return the actual and expected ``(keys, messages)`` of destinations."""
    all_keys, all_messages = (sum(pair[place] for pair in counted.values()) for place in (0, 1))
    weight = sum(weights.values())
    return [
        Share(
            queue,
            weights[queue],
            *counted.get(queue, (0, 0)),
            all_keys * weights[queue] / weight,
            all_messages * weights[queue] / weight,
        )
        for queue in weights
    ]


def spread_test(over: str, counts: Mapping[str, int], weights: Mapping[str, int]) -> SpreadTest:
    """Test counts of queues against their weights."""
    found, wanted = [counts[queue] for queue in weights], list(weights.values())
    result = chi_squared_test(found, wanted)
    expected = [sum(found) * weight / sum(wanted) for weight in wanted]
    deviation = max(abs(one - mean) / mean for one, mean in zip(found, expected, strict=True))
    degrees = result.degrees
    critical = (critical_value(0.05, degrees), critical_value(0.01, degrees)) if degrees else (0.0, 0.0)
    return SpreadTest(over, len(found), result.statistic, degrees, result.p_value, *critical, deviation)


def _hot_share_of_skew(shares: list[Share], hot: list[HotKey], weights: Mapping[str, int]) -> float:
    counts = {one.queue: one.messages for one in shares}
    before = _skew(counts, weights)
    for one in hot:
        counts[one.queue] -= one.messages
    return max(0.0, 1 - _skew(counts, weights) / before) if before and hot else 0.0


def _skew(counts: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Return the number of messages above the expected counts."""
    everything, weight = sum(counts.values()), sum(weights.values())
    return sum(abs(counts[queue] - everything * weights[queue] / weight) for queue in weights) / 2
