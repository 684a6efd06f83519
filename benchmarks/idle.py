"""Cost of an idle broker: processor time and wakeups per second, of a single process and of a node with copies.

    python -m benchmarks.idle [--seconds SECONDS]

First a single broker, then three nodes whose homes have three copies, with an etcd of one member; without clients.
Processor time covers all processes of a broker, from /proc/PID/stat. Wakeups are the voluntary context switches of the
process with the event loop.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jumpmq.management import ManagementClient, ManagementError
from jumpmq.testing import JumpMQ, free_ports
from jumpmq.testing.etcd import etcd, is_installed

NODES = 3
SETTLE = 25.0
"""Seconds between the start and the measurement: indexes are written, links and sets of copies are made."""

PATIENCE = 120.0


@contextmanager
def idle_nodes() -> Iterator[list[JumpMQ]]:
    """Three nodes whose homes have three copies."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-benchmark-")))
        (member,) = stack.enter_context(etcd(directory, sync=True))
        ports = iter(free_ports(2 * NODES))  # kept by a restarted process
        nodes = []
        for number in range(NODES):
            cluster = ("--cluster", "b", "--etcd", member.url, "--copies", str(NODES))
            own = ("--port", str(next(ports)), "--http-port", str(next(ports)))
            node = JumpMQ(directory / f"node-{number}", f"node{number}@host", (*cluster, *own))
            nodes.append(stack.enter_context(node))
        end = time.monotonic() + PATIENCE
        while not _has_copies(nodes[0]):
            if time.monotonic() > end:
                sys.exit("not all homes have three copies")
            time.sleep(0.5)
        yield nodes


def _has_copies(node: JumpMQ) -> bool:
    client = ManagementClient(f"http://guest:guest@127.0.0.1:{node.http_port}", 60.0)
    try:
        return all(client.get("copies", str(home))["in_set"] == NODES for home in range(1, NODES + 1))
    except (ManagementError, OSError, KeyError):
        return False


def measured(brokers: list[JumpMQ], seconds: float) -> tuple[float, float]:
    """Return the percentage of a processor, and wakeups per second, of a broker: the median of several samples."""
    time.sleep(SETTLE)
    before = [(one.cpu_seconds(), _wakeups(one.pid)) for one in brokers]
    began = time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    after = [(one.cpu_seconds(), _wakeups(one.pid)) for one in brokers]
    grown = [(now[0] - was[0], now[1] - was[1]) for was, now in zip(before, after, strict=True)]
    return (
        100 * statistics.median(busy for busy, _ in grown) / lasted,
        statistics.median(wakeups for _, wakeups in grown) / lasted,
    )


def _wakeups(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    print("| idle | of a processor | wakeups/s |\n| --- | ---: | ---: |")
    with JumpMQ() as broker:
        busy, wakeups = measured([broker], options.seconds)
    print(f"| a broker | {busy:.2f} % | {wakeups:.0f} |", flush=True)
    if not is_installed():
        sys.exit("etcd is not installed: apt-get install etcd-server")
    with idle_nodes() as nodes:
        busy, wakeups = measured(nodes, options.seconds)
    print(f"| a node of three, three copies | {busy:.2f} % | {wakeups:.0f} |", flush=True)


if __name__ == "__main__":
    main()
