"""A model of several processes on one machine, based on the measured cost of a hop between two of them.

    python -m benchmarks.workers [--rounds N]

First JumpMQ as one process: its processor time per message; the cost of messages without a queue is the part of reading
and routing. Then the parts of a hop, each alone (`hops.py`). The model adds up the cost of a message at all workers:
`N` workers, on as many otherwise idle cores, have N times the throughput of one, divided by the relative cost. Where
one process has a special role, the busiest process counts. The model leaves out the cores of clients and the disk.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.hops import RUN, SMALL, Hops
from benchmarks.load.client import Address, Connection
from benchmarks.load.traffic import Messages
from jumpmq.amqp.protocol import FRAME_MAX
from jumpmq.broker.connection.receiving import LARGE_READ_SIZE
from jumpmq.cli.certificates import make_certificates
from jumpmq.testing import JumpMQ

WORKERS = (2, 4, 8, 16)
LARGE = 100_000
LOADS = {
    "small": ("flow", "-n", "200000"),
    "large": ("flow", "-n", "2000", "--size", str(LARGE)),
    "singly": ("singly", "--persistent", "-n", "10000", "--connections", "1000", "--publishers", "2"),
    "connections": ("connections", "-n", "300"),
}
TOGETHER = 20
"""Messages confirmed together, where 1,000 connections wait for a confirm; workers share the number."""


class Costs(NamedTuple):
    """Processor microseconds: of a single process per message (or connection), and of the parts of a hop."""

    plain: dict[str, float]
    tls: dict[str, float]
    routing: float
    enqueue: dict[str, float]
    relay: dict[str, float]
    octet: float
    wake: float


Line = Callable[[Costs, int], float]
"""Throughput of the given number of workers, relative to one process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    plain, tls, routing = of_one_process(rounds)
    hops = Hops(rounds)
    sizes = {"small": SMALL, "large": LARGE}
    costs = Costs(
        plain,
        tls,
        routing,
        {name: hops.enqueue(size) for name, size in sizes.items()},
        {name: hops.relay(size) for name, size in sizes.items()},
        hops.octets(),
        hops.wake(),
    )
    print(parts(costs, hops.hand_over(), {workers: hops.barrier(workers) for workers in WORKERS}))
    print(f"\n| times one process | {' | '.join(f'{n} workers' for n in WORKERS)} |\n| --- |{' ---: |' * len(WORKERS)}")
    for title, line in LINES.items():
        print(f"| {title} | {' | '.join(f'{line(costs, n):.1f}' for n in WORKERS)} |")
    print("\n| TLS aside, microseconds | broker: model | measured | TLS: model | measured |\n| --- |" + " ---: |" * 4)
    for name, (own, other) in with_tls_aside(rounds).items():
        expected = costs.plain[name], tls_alone(costs, name)
        print(f"| {name} | {expected[0]:.2f} | {own:.2f} | {expected[1]:.2f} | {other:.2f} |")


@contextmanager
def speaking_tls(processes: int) -> Iterator[tuple[JumpMQ, int, tuple[str, ...]]]:
    """A broker with the given number of TLS processes, its port with TLS, and options of the load generator."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(Path(folder))
        files = [
            "--tls-port",
            "0",
            "--https-port",
            "off",
            "--tls-cert",
            str(made.server),
            "--tls-key",
            str(made.server_key),
        ]
        with JumpMQ(arguments=[*files, "--tls-processes", str(processes)]) as broker:
            found = re.search(r"amqps://[^\s/]*:(\d+)", broker.log.read_text())
            assert found is not None
            yield broker, int(found[1]), ("--tls-ca", str(made.ca))


def of_one_process(rounds: int) -> tuple[dict[str, float], dict[str, float], float]:
    """Processor time of one process per load, without and with TLS, and per message without a queue."""
    with speaking_tls(0) as (broker, tls_port, options):
        plain = {name: cpu_of(broker, load, broker.port, (), rounds)[0] for name, load in LOADS.items()}
        tls = {name: cpu_of(broker, load, tls_port, options, rounds)[0] for name, load in LOADS.items()}
        return plain, tls, min(cpu_of_routing(broker) for _ in range(rounds))


def with_tls_aside(rounds: int) -> dict[str, tuple[float, float]]:
    """Processor time per load of a broker with a separate TLS process: of the broker, and of the TLS process."""
    with speaking_tls(1) as (broker, port, options):
        return {name: cpu_of(broker, load, port, options, rounds) for name, load in LOADS.items()}


def cpu_of(
    broker: JumpMQ, load: tuple[str, ...], port: int, options: tuple[str, ...], rounds: int
) -> tuple[float, float]:
    """Microseconds per message or connection of a load: of the broker's own process, and of others.

    The minimum of all rounds but the first.
    """
    count = int(load[load.index("-n") + 1])
    command = [sys.executable, "-m", "benchmarks.load", *load, "--port", str(port), *options]
    runs = []
    for _ in range(rounds + 1):
        all_began, own_began = broker.cpu_seconds(), own_seconds(broker)
        subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parent.parent)
        used, own = broker.cpu_seconds() - all_began, own_seconds(broker) - own_began
        runs.append((own / count * 1e6, (used - own) / count * 1e6))
    return min(runs[1:])


def own_seconds(broker: JumpMQ) -> float:
    """Processor seconds of the broker's own process."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_routing(broker: JumpMQ) -> float:
    """Microseconds of the broker per small message to an exchange without bindings."""
    connection, batches = Connection(Address(broker.port)), 1_000
    connection.declare_exchange("unbound", "x-consistent-hash")
    octets = Messages("unbound", SMALL, 1_000_000, persistent=False).encode(0, RUN, FRAME_MAX)
    began = broker.cpu_seconds()
    for _ in range(batches):
        connection.send(octets)
    connection.close()
    return (broker.cpu_seconds() - began) / (batches * RUN) * 1e6


def parts(costs: Costs, hand_over: float, barriers: dict[int, float]) -> str:
    """The measurements, as a table."""
    rows = {
        "a message of 100 octets, one process": costs.plain["small"],
        "of it, read and routed": costs.routing,
        "with TLS, a message of 100 octets": costs.tls["small"],
        "a message of 100 KB": costs.plain["large"],
        "with TLS, a message of 100 KB": costs.tls["large"],
        "a message confirmed singly, 1,000 connections": costs.plain["singly"],
        "with TLS, a message confirmed singly": costs.tls["singly"],
        "a connection opened and closed": costs.plain["connections"],
        "with TLS, a connection opened and closed": costs.tls["connections"],
        "to enqueue over a link, 100 octets": costs.enqueue["small"],
        "to enqueue over a link, 100 KB": costs.enqueue["large"],
        "to relay a delivery and its acknowledgement, 100 octets": costs.relay["small"],
        "to relay a delivery and its acknowledgement, 100 KB": costs.relay["large"],
        "to relay 100 KB unread": costs.octet * LARGE,
        "a write and a read of event loops": costs.wake,
        "a socket handed over": hand_over,
    }
    lines = ["| microseconds of processor time | |", "| --- | ---: |"]
    lines += [f"| {title} | {value:,.2f} |" for title, value in rows.items()]
    lines += [f"| a change of definitions, {n} workers: milliseconds | {ms:.2f} |" for n, ms in barriers.items()]
    return "\n".join(lines)


# --- the model ---


def away(workers: int) -> float:
    """Fraction of messages with a queue at another worker, for random placement."""
    return (workers - 1) / workers


def wakes(wake: float, load: str, workers: int = 1) -> float:
    """Cost per message of two wakeups, shared by the messages of a read of a busy connection.

    Small messages arrive in a batch per worker.
    """
    return 2 * wake * workers / RUN if load == "small" else 2 * wake / (LARGE_READ_SIZE // LARGE)


def placed_at_random(load: str) -> Line:
    def line(costs: Costs, workers: int) -> float:
        return workers * costs.plain[load] / (costs.plain[load] + away(workers) * both_ways(costs, load, workers))

    return line


def both_ways(costs: Costs, load: str, workers: int) -> float:
    """Cost of a message that reaches its queue, and its consumer, over a link."""
    return costs.enqueue[load] + costs.relay[load] + 2 * wakes(costs.wake, load, workers)


def consumers_at_home(costs: Costs, workers: int) -> float:
    hop = costs.enqueue["small"] + wakes(costs.wake, "small", workers)
    return workers * costs.plain["small"] / (costs.plain["small"] + away(workers) * hop)


def apart(costs: Costs, workers: int) -> float:
    return float(workers)


def one_worker_with_queues(costs: Costs, workers: int) -> float:
    """One worker has all queues; the others read, route, and relay."""
    queues = costs.plain["small"] - costs.routing + costs.enqueue["small"] / 2
    each = (costs.routing + costs.enqueue["small"] / 2 + costs.relay["small"]) / (workers - 1)
    return costs.plain["small"] / max(queues, each)


def confirmed_singly(costs: Costs, workers: int) -> float:
    """Confirms are gathered in every worker and in each pair of workers, so batches shrink."""
    hop = costs.enqueue["small"] + 2 * costs.wake / max(1.0, TOGETHER / workers**2)
    return workers * costs.plain["singly"] / (costs.plain["singly"] + away(workers) * hop)


def tls_random(load: str) -> Line:
    """Random placement, with TLS in addition to reading."""

    def line(costs: Costs, workers: int) -> float:
        return workers * costs.tls[load] / (costs.tls[load] + away(workers) * both_ways(costs, load, workers))

    return line


RELAYED = {
    "small": (2 * (SMALL + 70), 0.05),
    "large": (2 * LARGE, 2),
    "singly": (2 * SMALL, 2),
    "connections": (4_000, 12),
}
"""Octets that a TLS process relays per message of each load, and its number of reads and writes."""


def tls_alone(costs: Costs, load: str) -> float:
    """Cost of a separate TLS process."""
    octets, times = RELAYED[load]
    return costs.tls[load] - costs.plain[load] + octets * costs.octet + times * costs.wake


def tls_aside(load: str) -> Line:
    """One process does all but TLS; the others do TLS, and relay octets to it unparsed."""

    def line(costs: Costs, workers: int) -> float:
        return costs.tls[load] / max(costs.plain[load], tls_alone(costs, load) / (workers - 1))

    return line


LINES: dict[str, Line] = {
    "one virtual host, queues placed at random": placed_at_random("small"),
    "consumers at the workers of their queues": consumers_at_home,
    "virtual hosts apart": apart,
    "all queues at one worker, the others read and route": one_worker_with_queues,
    "100 KB, placed at random": placed_at_random("large"),
    "1,000 connections confirmed singly, placed at random": confirmed_singly,
    "TLS, 100 octets, placed at random": tls_random("small"),
    "TLS, 100 KB, placed at random": tls_random("large"),
    "TLS, 100 octets, only TLS aside": tls_aside("small"),
    "TLS, 100 KB, only TLS aside": tls_aside("large"),
    "TLS, 1,000 connections confirmed singly, only TLS aside": tls_aside("singly"),
    "TLS, connections opened and closed, only TLS aside": tls_aside("connections"),
}


if __name__ == "__main__":
    main()
