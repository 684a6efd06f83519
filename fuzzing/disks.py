"""Makes system calls for a broker's files fail under load, and counts every message.

``python -m fuzzing.disks --seconds 600``: clients publish with confirms, consume, reject, declare and delete, as in
``fuzzing.workers``, while calls for files of the data directory fail, once or for a while, at random: full disks and
quotas, errors, a read-only disk, short writes, no descriptors. The failures are injected by a library preloaded into
the broker (``faulty_disk.c``, which requires a C compiler). After the disk has recovered, all clients must make
progress, or the broker must have ended with a log line of the reason. No confirmed message may be missing after a kill.
"""

import argparse
import contextlib
import errno
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pika

from fuzzing.faulty_disk import ALLOCATE, CHANGES, CREATE, NAMES, OPEN, READ, SYNC, WRITE, FaultyDisk
from fuzzing.workers import DEAD, QUEUES, Client, Ledger, Publisher, RejectingConsumer, declare
from jumpmq.testing import JumpMQ

FAULTS = {
    "full": (errno.ENOSPC, CREATE | WRITE | ALLOCATE | NAMES),
    "full, as a sync finds": (errno.ENOSPC, SYNC),
    "quota": (errno.EDQUOT, WRITE | ALLOCATE | SYNC),
    "error": (errno.EIO, CHANGES | SYNC),
    "error of reads": (errno.EIO, OPEN | READ),
    "read only": (errno.EROFS, CHANGES),
    "short writes": (0, WRITE),
    "no descriptors": (errno.EMFILE, CREATE | OPEN),
}
"""Injected errors, with the affected system calls."""

PATIENCE = 60.0
"""Seconds until every client makes progress."""

ENDS = "the broker ends"
"""Text of the log before the end of the process."""

TRACEBACK = re.compile(r"^Traceback.*", re.MULTILINE | re.DOTALL)


class FaultyBroker(JumpMQ):
    """A broker whose disk fails on demand.

    Args:
        directory: for the library and its control file.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "data", arguments=["--memory-limit", "30MB"])
        self.disk = FaultyDisk(directory, self.data_dir)

    @property
    def command(self) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in self.disk.environment.items()), *super().command]

    @property
    def has_ended(self) -> bool:
        """Return true after the end of the process."""
        return self._process is not None and self._process.poll() is not None

    @property
    def said(self) -> str:
        """The log since the last start."""
        return self.log.read_text(errors="replace")


class Churner(Client):
    """Declares queues, fills them, and deletes them.

    Attributes:
        count: number of queues.
    """

    count = 0

    def work(self, connection: Any) -> None:
        choose = random.Random()
        while not self.stop.is_set():
            channel = connection.channel()
            kind = choose.choice(["classic", "quorum", "stream"])
            channel.queue_declare(f"churn-{kind}", durable=True, arguments={"x-queue-type": kind})
            channel.confirm_delivery()
            for _ in range(5):
                with contextlib.suppress(pika.exceptions.NackError):
                    body, mode = bytes(choose.choice([10, 3000])), choose.choice([1, 2])
                    channel.basic_publish("", f"churn-{kind}", body, pika.BasicProperties(delivery_mode=mode))
            channel.queue_delete(f"churn-{kind}")
            channel.close()
            self.count += 1
            time.sleep(0.02)


class Run:
    """A run.

    Attributes:
        found: failures, in words.
        rounds: number of injected failures.
        ledger: published, confirmed and received messages.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.found: list[str] = []
        self.rounds = 0
        self.ledger = Ledger()
        self._choose = random.Random(seed)
        self._broker = FaultyBroker(directory)
        self._stop_publishing, self._stop = Event(), Event()
        self._read = 0

    def go(self, seconds: float) -> None:
        """Inject failures into the disk for the given seconds."""
        with self._broker as broker:
            queues = [f"q{number}" for number in range(QUEUES)]
            for queue in [DEAD, *queues]:
                declare(broker.port, queue)
            port: Callable[[], int] = lambda: broker.port  # noqa: E731
            self._publishers = [Publisher(port, self.ledger, queues[at::3], self._stop_publishing) for at in range(3)]
            self._churner = Churner(port, self.ledger, [], self._stop_publishing)
            consumed = [[*queues[0::2], DEAD], queues[1::2]]
            consumers = [RejectingConsumer(port, self.ledger, some, self._stop) for some in consumed]
            clients = [*self._publishers, self._churner, *consumers]
            for client in clients:
                client.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self._round()
            self._stop_publishing.set()
            for client in (*self._publishers, self._churner):
                client.join(PATIENCE)
            self._start_again()  # unreadable parts are read now
            self._wait_for(lambda: all(self._is_received(queue) for queue in queues))
            self._stop.set()
            for client in clients:
                client.join(PATIENCE)
        self.found += self.ledger.problems()

    def _is_received(self, queue: str) -> bool:
        with self.ledger.lock:
            return len(self.ledger.acknowledged[queue]) >= self.ledger.confirmed[queue]

    def _round(self) -> None:
        choose, broker = self._choose, self._broker
        name = choose.choice(list(FAULTS))
        error, calls = FAULTS[name]
        if choose.random() < 0.3:
            calls = choose.choice([1 << place for place in range(8) if calls & 1 << place])
        after, seconds = choose.choice([0, 0, 1, 2, 5, 10, 30, 100]), choose.choice([0, 0, 0.3, 1.2, 3.0])
        before = broker.disk.failed
        broker.disk.fail(calls, error, after, -1 if seconds else 1)
        if seconds:
            time.sleep(seconds)
        else:
            self._wait_for(lambda: broker.disk.failed > before, 2.0)
        broker.disk.be_well()
        what = f"{name}, calls {calls:#x} after {after}, {f'for {seconds} s' if seconds else 'once'}"
        if broker.disk.failed > before:
            self.rounds += 1
            print(
                f"{what}: {broker.disk.failed - before} failed; {self._confirmed} confirmed",
                file=sys.stderr,
                flush=True,
            )
        if not self._goes_on(what):
            self.found.append(f"{what}: stands still; the log ends with\n{broker.said[-4000:]}")
            self._start_again()
        elif (said := TRACEBACK.search(broker.said, self._read)) is not None:
            self.found.append(f"{what}: the log says\n{said.group()[:4000]}")
        self._read = len(broker.said)
        if choose.random() < 0.1:
            self._start_again()

    @property
    def _confirmed(self) -> int:
        return sum(self.ledger.confirmed.values())

    def _goes_on(self, what: str) -> bool:
        """Return true if every client makes progress; restart an ended broker."""
        broker = self._broker
        before: list[int] = []

        def steps() -> list[int]:
            confirmed = self.ledger.confirmed
            return [sum(confirmed[queue] for queue in one.queues) for one in self._publishers] + [self._churner.count]

        def go_on() -> bool:
            nonlocal before
            if broker.has_ended:
                if ENDS not in broker.said:
                    self.found.append(f"{what}: the broker has ended without a word\n{broker.said[-2000:]}")
                self._start_again()
                before = steps()
            return all(now > then for now, then in zip(steps(), before, strict=True))

        before = steps()
        return self._wait_for(go_on)

    def _start_again(self) -> None:
        self._broker.kill()
        self._broker.start()
        self._read = 0

    def _wait_for(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        end = time.monotonic() + seconds
        while not (so := condition()) and time.monotonic() < end:
            time.sleep(0.02)
        return so


def fuzz(seconds: float, seed: int, directory: Path) -> Run:
    """Run the fuzzer once, with its files in a directory."""
    run = Run(directory, seed)
    run.go(seconds)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="jumpmq-fuzzing-") as directory:
        run = fuzz(arguments.seconds, arguments.seed, Path(directory))
    print(f"{sum(run.ledger.confirmed.values())} messages confirmed, the disk failed {run.rounds} times")
    print("\n".join(run.found) or "nothing found")
    sys.exit(bool(run.found))


if __name__ == "__main__":
    main()
