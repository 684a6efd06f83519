"""Persistent confirms, in windows and of 1,000 connections, next to RabbitMQ, Redis, a bare server and the disk.

    python -m benchmarks.confirms [-n MESSAGES]

Redis (if installed) runs with ``appendfsync always``: as with a confirm, the answer follows the sync. The bare server
only reads, appends, syncs and answers (``benchmarks/bare.py``): an upper bound for any broker on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bare import bare_server
from jumpmq.testing import ending_with_us, free_ports, installed

DISK = "disk, one by one"
BARE = "bare server"

WINDOWS = {1: 0.01, 10: 0.05, 100: 0.3, 1000: 1.0}
"""Maximum number of unconfirmed messages, and the fraction of the messages for such a run."""

TARGETS = {
    1: ((1.5, "RabbitMQ"), (0.8, DISK)),
    10: ((4.0, "RabbitMQ"),),
    100: ((1.0, "Redis"),),
    1000: ((2.0, "Redis"),),
}
"""By window: the required ratio to the rate of each named competitor."""

CROWD = ("singly", "--connections", "1000", "--publishers", "2")
CROWD_SHARE = 0.15
CROWD_TARGETS = ((2.0, "RabbitMQ"),)
"""The required ratio where each of many connections waits for the confirm of one message."""

BODY = os.urandom(100)


def broker_rate(port: int, count: int, *arguments: str) -> float:
    """Confirms per second."""
    command = [sys.executable, "-m", "benchmarks.load", *arguments, "--persistent", "-n", str(count)]
    finished = subprocess.run(
        [*command, "--port", str(port)],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(finished.stdout)["rate"])


@contextmanager
def redis() -> Iterator[int]:
    """Run a Redis server that syncs before every answer. Return its port."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        options = [
            "--port",
            str(port),
            "--dir",
            directory,
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
        ]
        process = subprocess.Popen(ending_with_us(["redis-server", *options]), stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 10
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait()


def redis_rate(port: int, window: int, count: int) -> float:
    """Acknowledged entries of a stream per second."""
    entry = b"*5\r\n$4\r\nXADD\r\n$6\r\nstream\r\n$1\r\n*\r\n$1\r\nb\r\n$100\r\n" + BODY + b"\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = answered = 0
        began = time.perf_counter()
        while answered < count:
            room = min(window - (sent - answered), count - sent)
            if room and (room >= window // 2 or sent == answered):
                connection.sendall(entry * room)
                sent += room
            answered += connection.recv(1 << 16).count(b"$")
        return count / (time.perf_counter() - began)


def disk_rate(count: int) -> float:
    """Synced appends of 200 octets per second."""
    with tempfile.TemporaryDirectory() as directory, (Path(directory) / "file").open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 4 << 20)
        octets = os.urandom(200)
        began = time.perf_counter()
        for _ in range(count):
            file.write(octets)
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-n", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with ExitStack() as stack:
        brokers = [stack.enter_context(each()) for each in installed()]
        bare = stack.enter_context(bare_server())
        port = stack.enter_context(redis()) if shutil.which("redis-server") else None
        servers = {broker.name: broker.port for broker in brokers} | {BARE: bare}
        for window, share in WINDOWS.items():
            count = int(options.n * share)
            rates: dict[str, list[float]] = {}
            for _ in range(options.rounds):
                for name, at in servers.items():
                    rate = broker_rate(at, count, "confirm", "--window", str(window))
                    rates.setdefault(name, []).append(rate)
                if port is not None:
                    rates.setdefault("Redis", []).append(redis_rate(port, window, count))
                rates.setdefault(DISK, []).append(disk_rate(1000))
            show(f"window {window}", rates, TARGETS[window])
        rates = {}
        for _ in range(options.rounds):
            for name, at in servers.items():
                rates.setdefault(name, []).append(broker_rate(at, int(options.n * CROWD_SHARE), *CROWD))
        show("1,000 connections, one by one", rates, CROWD_TARGETS)


def show(title: str, rates: dict[str, list[float]], targets: tuple[tuple[float, str], ...]) -> None:
    """Print the medians, and the required and the measured ratios."""
    medians = {name: statistics.median(found) for name, found in rates.items()}
    parts = []
    for times, name in targets:
        if name in medians:
            ratio = medians["JumpMQ"] / medians[name]
            parts.append(f"{ratio:.2f}x {name} (at least {times:g}x {'✓' if ratio >= times else '✗'})")
    if any(name == DISK for _, name in targets):
        parts.append(f"the bare server reaches {medians[BARE] / medians[DISK]:.2f}x")
    parts.append(f"{medians['JumpMQ'] / medians[BARE]:.2f}x the bare server")
    shown = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in medians.items())
    print(f"{title}: {shown}; {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
