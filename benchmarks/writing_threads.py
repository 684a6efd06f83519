"""The store's writing thread in C next to its reference implementation in Python, and three ways to compute a CRC-32.

    python -m benchmarks.writing_threads [--commits COMMITS]

Both threads write and sync the same commits, in turn, to a file on this directory's disk. A Python thread counts
meanwhile: its rate relative to an idle count is the share of the interpreter left by a writing thread, its longest gap
the longest pause. Processor time is measured without the counter.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from jumpmq.amqp.messages import Message
from jumpmq.store import _worker, worker
from jumpmq.store.files import Files
from jumpmq.store.records import Commit, messages_block

SIZES = {"1 message of 500 octets": (1, 500), "1,000 of 500": (1000, 500), "16 of 1 MiB": (16, 1 << 20)}
ROUNDS = 5


class Counter(threading.Thread):
    """Counts as fast as the interpreter allows."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.count, self.gap, self.ends = 0, 0.0, False

    def run(self) -> None:
        before = time.perf_counter()
        while not self.ends:
            now = time.perf_counter()
            self.gap = max(self.gap, now - before)
            before = now
            self.count += 1


def commit(number: int, messages: int, octets: int) -> Commit:
    made = []
    for seq in range(1, messages + 1):
        message = Message("", b"key", b"", bytes(octets))
        message.seq = seq
        made.append(message)
    block = messages_block(1, made, new=True)
    return Commit(number, [block], block.length)


def measure(kind: str, file: int, commits: int, messages: int, octets: int) -> tuple[float, float, float]:
    """Return processor milliseconds per commit, counts per second, and the longest gap in milliseconds."""
    readable, writable = os.pipe()
    thread = _worker.Worker(writable) if kind == "C" else worker.Worker(writable, Files())
    writes = [worker.Write(file, 0, commit(number, messages, octets), 7, None) for number in range(commits)]

    def write_all() -> float:
        began = time.perf_counter()
        for write in writes:
            thread.submit(write)
            os.read(readable, 1)
            thread.take()
        return time.perf_counter() - began

    worked = time.process_time()
    write_all()
    worked = time.process_time() - worked
    counter = Counter()
    counter.start()
    seconds = write_all()
    counter.ends = True
    counter.join()
    thread.close()
    os.close(readable)
    os.close(writable)
    return 1000 * worked / commits, counter.count / seconds, 1000 * counter.gap


def idle() -> float:
    """Return the counts per second without a writing thread."""
    counter = Counter()
    counter.start()
    time.sleep(0.5)
    counter.ends = True
    counter.join()
    return counter.count / 0.5


def arrow_crc32() -> Callable[[bytes], int]:
    """Return the CRC-32 of Arrow's library, which has no Python function."""
    (library,) = (Path(pa.__file__).parent).glob(f"libarrow.so.{pa.cpp_version_info.major}*")
    function = ctypes.CDLL(str(library))["_ZN5arrow8internal5crc32EjPKvm"]
    function.argtypes, function.restype = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint32
    return lambda octets: int(function(0, octets, len(octets)))


def checksums(console: Console) -> None:
    """Print the speed of three ways to a CRC-32."""
    table = Table("CRC-32 of", "crc32.h", "zlib", "Arrow")
    arrow = arrow_crc32()
    for size in (500, 64 << 10, 4 << 20):
        octets, cells = os.urandom(size), []
        for function in (_worker.checksum, zlib.crc32, arrow):
            assert function(octets) == zlib.crc32(octets)
            times = max(1, (32 << 20) // size)
            best = min(_timed(function, octets, times) for _ in range(5))
            cells.append(f"{size * times / best / 1e9:.2f} GB/s")
        table.add_row(f"{size:,} octets", *cells)
    console.print(table)


def _timed(function: object, octets: bytes, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        function(octets)  # type: ignore[operator]
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commits", type=int, default=40)
    options = parser.parse_args()
    console = Console(width=110)
    sys.setswitchinterval(0.005)
    table = Table("commit", "thread", "processor, ms", "interpreter left", "longest gap, ms")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory, Path(directory, "log").open("wb") as file:
        for name, (messages, octets) in SIZES.items():
            found: dict[str, list[tuple[float, float, float]]] = {"C": [], "Python": []}
            alone = idle()
            for _ in range(ROUNDS):
                for kind, results in found.items():
                    results.append(measure(kind, file.fileno(), options.commits, messages, octets))
            for kind, results in found.items():
                spent, left, gap = (median(column) for column in zip(*results, strict=True))
                table.add_row(name, kind, f"{spent:.3f}", f"{100 * left / alone:.0f} %", f"{gap:.1f}")
    console.print(table)
    checksums(console)


if __name__ == "__main__":
    main()
