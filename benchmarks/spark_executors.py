"""The tasks of many executors at one broker, without Spark: a micro-batch read by hundreds of tasks.

    python -m benchmarks.spark_executors [MESSAGES] [TASKS]

By default 1,000,000 messages of 100 octets in 100 queues, read by 2 tasks and by 400 (100 executors of four cores).
Each task has a connection of its own, as in Spark. All tasks share one process here, which limits the rate.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from benchmarks.spark_scale import EXCHANGE, declare
from jumpmq.spark import SCHEMA, JumpMQDataSource
from jumpmq.spark.client import Client
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.options import BrokerAddress
from jumpmq.testing import HOST, JumpMQ

CHUNK = 10_000


def fill(client: Client, messages: int) -> None:
    for _ in range(0, messages, CHUNK):
        keys = [b"%d" % random.randrange(10**9) for _ in range(CHUNK)]
        rows = pa.table({"body": [bytes(100)] * CHUNK, "routing_key": keys})
        client.publish(ipc_stream(rows), {"exchange": EXCHANGE})


def read(url: str, tasks: int, pid: int) -> str:
    """Plan and read a micro-batch. Return the name of its reader group."""
    source = JumpMQDataSource({"url": url, "exchange": EXCHANGE, "minPartitions": str(tasks)})
    reader = source.streamReader(SCHEMA)
    start = reader.initialOffset()
    began = time.perf_counter()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    partitions = reader.partitions(start, end)
    planned = time.perf_counter()
    with ThreadPoolExecutor(tasks) as pool:
        rows = sum(pool.map(lambda one: sum(len(batch) for batch in reader.read(one)), partitions))
    seconds = time.perf_counter() - planned
    resident = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) >> 10
    print(
        f"{len(partitions)} tasks at once: planned in {planned - began:.2f} s, {rows:,} rows in {seconds:.2f} s, "
        f"{rows / seconds:,.0f}/s; broker {resident:,} MiB"
    )
    return str(start["group"])


def main() -> None:
    """Measure, and print seconds, rows per second and the broker's memory."""
    given = [int(one.replace(",", "")) for one in sys.argv[1:]]
    messages, most = [*given, *(1_000_000, 400)[len(given) :]]
    with JumpMQ() as broker:
        url = f"http://guest:guest@{HOST}:{broker.http_port}"
        declare(url, 100)
        client = Client(BrokerAddress(url))
        fill(client, messages)
        for tasks in (2, most):
            group = read(url, tasks, broker.pid)
            client.release(group)


if __name__ == "__main__":
    main()
