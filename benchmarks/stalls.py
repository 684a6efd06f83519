"""Latency of a bystander's messages during long operations.

    python -m benchmarks.stalls [-n MESSAGES] [--only NAME ...] [--memory-limit SIZE]

Each operation works on a million messages, or on the number in its name. A probe, a process of its own, sends a message
through the broker and waits for its delivery, repeatedly. Printed are the duration of the operation, the 99.9th
percentile and maximum of the probe's latency, and the longest slice of processor time of the broker's thread
(:mod:`benchmarks.watched`), all in milliseconds. The first line has the probe's figures without an operation. Time in
which the probe and the broker's thread waited for a processor is subtracted.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import requests

from benchmarks import watched
from benchmarks.load.client import BODY, HEADER, Address, Connection, LoadError, frame, method, short
from jumpmq.testing import HOST, JumpMQ

QUEUE = "stalled"
GRAVE = "grave"
OCTETS = bytes(100)
BLOCK = 1000
"""Messages sent at once."""

PROBE_INTERVAL = 0.0005
"""Seconds between the probe's messages."""


class Watched(JumpMQ):
    """A broker that reports the longest slice of its thread."""

    @property
    def command(self) -> list[str]:
        # a file, not a module: the broker has another working directory
        return [sys.executable, "-P", str(Path(watched.__file__).resolve()), str(self.watch)]

    @property
    def watch(self) -> Path:
        """The file with the longest slice."""
        return self.directory / "longest"


class Stalls:
    """A broker, a probe, and long operations."""

    def __init__(self, broker: JumpMQ, count: int) -> None:
        self.broker = broker
        self.count = count
        self.session = requests.Session()
        self.session.auth = ("guest", "guest")
        self.connection = Connection(Address(broker.port))

    # --- preparing ---

    def ask(self, verb: str, path: str, body: Any = None) -> None:
        url = f"http://{HOST}:{self.broker.http_port}/api/{path}"
        self.session.request(verb, url, json=body, timeout=300).raise_for_status()

    def declare(self, queue: str = QUEUE, **arguments: Any) -> None:
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.ask("PUT", f"queues/%2F/{queue}", {"durable": True, "arguments": named})

    def fill(self, **arguments: Any) -> None:
        """Fill the queue with all messages."""
        self.declare(**arguments)
        block = publication(QUEUE, OCTETS) * BLOCK
        for _ in range(self.count // BLOCK):
            self.connection.send(block)
        while self.ready(QUEUE) < self.count and not arguments.get("message_ttl"):
            time.sleep(0.01)

    def ready(self, queue: str) -> int:
        return self.connection.count(queue)

    def hold(self) -> Connection:
        """A connection that holds all messages of the queue unacknowledged."""
        holder = Connection(Address(self.broker.port))
        holder.consume(QUEUE, auto_ack=False)
        while True:
            swallow(holder)
            if self.unacknowledged() >= self.count:
                return holder

    def unacknowledged(self) -> int:
        url = f"http://{HOST}:{self.broker.http_port}/api/queues/%2F/{QUEUE}"
        return int(self.session.get(url, timeout=300).json()["messages_unacknowledged"])

    def wait_for(self, queue: str, count: int) -> None:
        while self.ready(queue) != count:
            time.sleep(0.005)

    def clear(self) -> None:
        for queue in (QUEUE, GRAVE):
            self.session.delete(f"http://{HOST}:{self.broker.http_port}/api/queues/%2F/{queue}", timeout=300)
        self.session.delete(f"http://{HOST}:{self.broker.http_port}/api/policies/%2F/short", timeout=300)
        time.sleep(1)

    # --- operations ---

    def nothing(self) -> Callable[[], None]:
        return lambda: time.sleep(3)

    def purge(self) -> Callable[[], None]:
        self.fill()
        return lambda: self.ask("DELETE", f"queues/%2F/{QUEUE}/contents")

    def delete(self) -> Callable[[], None]:
        self.fill()
        return lambda: self.ask("DELETE", f"queues/%2F/{QUEUE}")

    def shorten(self) -> Callable[[], None]:
        self.fill()
        return self._shorten

    def shorten_and_dead_letter(self) -> Callable[[], None]:
        self.declare(GRAVE)
        self.fill(dead_letter_exchange="", dead_letter_routing_key=GRAVE)
        return self._shorten

    def _shorten(self) -> None:
        self.ask("PUT", "policies/%2F/short", {"pattern": f"^{QUEUE}$", "definition": {"max-length": 0}})
        self.wait_for(QUEUE, 0)

    def expire_and_dead_letter(self) -> Callable[[], None]:
        self.declare(GRAVE)
        self.fill(dead_letter_exchange="", dead_letter_routing_key=GRAVE, message_ttl=3000)
        return lambda: self.wait_for(GRAVE, self.count)

    def drain_from_disk(self) -> Callable[[], None]:
        """Twice the number of persistent messages, of 1 KB; with a --memory-limit of 500MB most are on disk only."""
        self.declare()
        block = publication(QUEUE, bytes(1000), persistent=True) * BLOCK
        for _ in range(2 * self.count // BLOCK):
            self.connection.send(block)
        self.wait_for(QUEUE, 2 * self.count // BLOCK * BLOCK)
        return self._drain

    def _drain(self) -> None:
        consumer = Connection(Address(self.broker.port))
        consumer.prefetch(1000)
        consumer.consume(QUEUE, auto_ack=True)
        octets = 0
        while octets < 2 * self.count // BLOCK * BLOCK * 1000:
            consumer.fill()
            octets += consumer.filled
            consumer.discard(consumer.filled)
        consumer.socket.close()

    def close(self) -> Callable[[], None]:
        self.fill()
        holder = self.hold()

        def act() -> None:
            holder.socket.close()
            self.wait_for(QUEUE, self.count)

        return act

    def acknowledge(self) -> Callable[[], None]:
        return self._settle(struct.pack(">QB", 0, 1), 80, 0)

    def requeue(self) -> Callable[[], None]:
        return self._settle(struct.pack(">QB", 0, 3), 120, None)

    def _settle(self, arguments: bytes, number: int, left: int | None) -> Callable[[], None]:
        self.fill()
        holder = self.hold()
        holder.call(60, 30, short("load") + b"\0")

        def act() -> None:
            holder.send(method(1, 60, number, arguments))
            self.wait_for(QUEUE, self.count if left is None else left)
            while self.unacknowledged():
                time.sleep(0.005)
            holder.socket.close()

        return act

    def requeue_one_by_one(self) -> Callable[[], None]:
        """20,000 messages, the oldest first."""
        self.fill()
        holder = Connection(Address(self.broker.port))
        get = method(1, 60, 70, b"\0\0" + short(QUEUE) + b"\0")
        for _ in range(20):
            holder.send(get * 1000)
            swallow(holder)

        def act() -> None:
            for tag in range(1, 20_001):
                holder.send(method(1, 60, 120, struct.pack(">QB", tag, 2)))
            while self.unacknowledged():
                time.sleep(0.005)
            holder.socket.close()

        return act

    def commit_300_000(self) -> Callable[[], None]:
        """A transaction of 300,000 persistent publishes and 300,000 single acknowledgements."""
        count = 300_000
        self.declare()
        self.declare(GRAVE)
        self.connection.send(publication(QUEUE, OCTETS, persistent=True) * count)
        self.wait_for(QUEUE, count)
        holder = Connection(Address(self.broker.port))
        holder.call(90, 10, b"")
        holder.consume(QUEUE, auto_ack=False)
        while self.unacknowledged() < count:
            swallow(holder)
        holder.send(publication(GRAVE, OCTETS, persistent=True) * count)
        holder.send(b"".join(method(1, 60, 80, struct.pack(">QB", tag, 0)) for tag in range(1, count + 1)))
        time.sleep(3)

        def act() -> None:
            holder.call(90, 20, b"")
            holder.socket.close()

        return act

    def rest(self) -> Callable[[], None]:
        """Return all messages to the queue with a redelivery delay of an hour, each alone."""
        return self._rest(3_600_000, {}, self.count)

    def rest_by_key(self) -> Callable[[], None]:
        """Return all messages of 64 slots to the queue with a redelivery delay of an hour."""
        return self._rest(3_600_000, {"slots": 64}, self.count)

    def rested_100_000(self) -> Callable[[], None]:
        """100,000 delayed messages, returned together, are due at once, and go to a consumer."""
        return self._rested({})

    def rested_100_000_by_key(self) -> Callable[[], None]:
        """100,000 delayed messages in a queue of 64 slots."""
        return self._rested({"slots": 64})

    def _rested(self, arguments: dict[str, Any]) -> Callable[[], None]:
        self.count, whole = 100_000, self.count
        self._rest(15_000, arguments, self.count)()
        self.count = whole
        return lambda: self._consume(100_000)

    def _consume(self, count: int) -> None:
        """Receive the given number of messages of 100 octets."""
        consumer = Connection(Address(self.broker.port))
        consumer.consume(QUEUE, auto_ack=True)
        octets = 0
        while octets < count * len(OCTETS):
            consumer.fill()
            octets += consumer.filled
            consumer.discard(consumer.filled)
        consumer.socket.close()

    def _rest(self, milliseconds: int, arguments: dict[str, Any], count: int) -> Callable[[], None]:
        self.fill(delayed_retry_type="all", delayed_retry_min=milliseconds, **arguments)
        holder = self.hold()

        def act() -> None:
            holder.send(method(1, 60, 120, struct.pack(">QB", 0, 3)))
            while self.resting() < count:
                time.sleep(0.2)
            holder.socket.close()

        return act

    def resting(self) -> int:
        url = f"http://{HOST}:{self.broker.http_port}/api/queues/%2F/{QUEUE}"
        return int(self.session.get(url, timeout=300).json()["messages_resting"])

    def import_10_000_queues(self) -> Callable[[], None]:
        queues = [{"name": f"imported-{number}", "vhost": "/", "durable": True} for number in range(10_000)]
        return lambda: self.ask("POST", "definitions", {"queues": queues})

    def delete_10_000_queues(self) -> Callable[[], None]:
        """A virtual host with 10,000 queues."""
        self.ask("PUT", "vhosts/many")
        queues = [{"name": f"imported-{number}", "vhost": "many", "durable": True} for number in range(10_000)]
        self.ask("POST", "definitions", {"queues": queues})
        return lambda: self.ask("DELETE", "vhosts/many")

    def make_10_000_shards(self) -> Callable[[], None]:
        """Ten exchanges with 10,000 shards, made by a policy."""
        self.ask("PUT", "vhosts/sharded")
        for number in range(10):
            self.ask("PUT", f"exchanges/sharded/x{number}", {"type": "x-modulus-hash", "durable": True})
        policy = {"pattern": "^x", "apply-to": "exchanges", "definition": {"shards-per-node": 1000}}
        return lambda: self.ask("PUT", "policies/sharded/shards", policy)

    def delete_60_000_bindings(self) -> Callable[[], None]:
        """Delete a queue with 60,000 bindings."""
        self.declare()
        for number in range(60_000):
            self.connection.send(binding(QUEUE, "amq.direct", f"key {number}"))
        self.connection.prefetch(0)
        return lambda: self.ask("DELETE", f"queues/%2F/{QUEUE}")

    def close_15_000_exclusive(self) -> Callable[[], None]:
        """The exclusive queues of a connection that ends."""
        owner = Connection(Address(self.broker.port))
        for number in range(15_000):
            declare = b"\0\0" + short(f"exclusive-{number}") + b"\x14" + bytes(4)
            owner.send(method(1, 50, 10, declare))
        owner.prefetch(0)
        return owner.close

    def close_30_000_consumers(self) -> Callable[[], None]:
        """The consumers on a hundred channels of a connection that ends."""
        self.declare()
        owner = Connection(Address(self.broker.port))
        for number in range(30_000):
            channel = 2 + number // 300
            if number % 300 == 0:
                owner.open_channel(channel)
            owner.send(method(channel, 60, 20, b"\0\0" + short(QUEUE) + short(f"c{number}") + b"\x08" + bytes(4)))
        owner.prefetch(0)
        return owner.close

    def copies_to_1_000_keys(self) -> Callable[[], None]:
        """Publish a message with a CC header of 1,000 keys to a topic exchange with 300 patterns, ten times."""
        self.declare()
        for number in range(300):
            pattern = ".".join("a*#"[(number >> place % 9 & 1) + (place + number) % 2] for place in range(10))
            self.connection.send(binding(QUEUE, "amq.topic", f"{pattern}.{number}"))
        return self._copies("amq.topic", lambda number: f"a.a.{number}.b.a.a.b.a.b.a.7")

    def copies_to_1_000_queues(self) -> Callable[[], None]:
        """A message with a CC header of 1,000 queues, ten times."""
        for number in range(1000):
            self.connection.declare_queue(f"copied-{number}")
        return self._copies("", lambda number: f"copied-{number}")

    def _copies(self, exchange: str, key: Callable[[int], str]) -> Callable[[], None]:
        items = b"".join(b"S" + struct.pack(">I", len(one)) + one for one in (key(n).encode() for n in range(1000)))
        table = short("CC") + b"A" + struct.pack(">I", len(items)) + items
        header = struct.pack(">HHQHI", 60, 0, 0, 0x2000, len(table)) + table
        publish = method(1, 60, 40, b"\0\0" + short(exchange) + short("none") + b"\0") + frame(HEADER, 1, header)

        def act() -> None:
            self.connection.send(publish * 10)
            self.connection.prefetch(0)

        return act


def binding(queue: str, exchange: str, key: str) -> bytes:
    """A frame that binds a queue with ``no-wait``."""
    return method(1, 50, 20, b"\0\0" + short(queue) + short(exchange) + short(key) + b"\1" + bytes(4))


def publication(queue: str, octets: bytes, *, persistent: bool = False) -> bytes:
    """Frames of a message to a queue."""
    header = struct.pack(">HHQH", 60, 0, len(octets), 0x1000 * persistent) + b"\2" * persistent
    publish = method(1, 60, 40, b"\0\0" + short("") + short(queue) + b"\0")
    return publish + frame(HEADER, 1, header) + frame(BODY, 1, octets)


def swallow(connection: Connection) -> None:
    """Receive and discard octets until none arrive for 0.3 s."""
    connection.socket.settimeout(0.3)
    with contextlib.suppress(LoadError):
        while True:
            connection.discard(connection.filled)
            connection.fill()
    connection.socket.settimeout(60)


OPERATIONS = [
    Stalls.nothing, Stalls.purge, Stalls.delete, Stalls.shorten, Stalls.shorten_and_dead_letter,
    Stalls.expire_and_dead_letter, Stalls.close, Stalls.acknowledge, Stalls.requeue, Stalls.requeue_one_by_one,
    Stalls.rest, Stalls.rest_by_key, Stalls.rested_100_000, Stalls.rested_100_000_by_key,
    Stalls.commit_300_000, Stalls.import_10_000_queues, Stalls.delete_10_000_queues, Stalls.make_10_000_shards,
    Stalls.drain_from_disk, Stalls.delete_60_000_bindings, Stalls.close_15_000_exclusive,
    Stalls.close_30_000_consumers, Stalls.copies_to_1_000_keys, Stalls.copies_to_1_000_queues,
]  # fmt: skip


def probe(port: int, pipe: Pipe, broker: int | None = None) -> None:
    """Send messages through the broker in turn; answer each message of the pipe with the latencies since the last one.

    Args:
        broker: process whose waits for a processor are subtracted, as are the probe's own.
    """
    connection = Connection(Address(port))
    connection.declare_queue("probe")
    connection.consume("probe", auto_ack=True)
    message = publication("probe", b"probe")
    taken: list[float] = []
    size = 0
    while True:
        waits = waited(broker)
        began = time.perf_counter()
        connection.send(message)
        while connection.filled < max(size, 1):
            connection.fill()
        if not size:
            time.sleep(0.2)
            size = connection.filled
        connection.discard(connection.filled)
        taken.append(max(0.0, time.perf_counter() - began - (waited(broker) - waits)))
        if pipe.poll():
            pipe.recv()
            pipe.send(taken)
            taken = []
        time.sleep(PROBE_INTERVAL)


def waited(broker: int | None) -> float:
    """Seconds in which this process and the given one were ready to run without a processor."""
    if broker is None:
        return 0.0
    return sum(int(Path(f"/proc/{one}/schedstat").read_text().split()[1]) for one in ("self", broker)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1_000_000, help="messages")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="operations, by their names below")
    parser.add_argument("--memory-limit", default="0.4", help="of the broker: beyond half of it bodies are paged")
    options = parser.parse_args()
    print(f"{'operation':26} {'seconds':>8} {'p99.9':>8} {'longest':>8} {'stretch':>8}")
    with Watched(arguments=["--memory-limit", options.memory_limit]) as broker:
        here, there = multiprocessing.Pipe()
        probing = multiprocessing.Process(target=probe, args=(broker.port, there, broker.pid), daemon=True)
        probing.start()
        stalls = Stalls(broker, options.n)
        for operation in OPERATIONS:
            name = operation.__name__
            if not options.only or name in options.only:
                report(name, operation(stalls), here, broker.watch)
                stalls.clear()
        probing.terminate()
        probing.join()


def report(name: str, act: Callable[[], None], pipe: Pipe, watch: Path) -> None:
    """Print the probe's figures of an operation."""
    pipe.send(None)
    pipe.recv()
    watched.longest(watch)
    began = time.perf_counter()
    act()
    seconds = time.perf_counter() - began
    pipe.send(None)
    taken = sorted(pipe.recv())
    figures = taken[int(len(taken) * 0.999)], taken[-1], watched.longest(watch)
    print(f"{name:26} {seconds:8.2f}", *(f"{1000 * figure:8.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
