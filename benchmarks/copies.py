"""Three copies of a home beside one, quorum queues of RabbitMQ, and bare processes: confirms, and a lost node.

    python -m benchmarks.copies [-n MESSAGES] [--rounds ROUNDS]

All nodes are on this machine, JumpMQ's with an etcd of one member. Home 1 has three copies, home 2 one: the same load
goes to a queue of either in turn, through the home's own node, and then to RabbitMQ's and to the bare server with two
followers (``benchmarks/bare.py``), which no broker can outdo here. At the end the node with home 1 is killed, and a
client of another node asks for its queue until it is answered.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from benchmarks.bare import bare_server
from benchmarks.cluster import NODES, rabbitmq_cluster
from benchmarks.confirms import broker_rate
from benchmarks.load.client import Address, Connection
from jumpmq.management import ManagementClient
from jumpmq.testing import JumpMQ, RabbitMQ, free_ports
from jumpmq.testing.etcd import etcd, is_installed

WINDOWS = {1: 0.02, 100: 0.3, 1000: 1.0}
"""Unconfirmed messages at most, and the share of the messages that such a run sends."""

PATIENCE = 60
VHOST = "quorum"
"""Virtual host of RabbitMQ whose queues are quorum queues."""


@contextmanager
def nodes_with_copies() -> Iterator[list[JumpMQ]]:
    """Three nodes; home 1 has three copies."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-benchmark-")))
        (member,) = stack.enter_context(etcd(directory, sync=True))
        ports = iter(free_ports(2 * NODES))  # which stay, when a process starts again
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
        time.sleep(1)  # links to the process that has started again are up
        yield nodes


def lost(nodes: list[JumpMQ]) -> float:
    """Seconds from the kill of the first node until a queue of its home is answered for at the second."""
    with closing(Connection(Address(nodes[0].port))) as connection:
        connection.declare_queue("lost")
    nodes[0].kill()
    began = time.perf_counter()
    with closing(Connection(Address(nodes[1].port))) as connection:
        connection.count("lost")
    return time.perf_counter() - began


def rates(ports: dict[str, tuple[int, tuple[str, ...]]], count: int, rounds: int) -> dict[str, dict[int, float]]:
    """Confirms a second, by what is loaded and by window: the medians of rounds in turn."""
    found: dict[str, dict[int, list[float]]] = {name: {window: [] for window in WINDOWS} for name in ports}
    for _ in range(rounds):
        for window, share in WINDOWS.items():
            for name, (port, arguments) in ports.items():
                rate = broker_rate(port, int(count * share), "confirm", "--window", str(window), *arguments)
                found[name][window].append(rate)
    return {name: {window: statistics.median(all_) for window, all_ in by.items()} for name, by in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=50_000, help="messages of a run with the largest window")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not is_installed():
        sys.exit("etcd is not installed: apt-get install etcd-server")
    with ExitStack() as stack:
        nodes = stack.enter_context(nodes_with_copies())
        ports: dict[str, tuple[int, tuple[str, ...]]] = {
            "3 copies": (nodes[0].port, ("--exchange", "three")),
            "1 copy": (nodes[1].port, ("--exchange", "one")),
        }
        if RabbitMQ.available():
            rivals, _ = stack.enter_context(rabbitmq_cluster())
            first = rivals[0]
            assert isinstance(first, RabbitMQ)
            first.ctl("add_vhost", VHOST, "--default-queue-type", "quorum")
            first.ctl("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*")
            ports["RabbitMQ, quorum"] = first.port, ("--vhost", VHOST)
        ports["bare, two followers"] = stack.enter_context(bare_server(NODES - 1)), ()
        found = rates(ports, options.n, options.rounds)
        print(f"| confirms a second, three nodes on {len(os.sched_getaffinity(0))} cores | {' | '.join(found)} |")
        print(f"| --- |{' ---: |' * len(found)}")
        for window in WINDOWS:
            print(f"| {window:,} unconfirmed | {' | '.join(f'{by[window]:,.0f}' for by in found.values())} |")
        print(f"\nA lost node: its queue is answered for after {lost(nodes):.1f} s.")


if __name__ == "__main__":
    main()
