"""Large bodies next to their upper bounds: a bare relay, and the disk.

    python -m benchmarks.relay [--rounds N]

The relay is one process that reads octets from one socket and sends them to another, without a protocol, a queue or a
copy. The disk is written sequentially, bypassing the page cache, with a sync after every 32 MB.
"""

from __future__ import annotations

import argparse
import asyncio
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
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import uvloop

from jumpmq.testing import BrokerProcess, installed

RELAY, DISK = "bare relay", "disk"
SIZES = {100_000: 10_000, 1_000_000: 2_000}
"""Octets of a body, and number of bodies in a run."""
READ = 1 << 20
WAITING = 4
"""Maximum number of reads waiting to be written."""
WRITE, SYNC_EVERY, WRITTEN = 4 << 20, 32 << 20, 1 << 30


def broker_figures(broker: BrokerProcess, size: int, count: int, persistent: bool) -> tuple[float, float]:
    """Bodies per second through the broker, and its processor time per body in microseconds."""
    command = [sys.executable, "-m", "benchmarks.load", "flow", "--size", str(size), "-n", str(count)]
    cpu = broker.cpu_seconds()
    finished = subprocess.run(
        [*command, *(["--persistent"] if persistent else []), "--port", str(broker.port)],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(finished.stdout)["rate"]), (broker.cpu_seconds() - cpu) / count * 1e6


def relay_figures(size: int, count: int, relays: int = 1, *, in_loop: bool = False) -> tuple[float, float]:
    """Bodies per second and processor time of a bare relay, or of several in a row with Unix sockets between them.

    Args:
        in_loop: relays run event loops, as JumpMQ, and the first buffers all octets, since publishers are faster.
    """
    fork = multiprocessing.get_context("fork")
    pairs = [_connected(), *(_between() for _ in range(relays - 1)), _connected()]
    pipes = [fork.Pipe(duplex=False) for _ in range(relays)]
    processes = [fork.Process(target=_publish, args=(pairs, size, count)), fork.Process(target=_consume, args=(pairs,))]
    relay = _relay_in_loop if in_loop else _relay
    processes += [fork.Process(target=relay, args=(pairs, place, pipes[place][1])) for place in range(relays)]
    for process in processes:
        process.start()
    for sock in (sock for pair in pairs for sock in pair):
        sock.close()
    figures = [inner.recv() for inner, _ in pipes]
    for process in processes:
        process.join()
    assert all(octets == size * count for octets, _, _ in figures)
    return count / max(seconds for _, seconds, _ in figures), sum(cpu for _, _, cpu in figures) / count * 1e6


Pair = tuple[socket.socket, socket.socket]
"""Sockets of the writing process, and of the reading process."""


def _relay(pairs: list[Pair], place: int, figures: Any) -> None:
    source, target = _only(pairs, pairs[place][1], pairs[place + 1][0])
    buffer, total = memoryview(bytearray(READ)), 0
    received = source.recv_into(buffer)
    began, cpu = time.perf_counter(), time.process_time()
    while received:
        total += received
        target.sendall(buffer[:received])
        received = source.recv_into(buffer)
    figures.send((total, time.perf_counter() - began, time.process_time() - cpu))
    target.close()


class _Source(asyncio.BufferedProtocol):
    """Reads octets, and passes them to the target.

    Args:
        keeps: buffers octets in memory without limit.
    """

    def __init__(self, target: asyncio.WriteTransport, keeps: bool) -> None:
        self._target = target
        self._keeps = keeps
        self.total, self.began, self.cpu = 0, 0.0, 0.0
        self.ended = asyncio.Event()
        self._buffers = cycle([memoryview(bytearray(READ)) for _ in range(2 * WAITING)])
        self._buffer = next(self._buffers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.ReadTransport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.total:
            self.began, self.cpu = time.perf_counter(), time.process_time()
        self.total += nbytes
        if self._keeps:
            self._target.write(bytes(self._buffer[:nbytes]))
        else:
            self._target.write(self._buffer[:nbytes])
            self._buffer = next(self._buffers)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


class _Target(asyncio.Protocol):
    """Pauses its source while the write buffer is full."""

    source: _Source

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def pause_writing(self) -> None:
        self.source.transport.pause_reading()

    def resume_writing(self) -> None:
        self.source.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def _relay_in_loop(pairs: list[Pair], place: int, figures: Any) -> None:
    from_socket, to_socket = _only(pairs, pairs[place][1], pairs[place + 1][0])

    async def relay() -> None:
        loop = asyncio.get_running_loop()
        transport, target = await loop.create_connection(_Target, sock=to_socket)
        transport.set_write_buffer_limits(high=1 << 30 if not place else WAITING * READ)
        source = target.source = _Source(transport, keeps=not place)
        await loop.create_connection(lambda: source, sock=from_socket)
        await source.ended.wait()
        transport.close()  # once all is written
        await target.ended.wait()
        figures.send((source.total, time.perf_counter() - source.began, time.process_time() - source.cpu))

    uvloop.run(relay())


def _publish(pairs: list[Pair], size: int, count: int) -> None:
    (sock,) = _only(pairs, pairs[0][0])
    body = bytes(size)
    for _ in range(count):
        sock.sendall(body)
    sock.close()


def _consume(pairs: list[Pair]) -> None:
    (sock,) = _only(pairs, pairs[-1][1])
    buffer = bytearray(READ)
    while sock.recv_into(buffer):
        pass


def _only(pairs: list[Pair], *own: socket.socket) -> tuple[socket.socket, ...]:
    """Return the sockets of this process, and close the others, so that the end of a connection is noticed."""
    for sock in (sock for pair in pairs for sock in pair if sock not in own):
        sock.close()
    return own


def _connected() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for sock in (near, far):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def _between() -> Pair:
    near, far = socket.socketpair(socket.AF_UNIX)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, READ)  # as links between processes
    return near, far


def disk_rate() -> float:
    """Synced octets per second of the disk."""
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
    """Format the results of one size: rates, processor time, and fractions of the bound."""
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
