"""The broker's cost of a row of a streaming query: to reserve, to read, and to acknowledge it.

    python -m benchmarks.spark_reserve [ROWS [ROUNDS]]

Persistent messages of 100 octets in four queues are reserved, read in two parts at once and acknowledged as by Spark's
source, without Spark. They are in memory, or paged out to disk beforehand. Figures are microseconds of the broker's
processor time per row, the median of all rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from benchmarks.spark_parquet import declare, publish
from benchmarks.spark_read import queues_of
from benchmarks.spark_write import rest
from jumpmq.spark.client import Client
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.partitions import Division, QueueRange, pieces
from jumpmq.testing import HOST, BrokerProcess, JumpMQ

ROWS = 1_000_000
ROUNDS = 3
EXCHANGE, GROUP = "read", "group"
COLUMNS = ("queue", "routing_key", "body")
PAGED_AFTER = 7.0
"""Seconds after which idle messages are on disk only."""


class Reader:
    """The requests of a streaming query."""

    def __init__(self, broker: BrokerProcess) -> None:
        url = f"http://guest:guest@{HOST}:{broker.http_port}"
        self._broker = SourceOptions.parse({"url": url, "exchange": EXCHANGE}).broker
        self._client = Client(self._broker)
        self._client.require_broker()
        self._session = self._client.open(GROUP, "query", 60.0)
        self.done: dict[str, int | None] = dict.fromkeys(queues_of(EXCHANGE))

    def reserve(self, most: int | None) -> dict[str, dict[str, Any]]:
        """Acknowledge finished messages, and reserve up to the given number."""
        wanted = {"queues": self.done, "max_messages": most, "session": self._session, "lease": 60.0, "shares": True}
        found: dict[str, dict[str, Any]] = self._client.reserve(GROUP, wanted)["queues"]
        return found

    def read(self, reserved: dict[str, dict[str, Any]]) -> int:
        """Read the reserved messages in two parts. Return the number of rows."""
        parts = pieces({queue: at["messages"] for queue, at in reserved.items()}, Division(2, 1, None, False))
        with ThreadPoolExecutor(len(parts)) as threads:
            return sum(threads.map(lambda part: self._read(part, reserved), parts))

    def _read(self, part: list[QueueRange], reserved: dict[str, dict[str, Any]]) -> int:
        slices = [
            [one.queue, self.done[one.queue], reserved[one.queue]["offset"], one.first, one.count] for one in part
        ]
        batches = Client(self._broker, met=True).reserved(GROUP, slices, COLUMNS, accept_loss=False)
        return sum(map(len, batches))


def measured(broker: BrokerProcess, reader: Reader, rows: int) -> list[float]:
    """The broker's processor seconds: to reserve, to read, and to acknowledge and release all messages."""
    rest(broker)
    marks = [broker.cpu_seconds()]
    reserved = reader.reserve(None)
    marks.append(broker.cpu_seconds())
    assert reader.read(reserved) == rows
    marks.append(broker.cpu_seconds())
    reader.done = {queue: at["offset"] for queue, at in reserved.items()}
    reader.reserve(0)
    rest(broker)
    marks.append(broker.cpu_seconds())
    return [after - before for before, after in pairwise(marks)]


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    found: dict[str, list[list[float]]] = {"in memory": [], "on disk": []}
    with JumpMQ() as broker:
        declare(broker.port, EXCHANGE)
        reader = Reader(broker)
        for number in range(-1, rounds):
            for title, taken in found.items():
                publish(broker.port, rows, EXCHANGE)
                time.sleep(PAGED_AFTER if title == "on disk" else 0)
                seconds = measured(broker, reader, rows)
                if number >= 0:
                    taken.append(seconds)
    print(f"{'microseconds a row':<20} {'reserve':>8} {'read':>8} {'acknowledge':>12} {'all':>8}")
    for title, taken in found.items():
        reserve, read, acknowledge = (statistics.median(column) / rows * 1e6 for column in zip(*taken, strict=True))
        every = statistics.median(map(sum, taken)) / rows * 1e6
        print(f"{title:<20} {reserve:>8.2f} {read:>8.2f} {acknowledge:>12.2f} {every:>8.2f}")


if __name__ == "__main__":
    main()
