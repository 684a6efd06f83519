"""Fuzzes both ports of a live broker at once, and checks its memory and descriptors.

    python -m fuzzing.ports --seconds 3600
    python -m fuzzing.ports --seconds 3600 --workers 2

The broker is a separate process. Damaged AMQP conversations (:mod:`fuzzing.sockets`) and requests to the management API
(:mod:`fuzzing.management`) come from several threads; clients disconnect at any point. Every few seconds a well-behaved
client must be served. Memory and file descriptors are counted after a tenth of the time and at the end. Failures are: a
status of 500 or more, an error in the log, a growth of more than 50 MB, leaked descriptors. The exit status is then 1.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

from rich.progress import Progress

from fuzzing import management, sockets
from jumpmq.testing import JumpMQ, children

GROWTH = 50_000_000
"""Maximum growth of the broker in octets."""
SPARE_DESCRIPTORS = 10
COMPLAINT = re.compile(r"^(\S+ \S+ (ERROR|CRITICAL) |Traceback)", re.MULTILINE)
TALKERS = 2
"""Threads per port."""


class Run:
    """A run on a broker.

    Attributes:
        found: failures, in words.
        counts: number of conversations and requests.
    """

    def __init__(self, broker: JumpMQ, seed: int) -> None:
        self.found: list[str] = []
        self.counts = {"conversations": 0, "requests": 0}
        self._broker = broker
        self._seed = seed
        self._over = threading.Event()
        self._calm = threading.Lock()  # held while no request blocks other clients
        self._read = 0

    def go(self, seconds: float) -> None:
        """Fuzz for the given seconds."""
        management.make_users(self._broker.http_port)
        management.read_messages(self._broker.http_port)
        threads = [threading.Thread(target=self._converse, args=(number,)) for number in range(TALKERS)]
        threads += [threading.Thread(target=self._request, args=(number,)) for number in range(TALKERS)]
        for thread in threads:
            thread.start()
        try:
            self._watch(seconds)
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _watch(self, seconds: float) -> None:
        began = time.monotonic()
        before: tuple[int, int] | None = None
        with Progress(disable=not sys.stdout.isatty()) as progress:
            task = progress.add_task("fuzzing", total=seconds)
            while (elapsed := time.monotonic() - began) < seconds and not self.found:
                time.sleep(min(2.0, seconds / 10))
                progress.update(task, completed=elapsed)
                self._look()
                if before is None and elapsed > seconds / 3:  # by then all processes have had a large request
                    before = self._holds()
        self._over.set()
        time.sleep(3)  # the broker closes cut connections
        if before is not None:
            self._compare(before, self._holds())

    def _compare(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        print(
            f"memory {before[0] / 1e6:.0f} MB, then {after[0] / 1e6:.0f} MB; descriptors {before[1]}, then {after[1]}"
        )
        if after[0] > before[0] + GROWTH:
            self.found.append(f"the broker grew from {before[0] / 1e6:.0f} to {after[0] / 1e6:.0f} MB")
        if after[1] > before[1] + SPARE_DESCRIPTORS:
            self.found.append(f"the broker had {before[1]} descriptors open, and then {after[1]}")

    def _holds(self) -> tuple[int, int]:
        """Octets of memory, and open descriptors, with empty queues."""
        management.clear(self._broker.http_port)
        processes = [self._broker.pid, *children(self._broker.pid)]
        descriptors = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in processes)
        return self._broker.memory(), descriptors

    def _look(self) -> None:
        try:
            with self._calm:
                management.put_right(self._broker.http_port)
                sockets.check(self._broker.port, sockets.Complaints())
        except Exception as error:
            self.found.append(f"another client was not served: {error!r}")
        with self._broker.log.open(errors="replace") as log:
            log.seek(self._read)
            new = log.read()
            self._read = log.tell()
        if complaint := COMPLAINT.search(new):
            self.found.append(f"the log says:\n{new[complaint.start() : complaint.start() + 8000]}")

    def _converse(self, number: int) -> None:
        count = 0
        while not self._over.is_set():
            sockets.hold(self._broker.port, random.Random(f"{self._seed}/{number}/{count}"))
            count += 1
            self.counts["conversations"] += 1

    def _request(self, number: int) -> None:
        known = management.endpoints(self._broker.http_port)
        count = 0
        while not self._over.is_set():
            chance = random.Random(f"{self._seed}/http/{number}/{count}")
            octets = management.compose(chance, known)
            with self._calm if management.hinders(octets) else nullcontext():
                status = management.send(self._broker.http_port, octets, chance)
                if management.hinders(octets):
                    management.put_right(self._broker.http_port)
            if status >= 500 and not (status == 503 and b"/api/health/" in octets):  # a failed health check
                self.found.append(f"status {status} for {octets[:2000]!r}")
            count += 1
            self.counts["requests"] += 1


def fuzz(seconds: float, seed: int, workers: int = 1) -> Run:
    """Fuzz a new broker with the given number of processes for the given seconds."""
    with JumpMQ(arguments=["--workers", str(workers)]) as broker:
        run = Run(broker, seed)
        run.go(seconds)
        return run


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz both ports of a broker.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--workers", type=int, default=1, help="processes of the broker")
    arguments = parser.parse_args()
    run = fuzz(arguments.seconds, arguments.seed, arguments.workers)
    counts = ", ".join(f"{count} {what}" for what, count in run.counts.items())
    print(f"{counts} (seed {arguments.seed})")
    print("\n".join(run.found) or "nothing found")
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
