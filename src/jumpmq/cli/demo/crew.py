"""The demo's consumer group: consumers are killed and added, the exchange grows, and aircraft stay in order.

Each consumer is a process of its own, this module run as a program. All of them write what they get to one file, whose
order is that in which it happened.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pika

from jumpmq.cli.demo.flights import FlightMessages
from jumpmq.cli.demo.publish import ConfirmedPublisher, declare
from jumpmq.management import ManagementClient

EXCHANGE = "departures"
GROUP = "crew"
LIMIT = 20_000
"""Maximum number of flights for the consumer group."""

CONSUMERS = ("consumer 1", "consumer 2 (killed)", "consumer 3", "consumer 4")
ADDED = "consumer 5 (added)"
QUEUES, GROWN = 4, 6
PREFETCH = 50
PATIENCE = 120.0
"""Seconds without progress after which the demo stops waiting."""


@dataclass(frozen=True)
class Part:
    """A consumer's result: number of flights, and of queues."""

    flights: int
    queues: int


@dataclass(frozen=True)
class SharedFlights:
    """Result of the consumer group.

    Attributes:
        published: how many there were.
        parts: by the consumer's name, in the order in which they came.
        handled: different flights that came.
        again: flights that came once more, marked as redelivered.
        out_of_order: flights that came after a later one of their aircraft, or once more, and were not marked.
    """

    published: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    handled: int = 0
    again: int = 0
    out_of_order: int = 0


@dataclass(frozen=True)
class Delivery:
    """A line of the file."""

    consumer: str
    queue: str
    number: int
    redelivered: bool
    aircraft: str

    @classmethod
    def read(cls, line: str) -> Delivery:
        """Parse a line written by :func:`consume`."""
        consumer, queue, number, redelivered, aircraft = line.split("\t")
        return cls(consumer, queue, int(number), redelivered == "1", aircraft)


def share(url: str, management: str, flights: FlightMessages, directory: Path) -> SharedFlights:
    """Publish flights to a consumer group of four consumers on four queues; one consumer is killed and replaced, and
    the queues become six.

    Args:
        url: of AMQP.
        management: URL of the management API.
        directory: where the consumers write.
    """
    api = ManagementClient(management)
    count = min(len(flights.bodies), LIMIT)
    log = directory / "crew.log"
    log.touch()
    with ExitStack() as stack:

        def hire(name: str) -> subprocess.Popen[bytes]:
            consumer = stack.enter_context(subprocess.Popen([sys.executable, "-m", __name__, url, str(log), name]))
            stack.callback(consumer.kill)
            return consumer

        declare(url, EXCHANGE, _weights(QUEUES))
        _, unlucky, *_ = [hire(name) for name in CONSUMERS]
        _settle(api, QUEUES)
        _publish(url, flights, 0, count // 3)
        _wait(log, count // 6)
        unlucky.kill()
        hire(ADDED)
        _wait(log, count // 3)
        _settle(api, QUEUES)
        _publish(url, flights, count // 3, count * 2 // 3)
        declare(url, EXCHANGE, _weights(GROWN))  # what comes to the new queues waits for its aircraft's in the old ones
        _publish(url, flights, count * 2 // 3, count)
        _settle(api, GROWN)
        _wait(log, count)
    return judged(_lines(log), count)


def judged(lines: list[str], published: int) -> SharedFlights:
    """Evaluate the lines of the file."""
    latest: dict[str, int] = {}
    seen: set[int] = set()
    flights: dict[str, int] = {}
    queues: dict[str, set[str]] = {}
    again = out_of_order = 0
    for one in map(Delivery.read, lines):
        flights[one.consumer] = flights.get(one.consumer, 0) + 1
        queues.setdefault(one.consumer, set()).add(one.queue)
        if one.redelivered:
            again += one.number in seen
        elif one.number <= latest.get(one.aircraft, 0):
            out_of_order += 1
        latest[one.aircraft] = max(latest.get(one.aircraft, 0), one.number)
        seen.add(one.number)
    parts = {name: Part(flights[name], len(queues[name])) for name in sorted(flights)}
    return SharedFlights(published, parts, len(seen), again, out_of_order)


def _weights(queues: int) -> dict[str, int]:
    return {f"{EXCHANGE}-{number}": 1 for number in range(1, queues + 1)}


def _publish(url: str, flights: FlightMessages, first: int, end: int) -> None:
    some = replace(flights, keys=flights.keys[first:end], bodies=flights.bodies[first:end])
    ConfirmedPublisher(url, EXCHANGE, some, lambda confirmed: None).publish()


def _wait(log: Path, count: int) -> None:
    """Wait until so many different flights have come, or none any more."""
    known, deadline = -1, 0.0
    while (found := len({line.split("\t")[2] for line in _lines(log)})) < count:
        if found > known:
            known, deadline = found, time.monotonic() + PATIENCE
        elif time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _settle(api: ManagementClient, queues: int) -> None:
    """Wait until the group has shared out so many queues among all consumers."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        groups = [one for one in api.get("consumer-groups", "/") if one["source"] == EXCHANGE]
        for group in groups:
            serving = sum(one["state"] == "serving" for one in group["members"])
            if (group["state"], len(group["units"]), serving) == ("stable", queues, len(CONSUMERS)):
                return
        time.sleep(0.05)


def _lines(log: Path) -> list[str]:
    """Return the complete lines."""
    return log.read_text().split("\n")[:-1]


def consume(url: str, log: Path, name: str) -> None:
    """Be a member of the group until killed."""
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    for method, properties, body in channel.consume(EXCHANGE, arguments={"x-consumer-group": GROUP}):
        number, queue = json.loads(body)["number"], properties.headers["x-queue"]
        told = (name, queue, str(number), str(int(method.redelivered)), method.routing_key)
        os.write(written, ("\t".join(told) + "\n").encode())
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    consume(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
