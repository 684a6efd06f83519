"""A queue with slots next to a plain queue, in turns: flow with one consumer, and memory per message.

    python -m benchmarks.slots                  # both, each the median of five rounds
    python -m benchmarks.slots --rounds 1 -n 200000 flow

Flow: messages of 100 octets with 1,000 routing keys in turn through a fanout exchange, one publisher, and one consumer
with multiple acknowledgements. Memory: growth of resident octets of a process with one queue, for a million messages
of distinct keys.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.load.client import Address, Connection
from benchmarks.load.processes import Clock, Figures, Role, together
from benchmarks.queue_kinds import consumer, publish, queues, rate
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.queues.classic import ClassicQueue
from jumpmq.testing import JumpMQ

KEYS = 1000
KINDS: dict[str, dict[str, int]] = {
    "plain": {},
    "16 slots": {"x-slots": 16},
    "64 slots": {"x-slots": 64},
    "64 slots, 500 in flight": {"x-slots": 64, "x-in-flight-per-slot": 500},
    "1,024 slots": {"x-slots": 1024},
}


def flow(broker: JumpMQ, arguments: dict[str, int], n: int) -> tuple[float, float]:
    """Messages per second through one queue to one consumer, and the broker's processor microseconds per message."""
    fields = [Field(name, "I", value) for name, value in arguments.items()]
    with queues(broker, fields) as [name]:
        connection = Connection(Address(broker.port))
        connection.call(40, 10, m.ExchangeDeclare(exchange="slots", type="fanout").encode()[4:])
        connection.bind(name, "slots", "")
        before = broker.cpu_seconds()
        found = rate(n, together([publisher(broker, name, n), consumer(broker, [name], n, ordered=False)]))
        used = broker.cpu_seconds() - before
        connection.delete_exchange("slots")
        connection.close()
    return found, used / n * 1e6


def publisher(broker: JumpMQ, queue: str, n: int) -> Role:
    """Publish ``n`` messages, with the keys in turn."""

    def run(gate: Barrier) -> Figures:
        connection = Connection(Address(broker.port))
        octets = [publish(f"key-{number:03}", False, None, "slots") for number in range(KEYS)]
        chunks = [b"".join(octets[at : at + 500]) for at in range(0, KEYS, 500)]
        gate.wait()
        clock = Clock()
        for _ in range(n // KEYS):
            for chunk in chunks:
                connection.send(chunk)
        connection.count(queue)
        figures = clock.stop()
        connection.close()
        return figures

    return run


def octets_of_a_message(arguments: dict[str, int], n: int) -> float:
    """Resident octets per message, for ``n`` ready messages."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_weigh, (arguments, n))


def _weigh(arguments: dict[str, int], n: int) -> float:
    queue = ClassicQueue("/", "q", id=1, arguments=arguments)
    before = _resident()
    for first in range(0, n, 1000):
        queue.push(
            [Message("", b"key-%d" % number, b"\0\0", b"%0100d" % number) for number in range(first, first + 1000)]
        )
    return (_resident() - before) / n


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("lines", nargs="*", metavar="LINE", help="flow, memory")
    parser.add_argument("-n", type=int, default=1_000_000, help="messages of a line")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = options.lines or ["flow", "memory"]
    if "flow" in lines:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
        with JumpMQ() as broker:
            for _ in range(options.rounds):
                for name, arguments in KINDS.items():
                    found[name].append(flow(broker, arguments, options.n))
        _print("flow, messages/s", {name: statistics.median(rate for rate, _ in each) for name, each in found.items()})
        _print("broker, us/message", {name: statistics.median(cpu for _, cpu in each) for name, each in found.items()})
    if "memory" in lines:
        _print("memory, octets", {name: octets_of_a_message(KINDS[name], options.n) for name in KINDS})


def _print(title: str, figures: dict[str, float]) -> None:
    for name, figure in figures.items():
        print(f"{title:20} {name:24} {figure:>11,.1f}  {figure / figures['plain']:5.2f} of plain", flush=True)


if __name__ == "__main__":
    main()
