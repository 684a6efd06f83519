"""A thousand queues through Spark on a cluster of several workers, with the memory of all processes.

    python -m benchmarks.spark_scale [MESSAGES] [QUEUES] [WORKERS]

By default 10,000,000 messages, 1,000 queues and 3 workers. Spark is a standalone cluster on this machine; a worker has
one executor of one core. The sink publishes the messages, a batch reads them, and a streaming query moves them in
micro-batches of a million into Parquet. Printed is the maximum of resident memory, sampled every half second.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import jumpmq.spark
from jumpmq.management import ManagementClient
from jumpmq.testing import HOST, JumpMQ

EXCHANGE = "scale"

EXECUTOR = "1g"


class Memory(threading.Thread):
    """Maximum resident memory of broker, driver, executors and Python processes, by kind, in octets."""

    def __init__(self, broker: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._stopped = threading.Event()
        self.highest: dict[str, int] = {}

    def run(self) -> None:
        while not self._stopped.wait(0.5):
            now: dict[str, int] = {}
            for pid, kind in self._kinds():
                with contextlib.suppress(OSError):
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    now[kind] = now.get(kind, 0) + pages * os.sysconf("SC_PAGE_SIZE")
            for kind, octets in now.items():
                self.highest[kind] = max(self.highest.get(kind, 0), octets)

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _kinds(self) -> Iterator[tuple[int, str]]:
        """Children and grandchildren of this process, with their kinds."""
        parents: dict[int, tuple[int, bytes]] = {}
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                parents[int(place.name)] = parent, (place / "cmdline").read_bytes()
        yield self._broker, "broker"
        yield os.getpid(), "driver, Python"
        for pid, (_, command) in parents.items():
            above = pid
            while above in parents and above not in (os.getpid(), self._broker):
                above = parents[above][0]
            if above != os.getpid() or pid == os.getpid():
                continue
            if b"ExecutorBackend" in command:
                yield pid, "executors"
            elif b"java" in command.split(b"\0")[0]:
                yield pid, "driver with master and workers, JVM"
            elif b"streaming_source_runner" in command:
                yield pid, "planner"
            elif b"pyspark" in command:
                yield pid, "Python workers"


def cluster(workers: int) -> SparkSession:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": EXECUTOR,
    }
    master = f"local-cluster[{workers},1,1024]"
    spark = SparkSession.builder.master(master).appName("scale").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    jumpmq.spark.register(spark)
    return spark


def declare(url: str, queues: int) -> None:
    client = ManagementClient(url)
    names = [f"{EXCHANGE}-{number}" for number in range(queues)]
    client.post(
        "definitions",
        body={
            "exchanges": [{"name": EXCHANGE, "vhost": "/", "type": "x-consistent-hash", "durable": True}],
            "queues": [{"name": name, "vhost": "/", "durable": True} for name in names],
            "bindings": [
                {"source": EXCHANGE, "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": "1"}
                for name in names
            ],
        },
    )


@contextlib.contextmanager
def timed(what: str, messages: int) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds = time.perf_counter() - began
    print(f"{what:<40} {seconds:8.1f} s {messages / seconds:12,.0f} messages/s", flush=True)


def main() -> None:
    """Measure, and print seconds and memory."""
    given = [int(one.replace(",", "")) for one in sys.argv[1:]]
    messages, queues, workers = [*given, *(10_000_000, 1_000, 3)[len(given) :]]
    with JumpMQ() as broker, tempfile.TemporaryDirectory() as directory:
        url = f"http://guest:guest@{HOST}:{broker.http_port}"
        declare(url, queues)
        spark = cluster(workers)
        memory = Memory(broker.pid)
        memory.start()
        options = {"url": url, "exchange": EXCHANGE}
        body = "cast(concat(id, repeat('x', 90)) as binary) as body"
        rows = spark.range(0, messages, numPartitions=4 * workers).selectExpr("cast(id as string) as routing_key", body)
        with timed(f"written to {queues:,} queues", messages):
            rows.write.format("jumpmq").mode("append").options(**options).save()
        with timed("read as a batch", messages):
            found = spark.read.format("jumpmq").options(**options).load().selectExpr("count(body) as n").first()
        assert found is not None and found.n == messages
        stream = spark.readStream.format("jumpmq").options(**options).load()
        writer = stream.writeStream.format("parquet").option("path", f"{directory}/table")
        with timed("taken by a query into Parquet", messages):
            query = writer.option("checkpointLocation", f"{directory}/c").trigger(availableNow=True).start()
            query.awaitTermination()
        plans = sorted(progress.durationMs.get("latestOffset", 0) for progress in query.recentProgress)
        print(f"planning of a micro-batch, median {plans[len(plans) // 2]} ms")
        memory.stop()
        for kind, octets in sorted(memory.highest.items()):
            print(f"{kind:<40} {octets / 2**20:8,.0f} MiB")
        assert spark.read.parquet(f"{directory}/table").count() == messages
        spark.stop()


if __name__ == "__main__":
    main()
