"""Resident memory per message with a message id and two headers, next to a RabbitMQ in the same run.

    python -m benchmarks.memory                 # all lines, JumpMQ, and RabbitMQ where it is installed
    python -m benchmarks.memory --sizes 100 --queues 1 --states ready
    python -m benchmarks.memory --rabbitmq "sh run.sh FOLDER 5673" 5673     # a RabbitMQ started by a command, on a port
    python -m benchmarks.memory --million      # resident after a million persistent messages of 100 octets

A broker starts for each line. The figure is the growth of resident memory, divided by the number of messages, after
publishing and a pause for garbage collection. `its account` is JumpMQ's own accounting of the same messages, and
`paged` a broker with a memory limit of 32 MB.
"""

from __future__ import annotations

import argparse
import shlex
import struct
import time
from collections.abc import Callable, Sequence
from itertools import product

from benchmarks.growth import AT_ONCE, Session, get
from benchmarks.load.client import Address, frame, method, short
from jumpmq.testing import BrokerProcess, JumpMQ, RabbitMQ, accepts_clients

COUNT = 200_000
PAUSE = 9.0
"""Seconds between publishing and the measurement of memory."""
STATES = ("ready", "unacknowledged", "paged")
Start = Callable[[str], BrokerProcess]


class Given(RabbitMQ):
    """A RabbitMQ started by a command."""

    def __init__(self, command: str, port: str) -> None:
        super().__init__()
        self._given = shlex.split(command)
        self.port = int(port)

    def start(self) -> None:
        self._launch(self._given, {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
        deadline = time.perf_counter() + 120
        while not accepts_clients(self.port):
            self._check_alive(deadline)
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000], help="octets of the bodies")
    parser.add_argument("--queues", nargs="+", type=int, default=[1, 1000], help="queues that share the messages")
    parser.add_argument("--states", nargs="+", choices=STATES, default=STATES)
    parser.add_argument("-n", type=int, default=COUNT, help="messages")
    parser.add_argument("--rabbitmq", nargs=2, metavar=("COMMAND", "PORT"))
    parser.add_argument("--million", action="store_true", help="only that line")
    asked = parser.parse_args()
    if asked.million:
        with JumpMQ() as broker:
            idle, taken, _ = weigh(broker, 1_000_000, 100, 2, 1, "ready")
            print(f"idle {idle / 1e6:.0f} MB, with a million messages {(idle + taken) / 1e6:.0f} MB resident")
        return
    rabbitmq: Callable[[], BrokerProcess] | None = RabbitMQ if RabbitMQ.available() else None
    if asked.rabbitmq:
        rabbitmq = lambda: Given(*asked.rabbitmq)  # noqa: E731
    print("| octets | mode | queues | state | JumpMQ | its account | RabbitMQ | |")
    print("| ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for size, mode, queues, state in product(asked.sizes, (1, 2), asked.queues, asked.states):
        with JumpMQ(arguments=["--memory-limit", "32MB"] if state == "paged" else ()) as broker:
            _, taken, counted = weigh(broker, asked.n, size, mode, queues, state)
        line = [f"{size:,}", "persistent" if mode == 2 else "transient", f"{queues:,}", state]
        line += [f"{taken / asked.n:,.0f}", f"{counted / asked.n:,.0f}"]
        beside = 0.0
        if rabbitmq is not None:
            with rabbitmq() as other:
                beside = weigh(other, asked.n, size, mode, queues, "ready" if state == "paged" else state)[1]
        line += [f"{beside / asked.n:,.0f}", f"{taken / beside:.2f}"] if beside > 0 else ["", ""]
        print("| " + " | ".join(line) + " |", flush=True)


def weigh(broker: BrokerProcess, count: int, size: int, mode: int, queues: int, state: str) -> tuple[int, int, int]:
    """Resident octets before the messages, growth through the messages, and the broker's own accounting."""
    session, names = Session(Address(broker.port)), [f"memory-{number}" for number in range(queues)]
    for name in names:
        session.declare_queue(name)
    time.sleep(PAUSE)
    before = broker.memory()
    for first in range(0, count, AT_ONCE):
        session.send(
            b"".join(publish(names, number, size, mode) for number in range(first, min(first + AT_ONCE, count)))
        )
    while sum(session.count(name) for name in names) < count:
        time.sleep(0.1)
    if state == "unacknowledged":
        for name in names:
            session.send(method(1, 60, 20, b"\0\0" + short(name) + short(name) + b"\0" + bytes(4)))
        session.read(queues + 3 * count)
    time.sleep(PAUSE)
    return before, broker.memory() - before, account(broker)


def publish(names: Sequence[str], number: int, size: int, mode: int) -> bytes:
    """A publish to the queues in turn."""
    headers = short("customer") + b"S" + _long(f"customer-{number % 5000}") + short("attempt") + b"I\0\0\0\1"
    properties = struct.pack(">H", 0x3080) + struct.pack(">I", len(headers)) + headers + bytes([mode])
    properties += short(f"{number:032x}")
    header = struct.pack(">HHQ", 60, 0, size) + properties
    publish = b"\0\0" + short("") + short(names[number % len(names)]) + b"\0"
    return method(1, 60, 40, publish) + frame(2, 1, header) + frame(3, 1, number.to_bytes(8).ljust(size, b"m"))


def _long(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


def account(broker: BrokerProcess) -> int:
    """Octets of memory in JumpMQ's accounting of its queues; 0 for other brokers."""
    if not isinstance(broker, JumpMQ):
        return 0
    return sum(queue["memory"] for queue in get(broker, "/api/queues"))


if __name__ == "__main__":
    main()
