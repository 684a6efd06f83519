"""Kinds of queue, on JumpMQ and RabbitMQ in turn: streams, priorities, quorum queues, many consumers, queues, bindings.

    python -m benchmarks.queue_kinds            # all lines, each the median of three rounds
    python -m benchmarks.queue_kinds -n 1000000 --rounds 1 stream

Prints messages per second and the ratio. RabbitMQ takes part where it is installed; the brokers alternate in a round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Barrier

from benchmarks.load.client import Address, Connection, LoadError, method, short
from benchmarks.load.processes import Clock, Figures, Role, together
from benchmarks.load.roles import drained
from benchmarks.load.traffic import CHUNK, Confirms, Deliveries, Messages
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.testing import BrokerProcess, installed

WINDOW = 5000
"""Maximum number of unconfirmed publishes."""

PREFETCH = 2000
FROM_FIRST = [Field("x-stream-offset", "S", "first")]
SHAPES = (
    ("{}.created.eu", "{}.created.eu"),
    ("{}.*.eu", "{}.any.eu"),
    ("*.{}.us", "any.{}.us"),
    ("{}.#", "{}.any"),
    ("#.{}", "a.b.c.{}"),
    ("a.*.{}.#", "a.any.{}.b"),
    ("*.*.{}", "a.b.{}"),
    ("b.{}.*", "b.{}.any"),
    ("{}.x.#", "{}.x.y.z"),
    ("c.{}", "c.{}"),
)
"""Binding keys of a topic exchange, each with a matching routing key."""

Measure = Callable[[BrokerProcess, int], float]


def kind(name: str) -> list[Field]:
    return [Field("x-queue-type", "S", name)]


# --- the lines ---


def stream_publish(broker: BrokerProcess, n: int) -> float:
    """Publishing to a stream, confirmed."""
    with queues(broker, kind("stream")) as (name,):
        return rate(n, together([publisher(broker, name, n, confirm=True)]))


def stream_read(broker: BrokerProcess, n: int) -> float:
    """A stream, read from its first message and acknowledged."""
    with queues(broker, kind("stream")) as (name,):
        together([publisher(broker, name, n, confirm=True)])
        return rate(n, together([consumer(broker, [name], n, FROM_FIRST)]))


def stream_twenty_readers(broker: BrokerProcess, n: int) -> float:
    """A stream read by 20 readers at once; messages per second of all readers."""
    each = n // 20
    with queues(broker, kind("stream")) as (name,):
        together([publisher(broker, name, each, confirm=True)])
        halves = [consumer(broker, [name] * 10, each * 10, FROM_FIRST) for _ in range(2)]
        return rate(each * 20, together(halves))


def priorities(broker: BrokerProcess, n: int) -> float:
    """A queue with priorities 0 to 9."""
    with queues(broker, [Field("x-max-priority", "b", 9)]) as (name,):
        roles = [publisher(broker, name, n, priorities=10), consumer(broker, [name], n, ordered=False)]
        return rate(n, together(roles))


def quorum_confirmed(broker: BrokerProcess, n: int) -> float:
    """Publishing to a quorum queue, persistent, confirmed."""
    with queues(broker, kind("quorum")) as (name,):
        return rate(n, together([publisher(broker, name, n, confirm=True, persistent=True)]))


def hundred_consumers(broker: BrokerProcess, n: int) -> float:
    """A queue with 100 consumers on separate connections."""
    with queues(broker, []) as (name,):
        roles = [publisher(broker, name, n), consumer(broker, [name] * 100, n, ordered=False)]
        return rate(n, together(roles))


def ten_thousand_queues(broker: BrokerProcess, n: int) -> float:
    """Publishing to 10,000 queues in turn."""
    with queues(broker, [], 10_000, durable=False) as names:
        return rate(n, together([round_robin(broker, names, n)]))


def ten_thousand_bindings(broker: BrokerProcess, n: int) -> float:
    """A topic exchange with 10,000 bindings of ten shapes to ten queues; each message matches one."""
    with queues(broker, [], 10, durable=False) as names, topics(broker, names) as (exchange, keys):
        return rate(n, together([topic_publisher(broker, exchange, keys, names, n)]))


LINES: dict[str, tuple[str, Measure, float]] = {
    "stream-publish": ("publish into a stream, confirmed", stream_publish, 1),
    "stream-read": ("read a stream from `first`", stream_read, 1),
    "stream-twenty": ("a stream, 20 readers at once", stream_twenty_readers, 2),
    "priorities": ("priorities 0 to 9, flow", priorities, 0.2),
    "quorum": ("quorum queue, persistent, confirmed", quorum_confirmed, 0.3),
    "consumers": ("one queue, 100 consumers, flow", hundred_consumers, 0.1),
    "queues": ("10,000 queues, round-robin", ten_thousand_queues, 0.05),
    "topics": ("topic exchange of 10,000 bindings", ten_thousand_bindings, 0.2),
}
"""By name: title, function, and fraction of the messages. RabbitMQ reaches 2,000 per second in some cases."""


# --- roles ---


def publisher(
    broker: BrokerProcess, queue: str, n: int, *, confirm: bool = False, persistent: bool = False, priorities: int = 0
) -> Role:
    """Publish ``n`` messages of 100 octets to a queue."""

    def run(gate: Barrier) -> Figures:
        connection = Connection(Address(broker.port))
        confirms = Confirms(connection)
        octets = [publish(queue, persistent, number if priorities else None) for number in range(priorities or 1)]
        chunk = b"".join(octets * (CHUNK // len(octets)))
        size = len(octets) * (CHUNK // len(octets))
        if confirm:
            connection.select_confirms()
        gate.wait()
        clock = Clock()
        for _ in range(n // size):
            while confirm and confirms.missing + size > WINDOW:
                confirms.read()
            connection.send(chunk)
            confirms.sent += size
        rest = n % size
        connection.send(b"".join(octets[number % len(octets)] for number in range(rest)))
        confirms.sent += rest
        while confirm and confirms.missing:
            confirms.read()
        connection.count(queue)
        figures = clock.stop()
        connection.close()
        return figures

    return run


def round_robin(broker: BrokerProcess, names: list[str], n: int) -> Role:
    """Publish ``n`` messages to queues in turn."""

    def run(gate: Barrier) -> Figures:
        connection = Connection(Address(broker.port))
        octets = [publish(name, False, None) for name in names]
        chunks = [b"".join(octets[at : at + 500]) for at in range(0, len(octets), 500)]
        gate.wait()
        clock = Clock()
        for _ in range(n // len(names)):
            for chunk in chunks:
                connection.send(chunk)
        connection.count(names[-1])
        figures = clock.stop()
        connection.close()
        return figures

    return run


def topic_publisher(broker: BrokerProcess, exchange: str, keys: list[str], names: list[str], n: int) -> Role:
    """Publish ``n`` messages with keys in turn."""

    def run(gate: Barrier) -> Figures:
        connection = Connection(Address(broker.port))
        octets = [publish(key, False, None, exchange) for key in keys]
        chunks = [b"".join(octets[at : at + 500]) for at in range(0, len(octets), 500)]
        before = sum(connection.count(name) for name in names)
        gate.wait()
        clock = Clock()
        for _ in range(n // len(keys)):
            for chunk in chunks:
                connection.send(chunk)
        arrived = sum(connection.count(name) for name in names) - before
        figures = clock.stop()
        if arrived != n // len(keys) * len(keys):
            raise LoadError(f"{arrived} messages came of {n}")
        connection.close()
        return figures

    return run


def publish(queue: str, persistent: bool, priority: int | None, exchange: str = "") -> bytes:
    """One publish of 100 octets to a queue, or with the queue's name as key to an exchange; its number is 0."""
    octets = Messages("", 100, 1, persistent).encode(0, 1, 131072)
    octets = octets.replace(method(1, 60, 40, b"\0\0" + short("") + short("0" * 10) + b"\0"), b"", 1)
    if priority is not None:  # the property in the header frame: 14 octets precede the flags
        header = bytes(octets[:7]) + octets[7:19] + (0x0800).to_bytes(2) + bytes([priority])
        header = header[:3] + (15).to_bytes(4) + header[7:] + b"\xce"
        octets = header + octets[octets.index(b"\xce") + 1 :]
    return method(1, 60, 40, b"\0\0" + short(exchange) + short(queue) + b"\0") + octets


def consumer(
    broker: BrokerProcess, names: list[str], n: int, arguments: list[Field] | None = None, *, ordered: bool = False
) -> Role:
    """Consume ``n`` messages, over a connection per queue, with multiple acknowledgements."""

    def run(gate: Barrier) -> Figures:
        consumers = [Deliveries(Connection(Address(broker.port)), ordered=ordered) for _ in names]
        prefetch = max(PREFETCH // len(names), 20)
        for each in consumers:
            each.connection.prefetch(prefetch)
        gate.wait()
        clock = Clock()
        for each, name in zip(consumers, names, strict=True):
            consume = m.BasicConsume(queue=name, consumer_tag="load", arguments=arguments or [])
            each.connection.call(60, 20, consume.encode()[4:])
        return drained(consumers, n, prefetch // 4, clock)

    return run


@contextmanager
def queues(
    broker: BrokerProcess, arguments: list[Field], count: int = 1, *, durable: bool = True
) -> Iterator[list[str]]:
    """Queues for a measurement."""
    names = [f"kinds-{number}" for number in range(count)]
    connection = Connection(Address(broker.port))
    for name in names:
        connection.call(50, 10, m.QueueDeclare(queue=name, durable=durable, arguments=arguments).encode()[4:])
    try:
        yield names
    finally:
        for name in names:
            connection.delete_queue(name)
        connection.close()


@contextmanager
def topics(broker: BrokerProcess, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A topic exchange with 10,000 bindings, and 10,000 matching keys."""
    connection, exchange = Connection(Address(broker.port)), "kinds-topic"
    connection.call(40, 10, m.ExchangeDeclare(exchange=exchange, type="topic").encode()[4:])
    keys = []
    for number in range(10_000):
        place, word = number % len(SHAPES), f"order-{number}"
        pattern, key = SHAPES[place]
        connection.bind(names[place % len(names)], exchange, pattern.format(word))
        keys.append(key.format(word))
    try:
        yield exchange, keys
    finally:
        connection.delete_exchange(exchange)
        connection.close()


def rate(n: int, figures: list[Figures]) -> float:
    return n / max(one["seconds"] for one in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"those whose names contain it: {', '.join(LINES)}")
    parser.add_argument("-n", type=int, default=1_000_000, help="messages of a line")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chosen = [name for name in LINES if not options.lines or any(word in name for word in options.lines)]
    with ExitStack() as stack:
        brokers = [stack.enter_context(each()) for each in installed()]
        for name in chosen:
            title, measure, share = LINES[name]
            found: dict[str, list[float]] = {broker.name: [] for broker in brokers}
            for _ in range(options.rounds):
                for broker in brokers:
                    found[broker.name].append(measure(broker, int(options.n * share)))
            medians = [statistics.median(found[broker.name]) for broker in brokers]
            shown = "  ".join(
                f"{broker.name} {median:>11,.0f}/s" for broker, median in zip(brokers, medians, strict=True)
            )
            ratio = f"  {medians[0] / medians[1]:6.1f}x" if len(medians) > 1 else ""
            print(f"{title:40} {shown}{ratio}", flush=True)


if __name__ == "__main__":
    main()
