"""Kills and stops the processes of a broker while batches are published over HTTP, and counts every row.

``python -m fuzzing.batches --seconds 60 --workers 3``: two writers publish numbered rows in chunks, as Spark's sink,
the first to queues of all homes by name, the second to a hash exchange over further queues, with retries, while
processes, including the supervisor, are killed (SIGKILL) and stopped (SIGSTOP) at random. Afterwards every row must be
in its queue exactly once, and the rows of a queue in the order of publishing.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa

from fuzzing.workers import Striking, served
from jumpmq.spark.client import Client
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.options import BrokerAddress

QUEUES = 6
"""Queues per writer."""

CHUNK = 200
"""Maximum number of rows in a request."""

PATIENCE = 120.0
"""Seconds for retries of a chunk, and for outstanding rows at the end."""

Expected = dict[str, list[int]]
"""The row numbers of every queue, in order."""


class Writer(threading.Thread):
    """Publishes chunks until stopped.

    Attributes:
        rows: number of published rows.
        expected: expected contents of the queues, for rows that name a queue.
        error: the reason of a premature end.
    """

    def __init__(self, name: str, url: str, target: dict[str, str], queues: list[str], stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.rows = 0
        self.expected: Expected = {queue: [] for queue in queues}
        self.error: Exception | None = None
        self._client = Client(BrokerAddress(url, retry_seconds=PATIENCE), met=True)
        self._target = target
        self._queues = queues
        self._stopping = stop

    def run(self) -> None:
        choose = random.Random(self.name)
        try:
            while not self._stopping.is_set():
                self._publish(choose.randrange(1, CHUNK))
        except Exception as error:
            self.error = error

    def _publish(self, count: int) -> None:
        numbers = range(self.rows, self.rows + count)
        columns: dict[str, Any] = {"body": [b"%d" % number for number in numbers]}
        if self._queues:
            columns["queue"] = [self._queues[number % len(self._queues)] for number in numbers]
        else:
            columns["routing_key"] = [b"%d" % (number % 99) for number in numbers]
        place = {"part": "", "batch": 0, "first": self.rows, "rows": numbers.stop, "digest": str(numbers.stop)}
        query = self._target | {"persistent": "true", "writer": self.name} | place
        self._client.publish(ipc_stream(pa.table(columns)), query)
        self.rows += count
        for number in numbers if self._queues else ():
            self.expected[self._queues[number % len(self._queues)]].append(number)


def declare(port: int) -> tuple[list[str], list[str]]:
    """Declare the queues over separate connections, to spread them over homes. Return the queues of both writers."""
    names = [[f"{kind}{number}" for number in range(QUEUES)] for kind in ("named", "bound")]
    for place in range(QUEUES):
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.exchange_declare("rows", "x-consistent-hash", durable=True)
            for kind in names:
                channel.queue_declare(kind[place], durable=True)
            channel.queue_bind(names[1][place], "rows", "1")
    return names[0], names[1]


def contents(port: int, queues: list[str], rows: int) -> Expected:
    """Return the contents of queues, after ``rows`` rows or after a timeout."""
    found: Expected = {}
    until = time.monotonic() + PATIENCE
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)) as connection:
        channel = connection.channel()
        while time.monotonic() < until:
            if sum(channel.queue_declare(queue, passive=True).method.message_count for queue in queues) >= rows:
                break
            time.sleep(0.2)
        time.sleep(2)  # for surplus messages
        for queue in queues:
            found[queue] = []
            for method, _, body in channel.consume(queue, inactivity_timeout=1):
                if method is None:
                    break
                found[queue].append(int(body))
                channel.basic_ack(method.delivery_tag)
            channel.cancel()
    return found


def problems(named: Expected, found: Expected, rows: int, bound: Expected) -> list[str]:
    """Found defects, a sentence per defect."""
    told = []
    for queue, expected in named.items():
        if found[queue] != expected:
            told.append(f"{queue}: {_difference(expected, found[queue])}")
    everything = [number for queue in bound.values() for number in queue]
    if sorted(everything) != list(range(rows)):
        told.append(f"rows of the exchange: {_difference(list(range(rows)), sorted(everything))}")
    told += [f"{queue} has rows out of order" for queue, numbers in bound.items() if numbers != sorted(numbers)]
    return told


def _difference(expected: list[int], found: list[int]) -> str:
    missing, seen, twice = set(expected) - set(found), set[int](), []
    for number in found:
        if number in seen:
            twice.append(number)
        seen.add(number)
    text = f"{len(missing)} of {len(expected)} rows are missing: {sorted(missing)[:9]}; "
    return text + f"{len(twice)} are there twice: {twice[:9]}; in order: {found == sorted(found)}"


def run(seconds: float, count: int, seed: int) -> list[str]:
    """Run the fuzzer once. Return the failures."""
    choose, stop = random.Random(seed), threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="jumpmq-fuzzing-") as directory,
        served(count, Path(directory)) as broker,
    ):
        named, bound = declare(broker.port)
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        writers = [
            Writer("by name", url, {}, named, stop),
            Writer("by key", url, {"exchange": "rows"}, [], stop),
        ]
        for writer in writers:
            writer.start()
        while not all(writer.rows or writer.error for writer in writers):
            time.sleep(0.1)
        end, blows, striking = time.monotonic() + seconds, 0, Striking(choose, broker)
        while time.monotonic() < end:
            time.sleep(choose.uniform(0.2, 4.0))
            done = striking.strike()
            blows += 1
            print(f"{done}; {sum(writer.rows for writer in writers)} rows published", file=sys.stderr, flush=True)
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
            if writer.error is not None:
                return [f"writer '{writer.name}': {writer.error!r}"]
        time.sleep(5)  # all processes have restarted
        rows = sum(writer.rows for writer in writers)
        found = contents(broker.port, named + bound, rows)
    print(f"{rows} rows published, {blows} blows")
    return problems(writers[0].expected, found, writers[1].rows, {queue: found[queue] for queue in bound})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    wrong = run(options.seconds, options.workers, options.seed)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
