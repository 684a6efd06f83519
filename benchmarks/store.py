"""Speed of the store, cost of messages on disk and in memory, and duration of opening.

    python -m benchmarks.store [DIRECTORY] [--backlog N] [--singles N]

The numbers depend on the disk below the directory (default: the current one), because every commit waits for a sync.
The alternative to the log is measured as well: a row of SQLite for every queue and commit, with the bodies in one blob.
"""

from __future__ import annotations

import argparse
import os
import select
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jumpmq.amqp.messages import Message
from jumpmq.store import Store

BODY = os.urandom(100)
PROPERTIES = b"\x10\x00\x02"


def message_run(first_seq: int, count: int, body: bytes = BODY) -> list[Message]:
    """Messages of one read of a socket: one exchange and time, distinct keys and bodies."""
    now = time.time()
    run = []
    for seq in range(first_seq, first_seq + count):
        message = Message("load", b"%07d" % seq, PROPERTIES, body, True, now)
        message.seq = seq
        run.append(message)
    return run


def open_store(directory: Path) -> Store:
    return Store.open(directory, on_commit=lambda receipt: None)


def commit(store: Store) -> None:
    """Flush, and wait for the sync."""
    receipt = store.flush()
    while store.committed < receipt:
        select.select([store.fileno()], [], [])
        store.completed()


def line(what: str, value: str) -> None:
    print(f"{what:<66} {value:>16}", flush=True)


def octets_of(directory: Path) -> int:
    """Octets on disk of a store's files."""
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.name != "reserve")


# --- shapes ---

SHAPES: dict[str, tuple[int, int, int, int]] = {
    "100 octets, 4 queues of 1,000": (4, 1000, 100, 40),
    "10 KB, 4 queues of 100": (4, 100, 10_000, 20),
    "1 MB, 4 queues of 4": (4, 4, 1_000_000, 15),
    "100 octets, 1,000 queues of 1": (1000, 1, 100, 20),
}
"""Queues, messages per queue and commit, octets of a body, commits."""


def log_commits(directory: Path, queues: int, count: int, size: int) -> Iterator[None]:
    """Commits in the store."""
    store = open_store(directory)
    body, seq = os.urandom(size), 1
    while True:
        runs = [message_run(seq, count, body) for _ in range(queues)]
        seq += count
        yield
        for queue, run in enumerate(runs):
            store.append(queue, run)
        commit(store)


def sqlite_commits(directory: Path, queues: int, count: int, size: int) -> Iterator[None]:
    """Commits as blobs in SQLite, a row for every queue and commit."""
    directory.mkdir()
    connection = sqlite3.connect(directory / "store.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE batch (queue INTEGER, first INTEGER, bodies BLOB)")
    body, seq = os.urandom(size), 1
    while True:
        runs = [message_run(seq, count, body) for _ in range(queues)]
        seq += count
        yield
        rows = [(queue, run[0].seq, b"".join(message.body for message in run)) for queue, run in enumerate(runs)]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO batch VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")


def compare_shapes(directory: Path) -> None:
    """Commits of every shape, in the log and in SQLite in turn."""
    stores: dict[str, Callable[..., Iterator[None]]] = {"log": log_commits, "SQLite": sqlite_commits}
    for title, (queues, count, size, rounds) in SHAPES.items():
        runs = {
            name: make(directory / f"{name} {queues} {count} {size}", queues, count, size)
            for name, make in stores.items()
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            next(run)
        for _ in range(rounds):
            for name, run in runs.items():
                began = time.perf_counter()
                next(run)
                times[name].append(time.perf_counter() - began)
        for name, found in times.items():
            milliseconds = sorted(found)[len(found) // 2] * 1e3
            line(f"{title}, {name}, a commit, median", f"{milliseconds:.1f} ms")


# --- singles and backlogs ---


def singles(directory: Path, count: int) -> None:
    """Measure messages with a commit each."""
    store = open_store(directory)
    body = os.urandom(100)
    began, cpu = time.perf_counter(), time.thread_time()
    for seq in range(1, count + 1):
        store.append(1, message_run(seq, 1, body))
        commit(store)
    line(f"{count:,} messages committed one by one", f"{count / (time.perf_counter() - began):,.0f} /s")
    line("  processor time of the broker's thread", f"{(time.thread_time() - cpu) / count * 1e6:.0f} us each")
    store._log.close()  # as after a kill
    line("  on disk", f"{octets_of(directory) / count:.0f} octets each")
    restart(directory)


def backlog(directory: Path, count: int) -> None:
    """A backlog of messages in four queues."""
    store = open_store(directory)
    for seq in range(1, count // 4, 1000):
        for queue in range(4):
            store.append(queue, message_run(seq, 1000))
        commit(store)
    store._log.close()
    line(f"{count:,} messages in four queues, on disk", f"{octets_of(directory) / count:.0f} octets each")
    restart(directory)


RESTART = """
import resource, sys, time, pathlib
from jumpmq.store import Store
began = time.perf_counter()
store = Store.open(pathlib.Path(sys.argv[1]), on_commit=lambda receipt: None)
batches = store.batches()
seconds = time.perf_counter() - began
count = sum(one.remaining for of in batches.values() for one in of)
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, count)
"""


def restart(directory: Path) -> None:
    """Open a copy of the store, as after a kill, in a process of its own."""
    (directory / "jumpmq.lock").unlink()  # locked by this process
    finished = subprocess.run([sys.executable, "-c", RESTART, directory], capture_output=True, text=True, check=True)
    seconds, kilobytes, count = finished.stdout.split()
    line(f"  a start with these {int(count):,} messages", f"{float(seconds):.2f} s")
    line("  resident then", f"{int(kilobytes) / 1000:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", nargs="?", default=".")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--singles", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        compare_shapes(Path(name))
        singles(Path(name) / "singles", options.singles)
        backlog(Path(name) / "backlog", options.backlog)


if __name__ == "__main__":
    main()
