"""Two workers next to the model of `workers.py`: messages between the workers, and their common throughput.

    python -m benchmarks.crossing [--rounds N]

The processor time of every worker per message, with publisher, queue and consumer at one worker and at two; next to it
the model's value, computed from the costs of hops in the same run, and the cost of bare relays. Then messages per
second of one process and of two workers, with clients on the same cores: two separate virtual hosts, TLS, large
bodies, and 1,000 connections that each wait for the confirm of one message.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.hops import SMALL, Hops
from benchmarks.load.client import BUFFER_SIZE, Address, Connection
from benchmarks.load.options import Load
from benchmarks.load.processes import Role, together
from benchmarks.load.roles import consumer, publisher
from benchmarks.load.traffic import Messages
from benchmarks.relay import relay_figures
from benchmarks.workers import LARGE, LOADS, wakes
from jumpmq.cli.certificates import make_certificates
from jumpmq.testing import JumpMQ, children

COUNTS = {SMALL: 300_000, LARGE: 3_000}
"""Number of messages per size."""


class Placement(NamedTuple):
    """The worker (of two) of a publisher, of a queue and of its consumer."""

    publisher: int
    queue: int
    consumer: int


PLACEMENTS = {
    "all at one worker": Placement(0, 0, 0),
    "published at the other one": Placement(1, 0, 0),
    "consumed at the other one": Placement(0, 0, 1),
    "published and consumed at the other one": Placement(1, 0, 1),
}


@dataclass(frozen=True)
class PlacedLoad(Load):
    """A load over existing connections."""

    opened: list[Connection] = field(default_factory=list)

    def connect(self, room: int = BUFFER_SIZE) -> Connection:
        return self.opened.pop(0)


class Measured(NamedTuple):
    """Messages per second, and processor microseconds per message of every worker."""

    rate: float
    cpu: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    crossing(rounds)
    bare(rounds)
    with_one_and_two(rounds)


def crossing(rounds: int) -> None:
    """Print the cost of messages between workers, next to the model."""
    print("| microseconds of a message | worker 1 | worker 2 | together | model | measured to model |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with JumpMQ(arguments=("--workers", "2")) as broker:
        hops = Hops(rounds)
        wake = hops.wake()
        for size, count in COUNTS.items():
            enqueue, relay, near = hops.enqueue(size), hops.relay(size), 0.0
            for title, where in PLACEMENTS.items():
                runs = [run(broker, [where], size, count) for _ in range(rounds + 1)][1:]
                best = min(runs, key=lambda one: sum(one.cpu))
                near = near or sum(best.cpu)
                woken = wakes(wake, "small" if size == SMALL else "large")
                model = near
                if where.publisher != where.queue:
                    model += enqueue + woken
                if where.consumer != where.queue:
                    model += relay + woken
                cells = [*(f"{one:.2f}" for one in best.cpu), f"{sum(best.cpu):.2f}", f"{model:.2f}"]
                print(f"| {size:,} octets, {title} | {' | '.join(cells)} | {sum(best.cpu) / model:.2f} |", flush=True)


def bare(rounds: int) -> None:
    """Print the cost of large messages in relays in event loops, which only buffer and pass on octets."""
    for relays in (1, 2, 3):
        runs = [relay_figures(LARGE, COUNTS[LARGE], relays, in_loop=True)[1] for _ in range(rounds + 1)]
        print(f"| {LARGE:,} octets through {relays} bare relays | | | {min(runs):.2f} | | |", flush=True)


def with_one_and_two(rounds: int) -> None:
    """Print the throughput of one process and of two workers."""
    rates: dict[str, list[float]] = {}
    for workers in (1, 2):
        for title, rate in totals(workers, rounds):
            rates.setdefault(title, []).append(rate)
    print("\n| a second | one process | two workers | times |\n| --- | ---: | ---: | ---: |")
    for title, (one, two) in rates.items():
        print(f"| {title} | {one:,.0f} | {two:,.0f} | {two / one:.2f} |")


def totals(workers: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Messages per second of the given number of workers, by load."""
    with speaking_tls(workers) as (broker, tls_port, options):
        apart = [Placement(0, 0, 0), Placement(workers - 1, workers - 1, workers - 1)]
        for size, count in COUNTS.items():
            best = max(run(broker, apart, size, count).rate for _ in range(rounds + 1))
            yield f"messages of {size:,} octets, two virtual hosts apart", best
        for name, load in LOADS.items():
            what = "connections opened and closed" if name == "connections" else f"messages, {' '.join(load)}"
            yield what, loaded(load, broker.port, (), rounds)
            yield f"with TLS, {what}", loaded(load, tls_port, options, rounds)


def loaded(load: Sequence[str], port: int, options: Sequence[str], rounds: int) -> float:
    """The highest rate per second that a scenario of the load generator reports in all rounds."""
    command = [sys.executable, "-m", "benchmarks.load", *load, "--port", str(port), *options]
    folder = Path(__file__).parent.parent
    rates = []
    for _ in range(rounds):
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
        found = re.search(r'"(?:rate|opened_per_s)": ([0-9.e+]+)', told)
        assert found is not None, told
        rates.append(float(found[1]))
    return max(rates)


@contextmanager
def speaking_tls(workers: int) -> Iterator[tuple[JumpMQ, int, tuple[str, ...]]]:
    """A broker of the given number of workers, its port with TLS, and options of the load generator."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(Path(folder))
        tls = ["--tls-port", "0", "--https-port", "off", "--tls-cert", str(made.server), "--tls-key"]
        with JumpMQ(arguments=[*tls, str(made.server_key), "--workers", str(workers)]) as broker:
            found = re.search(r"amqps://[^\s/]*:(\d+)", broker.log.read_text())
            assert found is not None
            yield broker, int(found[1]), ("--tls-ca", str(made.ca))


def run(broker: JumpMQ, placements: Sequence[Placement], size: int, count: int) -> Measured:
    """Run one publisher, queue and consumer for every placement, all at once."""
    workers = children(broker.pid) or [broker.pid]
    opened = connections(broker, workers, 3 * len(placements))
    roles: list[Role] = []
    for number, where in enumerate(placements):
        publishing, declaring, consuming = (
            [each[place] for each in opened] for place in range(3 * number, 3 * number + 3)
        )
        name = f"crossing-{number}"
        declaring[where.queue].declare_exchange(name, "x-consistent-hash")
        declaring[where.queue].declare_queue(f"{name}.q0")
        declaring[where.queue].bind(f"{name}.q0", name, "1")
        roles.append(publisher(load_of(name, size, count, publishing[where.publisher]), 0))
        roles.append(consumer(load_of(name, size, count, consuming[where.consumer]), count))
    before = [seconds_of(worker) for worker in workers]
    figures = together(roles)
    used = [seconds_of(worker) - began for worker, began in zip(workers, before, strict=True)]
    for number in range(len(placements)):
        opened[0][1].delete_queue(f"crossing-{number}.q0")
    for one in (one for some in opened for one in some):
        one.socket.close()
    total = count * len(placements)
    return Measured(total / max(float(one["seconds"]) for one in figures), [one / total * 1e6 for one in used])


def connections(broker: JumpMQ, workers: Sequence[int], count: int) -> list[list[Connection]]:
    """Open the given number of connections to every worker. Return them by worker."""
    found: list[list[Connection]] = [[] for _ in workers]
    while any(len(some) < count for some in found):
        connection = Connection(Address(broker.port))
        some = found[workers.index(served_by(connection, workers))]
        if len(some) < count:
            some.append(connection)
        else:
            connection.socket.close()
    return found


def served_by(connection: Connection, workers: Sequence[int]) -> int:
    """Index of the worker process at the other end of a connection."""
    near, far = connection.socket.getsockname()[1], connection.socket.getpeername()[1]
    ends = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    wanted = f":{far:04X}", f":{near:04X}"
    inode = next(end[9] for end in ends if (end[1][-5:], end[2][-5:]) == wanted)
    for worker in workers:
        for descriptor in Path(f"/proc/{worker}/fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()) == f"socket:[{inode}]":
                    return worker
    raise LookupError(f"no worker has the connection of port {near}")


def load_of(name: str, size: int, count: int, connection: Connection) -> Load:
    """A load of transient messages without confirms, acknowledged 200 at a time."""
    return PlacedLoad(
        Address(0), Messages(name, size, 1_000_000, False), "x-consistent-hash", 1, 1, count,
        False, 0, 1, 1000, 200, False, False, 0.0, 0.0, 0, [connection],
    )  # fmt: skip


def seconds_of(process: int) -> float:
    """Processor seconds of a process, from its threads in nanoseconds; ``stat`` has hundredths of a second."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


if __name__ == "__main__":
    main()
