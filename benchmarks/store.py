"""How fast the store takes messages and lets them go, and how little of it the broker's thread feels.

    python benchmarks/store.py [DIRECTORY]

Four queues receive batches of 1,000 messages with bodies of 100 octets. The numbers depend on the disk below the
directory (default: the current one), because every commit waits for it.
"""

import os
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path

from jumpmq.amqp.messages import Message
from jumpmq.store import Store

QUEUES = 4
COUNT = 1000
ROUNDS = 150
BODY = os.urandom(100)
PROPERTIES = b"\x90\x00\x10application/json\x02"


def message_run(first_seq: int) -> list[Message]:
    """What one read of a socket leaves in a queue: one exchange and time, a key and a body each."""
    now = time.time()
    run = []
    for seq in range(first_seq, first_seq + COUNT):
        message = Message("flights", b"N%05d" % seq, PROPERTIES, BODY, True, now)
        message.seq = seq
        run.append(message)
    return run


class Load:
    """A store under load, and a thread's clock for what each step costs."""

    def __init__(self, directory: Path) -> None:
        self.finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.store = Store.open(directory, on_commit=self.finished.put)
        self.runs = [[message_run(1 + COUNT * i) for _ in range(QUEUES)] for i in range(ROUNDS)]

    def append(self) -> list[float]:
        """Append and commit everything, a round at a time; returns seconds of each commit as a publisher feels it."""
        latencies = []
        for runs in self.runs:
            start = time.perf_counter()
            for queue_id, run in enumerate(runs):
                self.store.append(queue_id, run)
            number = self.store.flush()
            while self.finished.get() < number:
                pass
            latencies.append(time.perf_counter() - start)
        return sorted(latencies)

    def stage(self) -> float:
        """Append everything while the writer does what it can; returns seconds of ``append`` and ``flush``."""
        spent = 0.0
        for runs in self.runs:
            start = time.thread_time()
            for queue_id, run in enumerate(runs):
                self.store.append(queue_id, run)
            self.store.flush()
            spent += time.thread_time() - start
        return spent

    def settle(self) -> float:
        """Settle everything, one message after the other; returns seconds."""
        start = time.thread_time()
        for runs in self.runs:
            for run in runs:
                for message in run:
                    message.batch.settle(message.seq)
        return time.thread_time() - start

    def wait(self) -> None:
        number = self.store.flush()
        while self.store.committed < number:
            time.sleep(0.001)

    def writer_seconds(self) -> float:
        """Processor time of the writer's thread."""
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "jumpmq-store")
        assert thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def line(what: str, value: str) -> None:
    print(f"{what:<58} {value:>14}")


def measure(directory: Path) -> None:
    total = QUEUES * COUNT * ROUNDS
    load = Load(directory)
    load.store.append(QUEUES, message_run(1))
    load.wait()  # pyarrow is loaded now
    before, start = load.writer_seconds(), time.perf_counter()
    latencies = load.append()
    elapsed, written = time.perf_counter() - start, load.writer_seconds() - before
    line("append and flush, one commit after the other", f"{total / elapsed:,.0f} /s")
    line("  a commit of 4,000 messages, median", f"{latencies[len(latencies) // 2] * 1e3:.2f} ms")
    line("  99th percentile", f"{latencies[int(len(latencies) * 0.99)] * 1e3:.2f} ms")
    line("  in the writer's thread", f"{written / total * 1e9:.0f} ns/message")
    line("settle, in the broker's thread", f"{load.settle() / total * 1e9:.0f} ns/message")
    load.wait()

    start = time.perf_counter()
    staged = load.stage()
    line("append and flush, in the broker's thread", f"{staged / total * 1e9:.0f} ns/message")
    load.wait()
    line("append and flush, all at once", f"{total / (time.perf_counter() - start):,.0f} /s")
    load.store.close()

    start = time.perf_counter()
    store = Store.open(directory, on_commit=lambda number: None)
    batches = store.batches()
    line(
        f"open with {sum(map(len, batches.values()))} batches in the file",
        f"{(time.perf_counter() - start) * 1e3:.1f} ms",
    )
    start = time.perf_counter()
    count = sum(len(store.read(batch)) for of_queue in batches.values() for batch in of_queue)
    line("read back as messages", f"{(time.perf_counter() - start) / count * 1e9:.0f} ns/message")
    start = time.perf_counter()
    for of_queue in batches.values():
        for batch in of_queue:
            store.arrow(batch)
    line("read back as Arrow columns", f"{(time.perf_counter() - start) / count * 1e9:.0f} ns/message")
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else ".") as name:
        measure(Path(name))
