"""The demo's consumer group: consumers are killed, stopped, woken and added; flights are requeued; the exchange grows.

Each consumer is a separate process that runs this module as a program. All consumers record handled flights in one
SQLite database. The database accepts a record only from the current owner of the aircraft. ``jumpmq verify`` reads the
records, and checks that each aircraft's flights were handled in order, once, and by one consumer at a time.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pika

from jumpmq.cli.demo.flights import FlightMessages
from jumpmq.cli.demo.publish import ConfirmedPublisher, declare, numbered
from jumpmq.cli.verifying import verdict
from jumpmq.management import ManagementClient
from jumpmq.ordering import Delivery, StaleOwner
from jumpmq.ordering.verification import Verification, read

EXCHANGE = "departures"
GROUP = "crew"
LIMIT = 12_000
"""Maximum number of flights for the consumer group."""

CONSUMERS = ("consumer 1", "consumer 2 (killed)", "consumer 3 (stopped)", "consumer 4")
ADDED = "consumer 5 (added)"
LEFT = 3
"""Consumers that are neither killed nor stopped."""

QUEUES, GROWN = 4, 6
ARGUMENTS = {
    "x-slots": 16,
    "x-in-flight-per-slot": 1,  # no flight is in progress while an earlier flight of its aircraft is requeued
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": 100,
}
PUT_BACK = 1000
"""A consumer requeues one of this number of flights on the first delivery, to simulate a temporary failure."""

PREFETCH = 50
MEMBER = {"x-consumer-group": GROUP, "x-rebalance-delay": 200, "x-handover-timeout": 500}
PATIENCE = 120.0
"""Seconds without progress after which the demo stops waiting."""

DATABASE = "crew.db"
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE aircraft (key TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE deliveries (
    key TEXT, message TEXT, queue TEXT, slot INTEGER, epoch INTEGER, number INTEGER, time REAL, consumer TEXT,
    UNIQUE (key, number)
);
CREATE TABLE events (event TEXT, consumer TEXT);
"""
CLAIM = """
INSERT INTO aircraft (key, epoch) VALUES (:key, :epoch)
ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch WHERE aircraft.epoch <= excluded.epoch
"""
WRITE = """
INSERT OR IGNORE INTO deliveries VALUES (:key, :message, :queue, :slot, :epoch, :number, :time, :consumer)
"""
AGAIN, RETRIED, REFUSED = "again", "retried", "refused"


@dataclass(frozen=True)
class ConsumerResult:
    """Numbers of flights handled by a consumer, and of the queues with these flights."""

    flights: int
    queues: int


@dataclass(frozen=True)
class SharedFlights:
    """Result of the consumer group.

    Attributes:
        published: number of published flights.
        parts: results of the consumers, by name, in the order of the names.
        handled: number of recorded flights, each counted once.
        again: number of deliveries of flights already recorded; the database ignores these records.
        retried: number of flights requeued by a consumer.
        refused: number of late writes refused because another consumer owned the aircraft.
        verdict: result of ``jumpmq verify``, as a sentence.
        held: True if all flights were handled in order, once, and by one owner at a time.
    """

    published: int = 0
    parts: Mapping[str, ConsumerResult] = field(default_factory=dict)
    handled: int = 0
    again: int = 0
    retried: int = 0
    refused: int = 0
    verdict: str = ""
    held: bool = True


def share(url: str, management: str, flights: FlightMessages, directory: Path) -> SharedFlights:
    """Publish flights to a consumer group of four consumers on four queues.

    One consumer is killed. Another is stopped, and woken after its aircraft have other owners. A fifth consumer is
    added, and then two queues.

    Args:
        url: AMQP URL of the broker.
        management: URL of the management API.
        directory: directory for the consumers' database.
    """
    api = ManagementClient(management)
    count = min(len(flights.bodies), LIMIT)
    places = _places(flights.keys[:count])
    file = directory / DATABASE
    with ExitStack() as stack:
        database = stack.enter_context(closing(_opened(file)))
        database.executescript(TABLES)

        def hire(name: str) -> subprocess.Popen[bytes]:
            consumer = stack.enter_context(subprocess.Popen([sys.executable, "-m", __name__, url, str(file), name]))
            stack.callback(consumer.kill)
            return consumer

        def publish(first: int, end: int) -> None:
            some = replace(flights, keys=flights.keys[first:end], bodies=flights.bodies[first:end])
            ConfirmedPublisher(
                url, EXCHANGE, some, lambda confirmed: None, lambda index: numbered(places[first + index])
            ).publish()

        declare(url, EXCHANGE, _weights(QUEUES), ARGUMENTS)
        _, unlucky, sleepy, _ = [hire(name) for name in CONSUMERS]
        _settle(api, QUEUES, len(CONSUMERS))
        publish(0, count // 3)
        _wait(database, count // 6)
        unlucky.kill()
        _wait(database, count // 3)
        time.sleep(0.1)  # for the end of the last transaction: a process stopped within it keeps the database locked
        sleepy.send_signal(signal.SIGSTOP)
        publish(count // 3, count * 2 // 3)  # some of these flights lie in the stopped consumer's socket
        hire(ADDED)  # the stopped consumer hands nothing over, and loses its share
        _wait(database, count * 2 // 3)
        _settle(api, QUEUES, LEFT)
        # Flights in new queues wait for earlier flights of their aircraft in the old ones.
        declare(url, EXCHANGE, _weights(GROWN), ARGUMENTS)
        publish(count * 2 // 3, count)
        _settle(api, GROWN, LEFT)
        _wait(database, count)
        sleepy.send_signal(signal.SIGCONT)  # the woken consumer's writes are late
        _wait_for_refusals(database)
    return evaluated(file, count)


def evaluated(file: Path, published: int) -> SharedFlights:
    """Evaluate the database, as ``jumpmq verify`` does."""
    verification = Verification()
    for row in read(file):
        verification.add(row)
    with closing(_opened(file)) as database:
        parts = database.execute(
            "SELECT consumer, count(*), count(DISTINCT queue) FROM deliveries GROUP BY consumer ORDER BY consumer"
        ).fetchall()
        events = Counter(event for (event,) in database.execute("SELECT event FROM events"))
    return SharedFlights(
        published,
        {name: ConsumerResult(flights, queues) for name, flights, queues in parts},
        handled=verification.rows,
        again=events[AGAIN],
        retried=events[RETRIED],
        refused=events[REFUSED],
        verdict=verdict(verification),
        held=not any(verification.faults.values()) and not verification.missing,
    )


def _places(keys: list[str]) -> list[int]:
    """Return the number of each flight among its aircraft's flights, from 1."""
    counts: Counter[str] = Counter()
    found = []
    for key in keys:
        counts[key] += 1
        found.append(counts[key])
    return found


def _weights(queues: int) -> dict[str, int]:
    return {f"{EXCHANGE}-{number}": 1 for number in range(1, queues + 1)}


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=PATIENCE)
    database.execute("PRAGMA synchronous = OFF")  # the demo kills processes, not the machine
    return database


def _wait(database: sqlite3.Connection, count: int) -> None:
    """Wait until ``count`` flights are recorded, or no flight was recorded for ``PATIENCE`` seconds."""
    known, deadline = -1, 0.0
    while (found := database.execute("SELECT count(*) FROM deliveries").fetchone()[0]) < count:
        if found > known:
            known, deadline = found, time.monotonic() + PATIENCE
        elif time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _wait_for_refusals(database: sqlite3.Connection) -> None:
    """Wait until a late write is refused, at most ``PATIENCE`` seconds."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if database.execute("SELECT count(*) FROM events WHERE event = ?", [REFUSED]).fetchone()[0]:
            return
        time.sleep(0.05)


def _settle(api: ManagementClient, queues: int, members: int) -> None:
    """Wait until the group has assigned the slots of ``queues`` queues to ``members`` consumers, at most ``PATIENCE``
    seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        groups = [one for one in api.get("consumer-groups", "/") if one["source"] == EXCHANGE]
        for group in groups:
            serving = sum(one["state"] == "serving" for one in group["members"])
            shared = len({unit["queue"] for unit in group["units"]})
            if (group["state"], shared, serving) == ("stable", queues, members):
                return
        time.sleep(0.05)


def consume(url: str, file: Path, name: str) -> None:
    """Consume as a member of the group until the process is killed, or until the broker cancels the consumer."""
    database = _opened(file)
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    for method, properties, body in channel.consume(EXCHANGE, arguments=MEMBER):
        delivery = Delivery.of(properties, method)
        number = int(delivery.message)
        if json.loads(body)["number"] % PUT_BACK == 0 and not delivery.redelivered:
            channel.basic_reject(method.delivery_tag, requeue=True)
            _note(database, RETRIED, name)
            continue
        try:
            with database:  # one transaction
                claimed = database.execute(CLAIM, {"key": delivery.key, "epoch": delivery.epoch})
                delivery.require_owner(claimed.rowcount)
                written = database.execute(WRITE, delivery.record(number, consumer=name)).rowcount
        except StaleOwner:
            _note(database, REFUSED, name)
            continue  # handled by another consumer
        if not written:
            _note(database, AGAIN, name)
        channel.basic_ack(method.delivery_tag)


def _note(database: sqlite3.Connection, event: str, name: str) -> None:
    with database:
        database.execute("INSERT INTO events VALUES (?, ?)", [event, name])


if __name__ == "__main__":
    consume(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
