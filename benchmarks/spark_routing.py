"""Speed of routing in Spark, and cost of uniformity.

    python -m benchmarks.spark_routing [KEYS]

`route()` next to Spark's own `pmod(hash(key), n)` on 50 million text keys of a Parquet table, on two local cores.
Spark passes keys to Python and takes the decisions back; a function that ignores the keys shows this cost. Then 100
million generated keys with the peak memory of all processes: `uniformity`, which must group the keys first, and
`jumpmq uniformity --keys`, which knows that they are distinct.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf

from benchmarks.spark_read import local_spark
from jumpmq.spark import Router, route, uniformity
from jumpmq.spark.pipelines.tables import bucket_tests

KEYS = 50_000_000
PARTITION = 1_000_000
"""Generated keys per partition, grouped in memory."""


class Memory(threading.Thread):
    """Sampled peak of resident memory of this process and its descendants.

    Attributes:
        peak: octets.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._stopped = threading.Event()

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        while not self._stopped.wait(0.2):
            self.peak = max(self.peak, self._resident())

    def _resident(self) -> int:
        parents, sizes = {}, {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                pages = int((place / "statm").read_text().split()[1]) - int((place / "statm").read_text().split()[2])
            except OSError:
                continue
            sizes[int(place.name)] = pages * os.sysconf("SC_PAGE_SIZE")
        ours = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return sum(sizes.get(pid, 0) for pid in ours)


def _same_number(keys: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(1, pa.int32()), len(keys))


_same_number.__annotations__ = {"keys": pa.Array, "return": pa.Array}


def seconds_of(frame: DataFrame) -> float:
    """Seconds to count by the last column, in the second run."""
    for _ in range(2):
        began = time.perf_counter()
        frame.groupBy(frame.columns[-1]).count().collect()
        seconds = time.perf_counter() - began
    return seconds


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else KEYS
    with local_spark() as spark, tempfile.TemporaryDirectory() as directory:
        spark.range(count).selectExpr("cast(id as string) as key").write.parquet(f"{directory}/keys")
        keys = spark.read.parquet(f"{directory}/keys")
        theirs = seconds_of(keys.selectExpr("key", "pmod(hash(key), 100) as place"))
        print(f"{'pmod(hash(key), 100)':<32} {count / theirs:>12,.0f} keys/s", flush=True)
        through = seconds_of(keys.withColumn("place", arrow_udf(_same_number, "int")(col("key"))))
        print(f"{'to Python and back':<32} {count / through:>12,.0f} keys/s {theirs / through:>8.2f}x", flush=True)
        for function in ("phash2", "xxh64"):
            ours = seconds_of(route(keys, "key", Router.even(100, function)))
            print(f"{f'route, {function}':<32} {count / ours:>12,.0f} keys/s {theirs / ours:>8.2f}x", flush=True)
        rows = spark.range(2 * count, numPartitions=max(2, 2 * count // PARTITION))
        generated = rows.selectExpr("cast(id as string) as key")
        for title, count_all in (
            ("uniformity", lambda: uniformity(generated, "key", Router.even(100))),
            ("jumpmq uniformity --keys", lambda: bucket_tests(spark, [100], 2 * count)),
        ):
            with Memory() as memory:
                began = time.perf_counter()
                count_all()
                seconds = time.perf_counter() - began
            print(f"{title:<32} {seconds:>12,.1f} s, {memory.peak / 1e9:.2f} GB at most", flush=True)


if __name__ == "__main__":
    main()
