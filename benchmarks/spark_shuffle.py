"""The saving of one partition per queue: a window over the queue, with and without a shuffle.

    python -m benchmarks.spark_shuffle [ROWS]

By default 4,000,000 rows of about 100 octets in 16 queues, cached beforehand: once as the result of `route`, once of
`repartition_by_queue`. Each number is the median of five. The repartitioning is a shuffle as well, and excluded: it
pays off before several operations.
"""

from __future__ import annotations

import statistics
import sys
import time

from pyspark.sql import DataFrame

from benchmarks.spark_read import local_spark
from jumpmq.spark import Router, repartition_by_queue, route

QUEUES = 16
ROUNDS = 5


def windowed(frame: DataFrame) -> float:
    """Seconds to number the rows of every queue."""
    began = time.perf_counter()
    frame.selectExpr("row_number() over (partition by queue order by id) as place").selectExpr("max(place)").collect()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else 4_000_000
    with local_spark() as spark:
        spark.conf.set("spark.sql.adaptive.enabled", "false")  # may choose other partitions
        spark.conf.set("spark.sql.shuffle.partitions", QUEUES)
        ring = Router.even(QUEUES)
        rows = spark.range(count, numPartitions=4).selectExpr(
            "concat('k', id % 100000) as key", "id", "repeat('x', 80) as body"
        )
        apart = route(rows, "key", ring).cache()
        together = repartition_by_queue(rows, "key", ring).cache()
        for frame in (apart, together):
            frame.count()
            windowed(frame)  # Java compiles
        taken = [(windowed(apart), windowed(together)) for _ in range(ROUNDS)]
        shuffled, unshuffled = (statistics.median(column) for column in zip(*taken, strict=True))
        print(f"a window over the queue: shuffled {shuffled:.2f} s, without a shuffle {unshuffled:.2f} s")


if __name__ == "__main__":
    main()
