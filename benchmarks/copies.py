"""Confirms with three copies of a home and with one, of RabbitMQ's quorum queues, and of bare processes; a lost node.

    python -m benchmarks.copies [-n MESSAGES] [--rounds ROUNDS] [--window WINDOW]
    python -m benchmarks.copies --catch-up MEGABYTES

All nodes are on this machine; JumpMQ's cluster has an etcd of one member. Home 1 has three copies, home 2 one: the same
load goes to a queue of either in turn, through the home's own node, then to RabbitMQ, to the bare server with two
followers (``benchmarks/bare.py``), an upper bound for any broker here, and to the bare server on event loops with TLS
(``benchmarks/bare_loops.py``). In brackets is the processor time per confirm, in microseconds, of all loaded processes.
At the end the node with home 1 is killed, and a client of another node requests its queue until an answer comes;
``--window``, which measures a single line, omits this part.

With ``--catch-up`` a third copy of a home with the given number of megabytes is made from files, and then brought up to
date from the log: alone, and next to a bystander that publishes a persistent message and waits for its confirm before
the next.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pika

from benchmarks.bare import bare_server
from benchmarks.bare_loops import bare_loops
from benchmarks.cluster import NODES, rabbitmq_cluster
from benchmarks.confirms import broker_rate
from benchmarks.load.client import Address, Connection
from jumpmq.management import ManagementClient
from jumpmq.testing import JumpMQ, RabbitMQ, free_ports
from jumpmq.testing.etcd import etcd, is_installed

WINDOWS = {1: 0.02, 100: 0.3, 1000: 1.0}
"""Maximum number of unconfirmed messages, and the fraction of the messages for such a run."""

PATIENCE = 60
LOOK, BEFORE = 0.02, 5.0
"""Seconds between two checks of the copies, and of the bystander before a copy is made."""

NEAR = 1 << 20
"""Octets that an up-to-date copy may lack because of current writes."""

BODY_OCTETS = 100_000
"""Octets of a body in the home that is copied."""

VHOST = "quorum"
"""Virtual host of RabbitMQ with quorum queues."""


@contextmanager
def nodes_with_copies() -> Iterator[list[JumpMQ]]:
    """Three nodes; home 1 has three copies."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-benchmark-")))
        (member,) = stack.enter_context(etcd(directory, sync=True))
        ports = iter(free_ports(2 * NODES))  # kept by a restarted process
        nodes = [
            stack.enter_context(
                JumpMQ(
                    directory / f"node-{number}",
                    f"node{number}@host",
                    (
                        "--cluster",
                        "b",
                        "--etcd",
                        member.url,
                        "--port",
                        str(next(ports)),
                        "--http-port",
                        str(next(ports)),
                    ),
                )
            )
            for number in range(NODES)
        ]
        client = ManagementClient(f"http://guest:guest@127.0.0.1:{nodes[1].http_port}", 60.0)
        client.put("copies", "1", body={"copies": NODES})
        end = time.monotonic() + PATIENCE
        while client.get("copies", "1")["in_set"] < NODES:
            if time.monotonic() > end:
                sys.exit("home 1 has no three copies")
            time.sleep(0.2)
        time.sleep(1)  # links to the restarted process are up
        yield nodes


class Bystander:
    """Publishes persistent messages to its own queue, each after the previous confirm, from its creation on."""

    def __init__(self, port: int) -> None:
        self._waits: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(port,))
        self._thread.start()

    def _run(self, port: int) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.queue_declare("bystander", durable=True)
            channel.confirm_delivery()
            while not self._stop.is_set():
                began = time.perf_counter()
                channel.basic_publish("", "bystander", b"x" * 100, pika.BasicProperties(delivery_mode=2))
                self._waits.append(time.perf_counter() - began)
                time.sleep(0.005)

    def waits(self) -> str:
        """Milliseconds per confirm since the last call: median and 99th percentile."""
        found, self._waits = sorted(self._waits), []
        return f"{1000 * found[len(found) // 2]:.1f} / {1000 * found[int(len(found) * 0.99)]:.1f}"

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()


def caught_up(nodes: list[JumpMQ], megabytes: int, *, of_files: bool, watched: bool) -> tuple[float, str, str]:
    """Make the third copy of home 1.

    Returns:
        megabytes per second, and the bystander's latencies before and meanwhile.
    """
    client = ManagementClient(f"http://guest:guest@127.0.0.1:{nodes[0].http_port}", 60.0)
    _have_copies(client, NODES - 1)
    if of_files:
        time.sleep(1)  # the copy is closed by then
        shutil.rmtree(nodes[2].data_dir / "copies" / "1")
    count = megabytes * 1_000_000 // BODY_OCTETS
    load = ("confirm", "--window", "50", "--size", str(BODY_OCTETS), "--keep", "--exchange", "filled")
    broker_rate(nodes[0].port, count, *load)
    bystander = Bystander(nodes[0].port) if watched else None
    time.sleep(BEFORE)
    before = bystander.waits() if bystander else ""
    began = time.perf_counter()
    client.put("copies", "1", body={"copies": NODES})
    _until(client, lambda home: any(one.get("lag_bytes", NEAR) < NEAR for one in home["members"][2:]))
    seconds = time.perf_counter() - began
    meanwhile = bystander.waits() if bystander else ""
    if bystander:
        bystander.leave()
    _have_copies(client, NODES)
    return megabytes / seconds, before, meanwhile


def _have_copies(client: ManagementClient, count: int) -> None:
    client.put("copies", "1", body={"copies": count})
    _until(client, lambda home: home["in_set"] == len(home["members"]) == count)


def _until(client: ManagementClient, is_so: Callable[[Any], bool]) -> None:
    """Wait for a condition of home 1."""
    end = time.monotonic() + PATIENCE
    while not is_so(home := client.get("copies", "1")):
        if time.monotonic() > end:
            sys.exit(f"home 1 has other copies: {home}")
        time.sleep(LOOK)


def print_caught_up(nodes: list[JumpMQ], megabytes: int) -> None:
    """Print the speed of making copies, and the latency of a bystander."""
    print(f"| a third copy, {megabytes:,} MB | MB/s | with a bystander | its confirm before, ms | meanwhile |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, of_files in ("made of files", True), ("brought up to date", False):
        alone, _, _ = caught_up(nodes, megabytes, of_files=of_files, watched=False)
        speed, before, meanwhile = caught_up(nodes, megabytes, of_files=of_files, watched=True)
        print(f"| {name} | {alone:.0f} | {speed:.0f} | {before} | {meanwhile} |", flush=True)


def lost(nodes: list[JumpMQ]) -> float:
    """Seconds from the kill of the first node until the second node answers for a queue of the home."""
    with closing(Connection(Address(nodes[0].port))) as connection:
        connection.declare_queue("lost")
    nodes[0].kill()
    began = time.perf_counter()
    with closing(Connection(Address(nodes[1].port))) as connection:
        connection.count("lost")
    return time.perf_counter() - began


class Loaded(NamedTuple):
    """A server under load.

    Attributes:
        port: its listening port.
        arguments: of the load generator.
        processes: process ids of the server; empty if unknown.
    """

    port: int
    arguments: tuple[str, ...]
    processes: frozenset[int]


def measured(
    loaded: dict[str, Loaded], count: int, rounds: int, windows: Collection[int]
) -> dict[str, dict[int, tuple[float, float]]]:
    """Return confirms per second, and processor microseconds per confirm, by server and window.

    Each figure is the median of the rounds.
    """
    found: dict[str, dict[int, list[tuple[float, float]]]] = {one: {window: [] for window in windows} for one in loaded}
    for _ in range(rounds):
        for window in windows:
            messages = int(count * WINDOWS[window])
            for name, (port, arguments, processes) in loaded.items():
                before = busy(processes)
                rate = broker_rate(port, messages, "confirm", "--window", str(window), *arguments)
                found[name][window].append((rate, 1e6 * (busy(processes) - before) / messages))
    return {name: {window: _medians(all_) for window, all_ in by.items()} for name, by in found.items()}


def _medians(measured: list[tuple[float, float]]) -> tuple[float, float]:
    rates, costs = zip(*measured, strict=True)
    return statistics.median(rates), statistics.median(costs)


def busy(processes: Collection[int]) -> float:
    """Processor seconds of the given processes, in all threads."""
    tasks = [task for process in processes for task in Path(f"/proc/{process}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def descendants() -> frozenset[int]:
    """The descendants of this process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, waiting = set[int](), [os.getpid()]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting += new
    return frozenset(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=50_000, help="messages of a run with the largest window")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=int, choices=WINDOWS, help="unconfirmed messages, of this line alone")
    parser.add_argument(
        "--catch-up", type=int, metavar="MEGABYTES", help="measure how fast a third copy is made instead"
    )
    options = parser.parse_args()
    if not is_installed():
        sys.exit("etcd is not installed: apt-get install etcd-server")
    with ExitStack() as stack:
        nodes = stack.enter_context(nodes_with_copies())
        if options.catch_up:
            print_caught_up(nodes, options.catch_up)
            return
        ours = descendants()
        loaded = {
            "3 copies": Loaded(nodes[0].port, ("--exchange", "three"), ours),
            "1 copy": Loaded(nodes[1].port, ("--exchange", "one"), ours),
        }
        if RabbitMQ.available():
            rivals, _ = stack.enter_context(rabbitmq_cluster())
            first = rivals[0]
            assert isinstance(first, RabbitMQ)
            first.ctl("add_vhost", VHOST, "--default-queue-type", "quorum")
            first.ctl("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*")
            loaded["RabbitMQ, quorum"] = Loaded(first.port, ("--vhost", VHOST), descendants() - ours)
        for name, server in ("bare, two followers", bare_server), ("the same on event loops", bare_loops):
            before = descendants()
            loaded[name] = Loaded(stack.enter_context(server(NODES - 1)), (), descendants() - before)
        windows = [options.window] if options.window else [*WINDOWS]
        found = measured(loaded, options.n, options.rounds, windows)
        print(f"| confirms a second, three nodes on {len(os.sched_getaffinity(0))} cores | {' | '.join(found)} |")
        print(f"| --- |{' ---: |' * len(found)}")
        for window in windows:
            cells = [f"{rate:,.0f} ({cost:,.0f})" for rate, cost in (by[window] for by in found.values())]
            print(f"| {window:,} unconfirmed | {' | '.join(cells)} |")
        if options.window:
            return
        print(f"\nA lost node: its queue is answered for after {lost(nodes):.1f} s.")


if __name__ == "__main__":
    main()
