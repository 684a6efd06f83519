"""Consumer groups next to plain consumers, during a join, and next to RabbitMQ's single active consumers.

    python -m benchmarks.consumer_groups              # all lines, each the median of five rounds
    python -m benchmarks.consumer_groups --rounds 1 -n 200000 share

Messages have 100 octets and 1,000 routing keys in turn.

share: one publisher; 16 consumers of one queue on separate connections, or 16 members of a group on one queue with 64
    slots.
join: a second member joins a member with 64 slots and takes 32 of them, at 200,000 messages per second; both
    acknowledge every read at once. The figure is the longest time between two deliveries of a key, over all keys, next
    to the figure without the join.
beside: a consistent hash exchange with 16 queues: with JumpMQ 16 members of a group on the exchange, with RabbitMQ 16
    consumers of queues with a single active consumer, each in standby for the next queue.
"""

from __future__ import annotations

import argparse
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from multiprocessing.synchronize import Barrier

from benchmarks.load.client import Address, Connection, LoadError
from benchmarks.load.processes import Clock, Figures, Role, together
from benchmarks.load.roles import arriving, drained
from benchmarks.load.traffic import CHUNK, Deliveries, Messages
from benchmarks.queue_kinds import rate
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.testing import BrokerProcess, JumpMQ, RabbitMQ

MEMBERS = 16
PREFETCH = 200
KEYS = 1000
EXCHANGE = "groups"
SLOTS = [Field("x-slots", "I", 64)]
SINGLE_ACTIVE = [Field("x-single-active-consumer", "t", True)]
GROUP = [Field("x-consumer-group", "S", "members"), Field("x-rebalance-delay", "I", 200)]
GATHERING = 1.5
"""Seconds until new members have their partitions."""

RATE = 200_000
SECONDS = 4
"""Duration of publishing at ``RATE``, in seconds."""

JOINS_AFTER = 1.5
"""Seconds after the start until the second member joins."""

Consumption = tuple[list[str], list[Field]]
"""The queues and the consume arguments of a connection."""


# --- roles ---


def publisher(broker: BrokerProcess, n: int, per_second: float = 0.0) -> Role:
    """Publish ``n`` messages, as fast as possible or at a rate."""

    def run(gate: Barrier) -> Figures:
        connection = Connection(Address(broker.port))
        size = int(per_second / 1000) or CHUNK
        chunks = Messages(EXCHANGE, 100, KEYS, False).chunks(0, n, connection.frame_max, size)
        gate.wait()
        clock = Clock()
        began, sent = time.monotonic(), 0
        for count, parts in chunks:
            if per_second and (wait_for := began + sent / per_second - time.monotonic()) > 0:
                time.sleep(wait_for)
            connection.send_parts(parts)
            sent += count
        connection.count("q00")
        figures = clock.stop()
        connection.close()
        return figures | {"began": began}

    return run


def consumers(broker: BrokerProcess, consumed: list[Consumption], n: int, prefetch: int = PREFETCH) -> Role:
    """Consume ``n`` messages over many connections, with multiple acknowledgements."""

    def run(gate: Barrier) -> Figures:
        each_one = [subscribed(broker, names, arguments, prefetch) for names, arguments in consumed]
        time.sleep(GATHERING)
        gate.wait()
        return drained(each_one, n, prefetch // 4, Clock())

    return run


def subscribed(broker: BrokerProcess, names: list[str], arguments: list[Field], prefetch: int) -> Deliveries:
    """A connection with consumers."""
    connection = Connection(Address(broker.port))
    connection.prefetch(prefetch)
    for name in names:
        tag = f"tag-{name}"
        connection.call(60, 20, m.BasicConsume(queue=name, consumer_tag=tag, arguments=arguments).encode()[4:])
    return Deliveries(connection, ordered=False)


def timing_members(broker: BrokerProcess, n: int, joins: bool) -> Role:
    """Return a role that consumes ``n`` messages as a member, optionally joined by a second member.

    A batch of messages is acknowledged at once. The role notes the time and the member of each message.
    """

    def run(gate: Barrier) -> Figures:
        first = subscribed(broker, ["q00"], GROUP, 0)
        arrivals, at = array("d", [0.0]) * n, bytearray(n)
        time.sleep(GATHERING)
        gate.wait()
        began = time.monotonic()
        members, joined = [first], 0.0
        count = 0
        while count < n:
            if joins and not joined and time.monotonic() - began >= JOINS_AFTER:
                joined = time.monotonic()
                members.append(subscribed(broker, ["q00"], GROUP, 0))
            some = arriving(members, n)
            for each in some:
                deliveries = each.take()
                now = time.monotonic()
                place = members.index(each)
                for number in each.numbers(deliveries):
                    arrivals[number] = now
                    at[number] = place
                each.done(deliveries, 1)
                if joins and not joined and now - began >= JOINS_AFTER:
                    break
            count = sum(each.count for each in members)
        for each in members:
            each.acknowledge()
            each.connection.close()
        return {"seconds": time.monotonic() - began, "joined": joined, "arrivals": arrivals, "at": bytes(at)}

    return run


# --- lines ---


@contextmanager
def bound(broker: BrokerProcess, kind: str, count: int, arguments: list[Field], key: str = "1") -> Iterator[list[str]]:
    """Declare and bind the queues of a measurement."""
    names = [f"q{number:02}" for number in range(count)]
    connection = Connection(Address(broker.port))
    connection.declare_exchange(EXCHANGE, kind)
    for name in names:
        connection.call(50, 10, m.QueueDeclare(queue=name, durable=True, arguments=arguments).encode()[4:])
        connection.bind(name, EXCHANGE, key)
    try:
        yield names
    finally:
        for name in names:
            connection.delete_queue(name)
        connection.delete_exchange(EXCHANGE)
        connection.close()


def through_one(broker: BrokerProcess, n: int, slots: list[Field], group: list[Field]) -> float:
    """Messages per second through one queue to 16 consumers."""
    with bound(broker, "fanout", 1, slots) as names:
        return rate(n, together([publisher(broker, n), consumers(broker, [(names, group)] * MEMBERS, n)]))


def through_ring(broker: BrokerProcess, n: int) -> float:
    """Messages per second through a hash exchange with 16 queues, each with one active consumer."""
    grouped = isinstance(broker, JumpMQ)
    with bound(broker, "x-consistent-hash", MEMBERS, [] if grouped else SINGLE_ACTIVE) as names:
        consumed: list[Consumption] = [([name, names[place - 1]], []) for place, name in enumerate(names)]
        if grouped:
            consumed = [([EXCHANGE], GROUP)] * MEMBERS
        return rate(n, together([publisher(broker, n), consumers(broker, consumed, n)]))


def longest_gap(broker: BrokerProcess, joins: bool) -> tuple[float, float, int]:
    """Return the longest gap, the median of the keys' longest gaps, and the number of moved slots.

    A gap is the time between two deliveries of a key in seconds, after the join, or after its time in a run without.
    """
    n = RATE * SECONDS
    with bound(broker, "fanout", 1, SLOTS):
        published, got = together([publisher(broker, n, RATE), timing_members(broker, n, joins)])
    arrivals, at, since = got["arrivals"], got["at"], got["joined"] or published["began"] + JOINS_AFTER
    longest, moved = [0.0] * KEYS, set()
    for key in range(KEYS):  # of the number of its first message
        times, places = arrivals[key::KEYS], at[key::KEYS]
        if any(later < earlier for earlier, later in pairwise(times)):
            raise LoadError(f"the messages of key {key} came out of order")
        if sorted(places) != list(places):
            raise LoadError(f"key {key} came back to the member that it had left")
        moved.update({key} if places[-1] else ())
        longest[key] = max(later - earlier for earlier, later in pairwise(times) if later >= since)
    return max(longest), statistics.median(longest), len(moved)


def share(options: argparse.Namespace) -> None:
    found: dict[str, list[float]] = {"plain consumers": [], "plain consumers, 64 slots": [], "group, 64 slots": []}
    with JumpMQ() as broker:
        for _ in range(options.rounds):
            found["plain consumers"].append(through_one(broker, options.n, [], []))
            found["plain consumers, 64 slots"].append(through_one(broker, options.n, SLOTS, []))
            found["group, 64 slots"].append(through_one(broker, options.n, SLOTS, GROUP))
    _print("16 consumers, messages/s", found)


def join(options: argparse.Namespace) -> None:
    with JumpMQ() as broker:
        for joins in (False, True):
            found = [longest_gap(broker, joins) for _ in range(options.rounds)]
            longest, median = (1000 * max(one[place] for one in found) for place in (0, 1))
            moved = f", {statistics.median(one[2] for one in found):.0f} keys moved" if joins else ""
            print(
                f"{'a join' if joins else 'no join':10} longest gap of any key {longest:6.1f} ms, median of the keys'"
                f" longest {median:5.1f} ms{moved}",
                flush=True,
            )


def beside(options: argparse.Namespace) -> None:
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        brokers = [stack.enter_context(JumpMQ())]
        if RabbitMQ.available():
            brokers.insert(0, stack.enter_context(RabbitMQ()))
        for _ in range(options.rounds):
            for broker in brokers:
                found.setdefault(broker.name, []).append(through_ring(broker, options.n))
    _print("hash exchange, messages/s", found)


LINES: dict[str, Callable[[argparse.Namespace], None]] = {"share": share, "join": join, "beside": beside}


def _print(title: str, found: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    first = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"{title:28} {name:28} {median:>11,.0f}  {median / first:5.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("lines", nargs="*", choices=[[], *LINES], metavar="LINE", help=", ".join(LINES))
    parser.add_argument("-n", type=int, default=1_000_000, help="messages of a line")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name in options.lines or LINES:
        LINES[name](options)


if __name__ == "__main__":
    main()
