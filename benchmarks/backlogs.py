"""Memory and restart time of a broker with large backlogs.

    python -m benchmarks.backlogs [--scale PART] [--only NAME ...]

Each case has a broker of its own. Printed are the peak of resident memory while the broker is filled, resident memory
afterwards, the seconds from a kill until clients are accepted again, and resident memory then. The memory limit is
200 MB; the peak may exceed the limit by 150 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import threading
import time
from collections.abc import Callable

import requests

from benchmarks.load.__main__ import main as load
from benchmarks.load.client import Address, Connection
from benchmarks.stalls import publication, swallow
from jumpmq.testing import HOST, JumpMQ

QUEUE = "backlog"
LIMIT = 200_000_000
ALLOWED = LIMIT + 150_000_000
MOST_QUEUES = 10_000


class Filled:
    """A broker filled with a case's messages.

    Args:
        scale: fraction of each case's number of messages.
    """

    def __init__(self, broker: JumpMQ, scale: float) -> None:
        self.broker = broker
        self.connection = Connection(Address(broker.port))
        self._scale = scale

    def count(self, messages: int) -> int:
        return int(messages * self._scale)

    def publish(self, queue: str, count: int, body: bytes, at_once: int, *, persistent: bool = True) -> None:
        self.connection.declare_queue(queue)
        block = publication(queue, body, persistent=persistent) * at_once
        for _ in range(count // at_once):
            self.connection.send(block)
        self.connection.count(queue)

    def ask(self, verb: str, path: str, body: object) -> None:
        url = f"http://guest:guest@{HOST}:{self.broker.http_port}/api/{path}"
        requests.request(verb, url, json=body, timeout=300).raise_for_status()

    def _load(self, scenario: str, count: int, *arguments: str) -> None:
        where = ("--port", str(self.broker.port))
        with contextlib.redirect_stdout(io.StringIO()):
            assert load([scenario, "--persistent", "--keep", "-n", str(count), *arguments, *where]) == 0

    # --- cases ---

    def ten_million(self) -> str:
        """Ten million persistent messages of 100 octets, confirmed."""
        return self._confirmed("confirm", 10_000_000)

    def a_million_singly(self) -> str:
        """A million messages, each confirmed before the next of its connection."""
        return self._confirmed("singly", 1_000_000)

    def _confirmed(self, scenario: str, messages: int) -> str:
        count = self.count(messages)
        self._load(scenario, count)
        octets = sum(file.stat().st_blocks * 512 for file in self.broker.data_dir.glob("log/0*"))
        return f"{octets / count:.0f} octets each on disk"

    def ten_thousand_queues(self) -> str:
        """Ten thousand queues of 40 KB."""
        queues = self.count(MOST_QUEUES)
        for number in range(queues):
            self.publish(f"{QUEUE} {number}", 40, bytes(1000), 40)
        return f"{queues * 40_000 / 1e6:.0f} MB of bodies"

    def unacknowledged(self) -> str:
        """A million unacknowledged transient messages of 100 octets."""
        count = self.count(1_000_000)
        self.publish(QUEUE, count, bytes(100), 1000, persistent=False)
        self.holder = Connection(Address(self.broker.port))
        self.holder.consume(QUEUE, auto_ack=False)
        swallow(self.holder)
        assert self.connection.count(QUEUE) == 0
        return f"{count * 100 / 1e6:.0f} MB of bodies"

    def reserved(self) -> str:
        """A million messages, reserved by a reader group."""
        count = self.count(1_000_000)
        self.publish(QUEUE, count, bytes(100), 1000)
        self.ask("POST", "readers/%2F/g/reserve", {"queues": {QUEUE: None}, "max_messages": count})
        return f"{count * 100 / 1e6:.0f} MB of bodies"

    def large(self) -> str:
        """Messages of 1 MB."""
        count = self.count(2_000)
        self._load("publish", count, "--size", "1000000")
        return f"{count} MB of bodies"


CASES: dict[str, Callable[[Filled], str]] = {
    one.__name__: one
    for one in (
        Filled.ten_million, Filled.a_million_singly, Filled.ten_thousand_queues, Filled.unacknowledged,
        Filled.reserved, Filled.large,
    )
}  # fmt: skip


class Scales(threading.Thread):
    """Samples a broker's memory.

    Attributes:
        most: maximum of resident memory, in octets.
    """

    def __init__(self, broker: JumpMQ) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._broker = broker
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.05):
            self.most = max(self.most, self._broker.memory())

    def stop(self) -> None:
        self._done.set()
        self.join()


def measure(name: str, scale: float) -> None:
    """Fill a broker, kill it, and restart it."""
    with JumpMQ(arguments=["--memory-limit", str(LIMIT)]) as broker:
        scales = Scales(broker)
        scales.start()
        remark = CASES[name](Filled(broker, scale))
        time.sleep(1)
        scales.stop()
        then = broker.memory()
        broker.kill()
        broker.start()
        time.sleep(1)
        figures = f"{scales.most / 1e6:8.0f} {then / 1e6:8.0f} {broker.startup:8.2f} {broker.memory() / 1e6:8.0f}"
        print(f"{name:20} {figures}   {remark}{'' if scales.most <= ALLOWED else ', too much'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="cases to measure")
    options = parser.parse_args()
    print(f"{'case':20} {'most MB':>8} {'then MB':>8} {'start s':>8} {'then MB':>8}")
    for name in options.only:
        measure(name, options.scale)


if __name__ == "__main__":
    main()
