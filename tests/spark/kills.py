"""Kills all participants of four streaming queries, and counts every message at the end.

    python -m tests.spark.kills --minutes 10 [--workers 2]

Numbered messages go to four hash exchanges; four queries move them into a Parquet table, into a Delta table, back into
an exchange, and, from streams, into a second Parquet table. Spark is a small cluster with speculation, and some tasks
are slow. Every few seconds there is a failure or a change: the driver with all its processes, its JVM, the planning
process, a Python worker, an executor or the broker is killed, or stopped for a while and continued; a query restarts
with other cores; queues are bound, unbound, bound again, deleted, and redeclared; of a broker with several processes a
worker is killed or stopped, or the supervisor alone, and streams move between workers. Then the failures end until all
messages are read. Every message must be in all four places exactly once, and every failure must have occurred; else the
exit status is 1. Messages duplicated in a stream by a crash (docs/durability.md) must be read twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.spark.kill_jobs import QUERIES, STREAMS
from tests.spark.processes import SPECULATIVE, Cluster, environment, processes

from jumpmq.management import ManagementClient, ManagementError
from jumpmq.spark.client import Client
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.options import BrokerAddress
from jumpmq.testing import JumpMQ, ending_with_us, free_ports

CORES = (2, 3, 4)
"""Numbers of cores of a driver, with one executor per core."""

AT_ONCE = 60
"""Messages per batch, and seconds between batches."""
INTERVAL = 0.1

PAUSE = (2.0, 9.0)
"""Seconds between two failures."""

HOME = b"jumpmq.nodes.processes.worker"
"""Part of the command of a broker's worker."""

EMPTIED = 60.0
"""Seconds for a queue to become empty before its deletion."""

PATIENCE = 300.0
"""Seconds without progress until the remaining messages are given up."""


class Feed(threading.Thread):
    """Publishes numbered messages, exactly once across kills of the broker, until stopped.

    Attributes:
        count: number of published messages.
        at_rest: held to pause publishing.
    """

    def __init__(self, url: str) -> None:
        super().__init__(name="feed", daemon=True)
        self.count = 0
        self.at_rest = threading.Lock()
        self._client = Client(BrokerAddress(url, retry_seconds=PATIENCE), met=True)
        self._stopped = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopped.wait(INTERVAL):
                after = self.count + AT_ONCE
                bodies = [b"%d" % number for number in range(self.count, after)]
                rows = pa.table({"body": bodies, "routing_key": [b"%d" % (number % 999) for number in range(AT_ONCE)]})
                place = {"writer": "feed", "batch": 0, "first": self.count, "rows": after, "digest": str(after)}
                with self.at_rest:
                    self._client.publish(ipc_stream(rows), {"exchange": "feed", "persistent": "true"} | place)
                self.count = after
        except BaseException as error:
            self._error = error

    def stop(self) -> int:
        """Stop publishing. Return the number of published messages."""
        self._stopped.set()
        self.join()
        if self._error is not None:
            raise self._error
        return self.count


class Queries:
    """The driver: the process of the three queries, with its descendants."""

    def __init__(self, cluster: Cluster, url: str, directory: Path) -> None:
        self._cluster = cluster
        self._url = url
        self._directory = directory
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[str] | None = None
        self._counted: dict[str, dict[str, int]] | None = None
        self._heard = threading.Event()
        self.failures: list[str] = []

    def start(self, cores: int) -> None:
        settings = SPECULATIVE | {"spark.cores.max": str(cores)}
        command = [sys.executable, "-m", "tests.spark.kill_jobs", self._cluster.url, self._url, str(self._directory)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_us(command), env=environment(self._directory, settings),
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self.until("ready")
        threading.Thread(target=self._listen, args=[self._process], daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def until(self, word: str) -> str:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            self._hear(line)
        raise RuntimeError(f"the driver ended before it said '{word}':\n{self._log.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill the driver; executors detect its end."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def members(self, *words: bytes) -> list[int]:
        """Processes of the driver and of the workers whose commands contain the words."""
        assert self._process is not None
        found, everyone = {self._process.pid, *self._cluster.pids}, list(processes())
        while more := {pid for pid, parent, _ in everyone if parent in found} - found:
            found |= more
        return [pid for pid, _, command in everyone if pid in found and all(word in command for word in words)]

    def counted(self) -> dict[str, dict[str, int]]:
        """Stop the queries, and count their output."""
        (self._directory / "stop").touch()
        self._heard.wait(PATIENCE)
        assert self._counted is not None, f"the driver has counted nothing:\n{self._log.read_text()[-3000:]}"
        return self._counted

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("counted"):
                self._counted = json.loads(line.removeprefix("counted"))
                self._heard.set()
            else:
                self._hear(line)

    def _hear(self, line: str) -> None:
        if line.startswith("failed"):
            name, error = json.loads(line.removeprefix("failed"))
            self.failures.append(f"{name}: {error}")


class Blows:
    """Failures of broker and queries.

    Attributes:
        done: number of failures, by name.
    """

    def __init__(
        self, broker: JumpMQ, url: str, feed: Feed, queries: Queries, chance: random.Random, *, of_several: bool = False
    ) -> None:
        self._broker = broker
        self._feed = feed
        self._api = ManagementClient(url)
        self._queries = queries
        self._chance = chance
        self._unbound: list[tuple[str, str]] = []
        self._made = 0
        self._next: list[str] = []
        self.done: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], bool]] = {
            "kill driver": self._kill_driver,
            "kill JVM": lambda: self._signal(signal.SIGKILL, b"java", b"SparkSubmit"),
            "kill planner": lambda: self._signal(signal.SIGKILL, b"python_streaming_source_runner"),
            "kill worker": lambda: self._signal(signal.SIGKILL, b"pyspark.daemon"),
            "kill executor": lambda: self._signal(signal.SIGKILL, b"java", b"ExecutorBackend"),
            "kill broker": self._kill_broker,
            "stop broker": self._stop_broker,
            "stop executor": lambda: self._stop(b"java", b"ExecutorBackend"),
            "stop worker": lambda: self._stop(b"pyspark.daemon"),
            "stop planner": lambda: self._stop(b"python_streaming_source_runner"),
            "bind queue": self._bind_new,
            "unbind queue": self._unbind,
            "bind queue again": self._bind_again,
            "delete queue": lambda: self._delete() is not None,
            "replace queue": self._replace,
        }
        if of_several:
            self._kinds |= {
                "kill home": lambda: self._hit_home(signal.SIGKILL),
                "stop home": lambda: self._hit_home(signal.SIGSTOP),
                "kill supervisor": self._kill_supervisor,
                "stop supervisor": self._stop_supervisor,
                "move stream": self._move,
            }

    @property
    def left_out(self) -> list[str]:
        """Failures without a single occurrence."""
        return [name for name in self._kinds if not self.done[name]]

    def strike(self) -> str:
        """Cause all failures in turn, in random order. Return the name of this one."""
        if not self._next:
            self._next = self._chance.sample(list(self._kinds), len(self._kinds))
        name = self._next.pop()
        if not self._queries.alive:
            self._queries.kill()
            self._queries.start(self._chance.choice(CORES))
        if self._kinds[name]():
            self.done[name] += 1
        return name

    def make_good(self) -> None:
        """Bind all unbound queues, for their remaining messages."""
        while self._bind_again():
            pass

    def _kill_driver(self) -> bool:
        self._queries.kill()
        self._queries.start(self._chance.choice(CORES))
        return True

    def _signal(self, number: signal.Signals, *words: bytes) -> bool:
        found = self._queries.members(*words)
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._chance.choice(found), number)
        return True

    def _stop(self, *words: bytes) -> bool:
        found = self._queries.members(*words)
        if not found:
            return False
        one = self._chance.choice(found)
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGSTOP)
            time.sleep(self._chance.uniform(1, 6))
            os.kill(one, signal.SIGCONT)
        return True

    def _kill_broker(self) -> bool:
        self._broker.kill()
        time.sleep(self._chance.uniform(0, 3))
        self._broker.start()
        return True

    def _hit_home(self, number: signal.Signals) -> bool:
        """Kill a worker of the broker, or stop it for a while."""
        homes = [pid for pid, parent, command in processes() if parent == self._broker.pid and HOME in command]
        if not homes:
            return False
        home = self._chance.choice(homes)
        os.kill(home, number)
        if number == signal.SIGSTOP:
            time.sleep(self._chance.uniform(1, 8))  # workers count as down after five seconds
            os.kill(home, signal.SIGCONT)
        return True

    def _kill_supervisor(self) -> bool:
        """Kill the supervisor. Its workers end by themselves, and the next supervisor waits for their end."""
        self._broker.kill(alone=True)
        self._broker.start()
        return True

    def _stop_supervisor(self) -> bool:
        os.kill(self._broker.pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(1, 6))
        os.kill(self._broker.pid, signal.SIGCONT)
        return True

    def _stop_broker(self) -> bool:
        os.killpg(self._broker.pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(1, 6))
        os.killpg(self._broker.pid, signal.SIGCONT)
        return True

    def _move(self) -> bool:
        """Move a stream to another worker; other queues stay while a query reads them."""
        bound = self._api.get("exchanges", "/", f"feed.{STREAMS}", "bindings", "source")
        queue = self._chance.choice(bound)["destination"]
        self._api.post("queues", "/", queue, "actions", body={"action": "move"})
        return True

    def _bind_new(self) -> bool:
        self._made += 1
        exchange = f"feed.{self._chance.choice(list(QUERIES))}"
        declare_queue(self._api, exchange, f"{exchange}.new-{self._made}")
        return True

    def _unbind(self) -> bool:
        exchange = f"feed.{self._chance.choice(list(QUERIES))}"
        bound = self._api.get("exchanges", "/", exchange, "bindings", "source")
        if len(bound) < 3:
            return False
        binding = self._chance.choice(bound)
        path = ("bindings", "/", "e", exchange, "q", binding["destination"], binding["properties_key"])
        self._api.delete(*path)
        self._unbound.append((exchange, binding["destination"]))
        return True

    def _bind_again(self) -> bool:
        if not self._unbound:
            return False
        exchange, queue = self._unbound.pop()
        self._api.post("bindings", "/", "e", exchange, "q", queue, body={"routing_key": "1"})
        return True

    def _delete(self) -> tuple[str, str] | None:
        """Pause publishing, and delete a queue once empty. Return its exchange and name, or None."""
        exchange = f"feed.{self._chance.choice([name for name in QUERIES if name != STREAMS])}"
        bound = self._api.get("exchanges", "/", exchange, "bindings", "source")
        if len(bound) < 3:
            return None
        queue, until = self._chance.choice(bound)["destination"], time.monotonic() + EMPTIED
        with self._feed.at_rest:
            while self._api.get("queues", "/", queue)["messages"]:
                if time.monotonic() > until:
                    return None
                time.sleep(0.2)
            self._api.delete("queues", "/", queue)
        return exchange, queue

    def _replace(self) -> bool:
        """Delete and redeclare a queue: its messages and reservations count from 1 again."""
        deleted = self._delete()
        if deleted is None:
            return False
        declare_queue(self._api, *deleted)
        return True


def declare_queue(api: ManagementClient, exchange: str, queue: str) -> None:
    kind = "stream" if exchange == f"feed.{STREAMS}" else "classic"
    arguments = {"x-queue-leader-locator": "balanced", "x-queue-type": kind}
    api.put("queues", "/", queue, body={"durable": True, "arguments": arguments})
    api.post("bindings", "/", "e", exchange, "q", queue, body={"routing_key": "1"})


def declare(api: ManagementClient) -> None:
    """``feed`` copies to a hash exchange ``feed.NAME`` per query; ``back`` takes published rows."""
    api.put("exchanges", "/", "feed", body={"type": "fanout", "durable": True})
    for exchange in (*(f"feed.{name}" for name in QUERIES), "back"):
        api.put("exchanges", "/", exchange, body={"type": "x-consistent-hash", "durable": True})
        for number in range(3):
            declare_queue(api, exchange, f"{exchange}.{number}")
        if exchange != "back":
            api.post("bindings", "/", "e", "feed", "e", exchange, body={})


def waiting(api: ManagementClient) -> int:
    """Messages not yet acknowledged by a query, without streams."""
    queues = api.get("queues", "/")
    return sum(one["messages"] for one in queues if one["name"].startswith("feed.") and one["type"] != "stream")


def in_streams(api: ManagementClient) -> int:
    """Messages of all streams."""
    return sum(one["messages"] for one in api.get("queues", "/") if one["name"].startswith(f"feed.{STREAMS}."))


def drain(api: ManagementClient, queries: Queries) -> None:
    """Wait until the queries have read and acknowledged all messages."""
    least, until = None, time.monotonic() + PATIENCE
    while (left := waiting(api)) or least is None:
        if not queries.alive:
            queries.kill()
            queries.start(max(CORES))
        if least is None or left < least:
            least, until = left, time.monotonic() + PATIENCE
        if time.monotonic() > until:
            raise RuntimeError(
                "\n".join([f"{left} messages are not read; the queries failed with:", *queries.failures[-5:]])
            )
        time.sleep(0.5)


def harm(
    seconds: float, directory: Path, seed: int, say: Callable[[str], None] = print, *, workers: int = 1
) -> dict[str, Any]:
    """Cause failures for the given seconds.

    Args:
        workers: number of the broker's processes.

    Returns:
        ``published``; by query ``rows``, distinct ``numbers`` and the ``highest``; counts of failures as ``done``,
        ``left_out`` failures, and the number of messages ``doubled`` in streams.
    """
    ports = free_ports(2)
    arguments = ("--port", str(ports[0]), "--http-port", str(ports[1]), "--workers", str(workers))
    url = f"http://guest:guest@127.0.0.1:{ports[1]}"
    chance = random.Random(seed)
    with JumpMQ(directory / "broker", arguments=arguments) as broker, Cluster(directory, cores=2) as cluster:
        api = ManagementClient(url)
        declare(api)
        queries = Queries(cluster, url, directory)
        try:
            queries.start(chance.choice(CORES))
            feed = Feed(url)
            feed.start()
            blows, began = Blows(broker, url, feed, queries, chance, of_several=workers > 1), time.monotonic()
            while time.monotonic() < began + seconds:
                time.sleep(chance.uniform(*PAUSE))
                try:
                    say(f"{time.monotonic() - began:6.1f} s  {blows.strike()}")
                except ManagementError as error:
                    say(f"{time.monotonic() - began:6.1f} s  the broker does not answer: {error}")
            blows.make_good()
            published = feed.stop()
            say(f"{time.monotonic() - began:6.1f} s  {published} messages are published; waiting for the rest")
            drain(api, queries)
            found = queries.counted()
            found[STREAMS]["rows"] -= (doubled := in_streams(api) - published)
        finally:
            queries.kill()
    told = {"done": blows.done, "left_out": blows.left_out, "failures": queries.failures, "doubled": doubled}
    return {"published": published, "found": found} | told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="kills-") as directory:
        minutes, seed, workers = arguments.minutes, arguments.seed, arguments.workers
        result = harm(60 * minutes, Path(directory), seed, lambda line: print(line, flush=True), workers=workers)
    print(json.dumps(result["done"]))
    print(f"{result['doubled']} messages are in streams twice")
    if result["left_out"]:
        print("never done:", ", ".join(result["left_out"]))
    for error, times in Counter(one.splitlines()[0] for one in result["failures"]).most_common():
        print(f"{times} x {error}")
    right = {"rows": result["published"], "numbers": result["published"], "highest": result["published"] - 1}
    for name, found in result["found"].items():
        print(f"{name}: {found} of {result['published']}: {'each once' if found == right else 'WRONG'}")
    return int(bool(result["left_out"]) or any(found != right for found in result["found"].values()))


if __name__ == "__main__":
    sys.exit(main())
