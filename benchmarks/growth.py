"""Cost of 1,000, 10,000 and 100,000 queues with bindings, consumers of one queue, and channels.

    python -m benchmarks.growth                       # 1,000, 10,000 and 100,000 of each
    python -m benchmarks.growth --of queues -n 1000 10000

Prints one table per subject, with a column per number: seconds, and octets of resident memory per object. The limits on
channels are lifted. The broker is one process on this machine, and the client another.
"""

from __future__ import annotations

import argparse
import base64
import json
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from benchmarks.load.client import FRAME, Address, Connection, method, short
from jumpmq.testing import JumpMQ

COUNTS = (1_000, 10_000, 100_000)
AT_ONCE = 500
"""Number of methods sent before their answers are read."""
MESSAGES = 2_000
REST = 60.0
"""Seconds before the memory left by deleted queues is measured: samples of their statistics are kept for a while."""
PER_CHANNEL = 1_000
"""Consumers per channel."""

Row = dict[str, str]


class Session(Connection):
    """A connection that sends many requests at once."""

    def ask(self, requests: Iterator[bytes]) -> None:
        """Send requests with one answer frame each, and read the answers."""
        while some := list(islice(requests, AT_ONCE)):
            self.send(b"".join(some))
            self.read(len(some))

    def read(self, frames: int) -> None:
        """Read and discard frames."""
        while frames:
            at = 0
            while frames and self.filled - at >= FRAME.size:
                size = FRAME.unpack_from(self.buffer, at)[2] + FRAME.size + 1
                if self.filled - at < size:
                    break
                at, frames = at + size, frames - 1
            self.discard(at)
            if frames:
                self.fill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), help="subjects instead of all")
    parser.add_argument("-n", nargs="+", type=int, default=COUNTS, help="how many of them")
    asked = parser.parse_args()
    for subject in asked.of:
        columns = {count: SUBJECTS[subject](count) for count in asked.n}
        print(f"| {subject} | " + " | ".join(f"{count:,}" for count in columns) + " |")
        print("| --- |" + " ---: |" * len(columns))
        for line in next(iter(columns.values())):
            print(f"| {line} | " + " | ".join(column[line] for column in columns.values()) + " |")
        print(flush=True)


def queues(count: int) -> Row:
    """Durable queues, bound to a direct exchange by separate keys."""
    row: Row = {}
    names = [f"queue-{number:06}" for number in range(count)]
    with JumpMQ() as broker:
        began = broker.memory()
        session = Session(Address(broker.port))
        session.declare_exchange("growth", "direct")
        with taking(row, "declare, s"):
            session.ask(method(1, 50, 10, b"\0\0" + short(name) + b"\2" + bytes(4)) for name in names)
        row["resident octets of one, unused"] = f"{(broker.memory() - began) / count:,.0f}"
        with taking(row, "bind, s"):
            session.ask(
                method(1, 50, 20, b"\0\0" + short(name) + short("growth") + short(name) + bytes(5)) for name in names
            )
        row["resident octets of one with its binding"] = f"{(broker.memory() - began) / count:,.0f}"
        session.close()
        with taking(row, "stop, s"):
            broker.stop()
        broker.start()
        row["start, s"] = f"{broker.startup:.2f}"
        with taking(row, "list all, s"):
            assert len(get(broker, "/api/queues")) == count
        with taking(row, "a page of 100, s"):
            assert len(get(broker, "/api/queues?page=1&page_size=100")["items"]) == 100
        with taking(row, "a page of 100 by messages, s"):
            get(broker, "/api/queues?page=1&page_size=100&sort=messages")
        session = Session(Address(broker.port))
        with taking(row, "delete, s"):
            session.ask(method(1, 50, 40, b"\0\0" + short(name) + b"\0") for name in names)
        time.sleep(REST)
        row["resident a minute after all are deleted, MB"] = f"{broker.memory() / 1e6:.0f}"
        session.close()
    return row


def consumers(count: int) -> Row:
    """Consumers of one queue on one connection, each with a prefetch of 1, served in turn."""
    row: Row = {}
    with JumpMQ(arguments=["--channel-max", "2047"]) as broker:
        began = broker.memory()
        session, publisher = Session(Address(broker.port)), Session(Address(broker.port))
        session.declare_queue("growth")
        with taking(row, "subscribe, s"):
            channels = range(1, -(-count // PER_CHANNEL) + 1)
            for number in channels[1:]:
                session.open_channel(number)
            for number in channels:
                session.call(60, 10, struct.pack(">IHB", 0, 1, 0), number)
            session.ask(
                method(1 + number // PER_CHANNEL, 60, 20, b"\0\0" + short("growth") + short(f"c{number}") + bytes(5))
                for number in range(count)
            )
        row["resident octets of one"] = f"{(broker.memory() - began) / count:,.0f}"
        publish = method(1, 60, 40, b"\0\0" + short("") + short("growth") + b"\0")
        publish += struct.pack(">BHIHHQHB", 2, 1, 14, 60, 0, 1, 0, 0xCE) + b"\3\0\1\0\0\0\1m\xce"
        with taking(row, f"{MESSAGES:,} messages, acknowledged, s"):
            for _ in range(MESSAGES):
                publisher.send(publish)
            for _ in range(MESSAGES):
                channel, tag = next_delivery(session)
                session.send(method(channel, 60, 80, struct.pack(">QB", tag, 0)))
        with taking(row, "close the connection, s"):
            session.close()
            while publisher.call(50, 10, b"\0\0" + short("growth") + b"\1" + bytes(4))[-4:] != bytes(4):
                time.sleep(0.01)
        publisher.close()
    return row


def channels(count: int) -> Row:
    """Channels, a thousand per connection."""
    row: Row = {}
    with JumpMQ(arguments=["--channel-max", "2047"]) as broker:
        began = broker.memory()
        sessions = [Session(Address(broker.port)) for _ in range(-(-count // PER_CHANNEL))]
        with taking(row, "open, s"):
            for session in sessions:
                session.ask(method(number, 20, 10, short("")) for number in range(2, PER_CHANNEL + 1))
        row["resident octets of one"] = f"{(broker.memory() - began) / count:,.0f}"
        with taking(row, "close, s"):
            for session in sessions:
                session.close()
        time.sleep(2)
        row["resident after all are closed, MB"] = f"{broker.memory() / 1e6:.0f}"
    return row


SUBJECTS: dict[str, Callable[[int], Row]] = {"queues": queues, "consumers": consumers, "channels": channels}


@contextmanager
def taking(row: Row, line: str) -> Iterator[None]:
    """Note the duration of the block."""
    began = time.perf_counter()
    yield
    row[line] = f"{time.perf_counter() - began:.2f}"


def next_delivery(session: Session) -> tuple[int, int]:
    """Read a delivery of three frames. Return its channel and its delivery tag."""
    while session.filled < FRAME.size + 5 or session.filled < FRAME.size + 5 + session.buffer[FRAME.size + 4] + 8:
        session.fill()
    channel = FRAME.unpack_from(session.buffer)[1]
    (tag,) = struct.unpack_from(">Q", session.buffer, FRAME.size + 5 + session.buffer[FRAME.size + 4])
    session.read(3)
    return channel, tag


def get(broker: JumpMQ, path: str) -> Any:
    """Return the JSON answer of the management API."""
    request = urllib.request.Request(f"http://127.0.0.1:{broker.http_port}{path}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
