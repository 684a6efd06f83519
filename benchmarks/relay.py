"""Large bodies beside what bounds them: a bare relay, and the disk itself.

    python -m benchmarks.relay [--rounds N]

The relay is one process that reads octets from one socket and sends them to another, with no protocol, no queue and no
copy of its own. The disk is written from end to end, past the system's cache, with a sync behind every 32 MB.
"""

from __future__ import annotations

import argparse
import json
import mmap
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jumpmq.testing import BrokerProcess, installed

RELAY, DISK = "bare relay", "disk"
SIZES = {100_000: 10_000, 1_000_000: 2_000}
"""Octets of a body, and how many are sent in a run."""
READ = 1 << 20
WRITE, SYNC_EVERY, WRITTEN = 4 << 20, 32 << 20, 1 << 30


def broker_figures(broker: BrokerProcess, size: int, count: int, persistent: bool) -> tuple[float, float]:
    """Bodies a second through the broker, and its processor time for each in microseconds."""
    command = [sys.executable, "-m", "benchmarks.load", "flow", "--size", str(size), "-n", str(count)]
    cpu = broker.cpu_seconds()
    finished = subprocess.run(
        [*command, *(["--persistent"] if persistent else []), "--port", str(broker.port)],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(finished.stdout)["rate"]), (broker.cpu_seconds() - cpu) / count * 1e6


def relay_figures(size: int, count: int) -> tuple[float, float]:
    """The same through a relay that does nothing else."""
    fork = multiprocessing.get_context("fork")
    inner, outer = fork.Pipe(duplex=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        processes = [
            fork.Process(target=_relay, args=(listener, outer)),
            fork.Process(target=_consume, args=(listener.getsockname(),)),
            fork.Process(target=_publish, args=(listener.getsockname(), size, count)),
        ]
        for process in processes:
            process.start()
        octets, seconds, cpu = inner.recv()
        for process in processes:
            process.join()
    assert octets == size * count
    return count / seconds, cpu / count * 1e6


def _relay(listener: socket.socket, figures: Any) -> None:
    first, second = (listener.accept()[0] for _ in range(2))
    hello = first.recv(1)
    publisher, consumer = (first, second) if hello == b"p" else (second, first)
    (consumer if publisher is first else publisher).recv(1)
    buffer, total = memoryview(bytearray(READ)), 0
    received = publisher.recv_into(buffer)
    began, cpu = time.perf_counter(), time.process_time()
    while received:
        total += received
        consumer.sendall(buffer[:received])
        received = publisher.recv_into(buffer)
    figures.send((total, time.perf_counter() - began, time.process_time() - cpu))
    consumer.close()


def _publish(address: tuple[str, int], size: int, count: int) -> None:
    with _dialled(address, b"p") as sock:
        body = bytes(size)
        for _ in range(count):
            sock.sendall(body)


def _consume(address: tuple[str, int]) -> None:
    with _dialled(address, b"c") as sock:
        buffer = bytearray(READ)
        while sock.recv_into(buffer):
            pass


def _dialled(address: tuple[str, int], hello: bytes) -> socket.socket:
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(hello)
    return sock


def disk_rate() -> float:
    """Octets a second that the disk takes, synced."""
    with tempfile.NamedTemporaryFile() as named, mmap.mmap(-1, WRITE) as octets:
        octets.write(os.urandom(WRITE))
        file = os.open(named.name, os.O_WRONLY | getattr(os, "O_DIRECT", 0))
        began = time.perf_counter()
        for place in range(0, WRITTEN, WRITE):
            os.posix_fallocate(file, place, WRITE)
            os.pwrite(file, octets, place)
            if (place + WRITE) % SYNC_EVERY == 0:
                os.fdatasync(file)
        os.close(file)
        return WRITTEN / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with ExitStack() as stack:
        brokers = [stack.enter_context(each()) for each in installed()]
        for size, count in SIZES.items():
            for persistent in (False, True):
                found: dict[str, list[tuple[float, float]]] = {}
                for _ in range(options.rounds):
                    for broker in brokers:
                        found.setdefault(broker.name, []).append(broker_figures(broker, size, count, persistent))
                    bound = (disk_rate() / size, 0.0) if persistent else relay_figures(size, count)
                    found.setdefault(DISK if persistent else RELAY, []).append(bound)
                print(line(size, persistent, found), flush=True)


def line(size: int, persistent: bool, found: dict[str, list[tuple[float, float]]]) -> str:
    """What was found of one size: rates, processor time, and shares of the bound."""
    name = DISK if persistent else RELAY
    bound = statistics.median(rate for rate, _ in found[name])
    shown = []
    for who, figures in found.items():
        rate, cpu = (statistics.median(column) for column in zip(*figures, strict=True))
        part = "" if who == name else f", {rate / bound:.0%}"
        shown.append(f"{who} {rate:,.0f}/s ({cpu:,.0f} us{part})" if cpu else f"{who} {rate:,.0f}/s")
    return f"{size:,} octets{', persistent' if persistent else ''}: {', '.join(shown)}"


if __name__ == "__main__":
    main()
