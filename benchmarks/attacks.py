"""Latency of a bystander's messages while another client attacks the broker.

    python -m benchmarks.attacks [--seconds N] [--only NAME ...]

Each attack runs for N seconds, in a process of its own. A probe sends a message through the broker and waits for its
delivery, repeatedly. Printed are the number of repetitions of the attack, and the median, 99.9th percentile and maximum
of the probe's latency, in milliseconds. Time in which broker and probe waited for a processor is subtracted, so that
other load on the machine does not count. The first line is the baseline without an attack.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import socket
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe

import requests

from benchmarks.load.client import BODY, HEADER, Address, Connection, LoadError, frame, method, short
from benchmarks.stalls import probe
from jumpmq.testing import HOST, JumpMQ

GUEST = ("guest", "guest")
REGEX = "(.|.|.|.|.|.|.|.)*!"
PATTERNS, WORDS = 300, 127
HEADER_BINDINGS, RUN = 1000, 3000
FANOUT = 500
INVENTED = 700
SILENT, FILES = 160, 128
LARGEST = 16 << 20


class Clock:
    """Deadline of an attack.

    Attributes:
        until: end of the attack, by the monotonic clock.
    """

    until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the end of the attack."""
        return max(0.0, self.until - time.monotonic())

    @property
    def goes_on(self) -> bool:
        return self.left > 0


Attack = Callable[[JumpMQ, Clock], Iterator[None]]
"""A generator: sets up until the first yield, then attacks once per iteration until the deadline."""


def nothing(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    yield
    while clock.goes_on:
        time.sleep(0.1)
        yield


def regex_listing(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Request a list with a regular expression of exponential backtracking."""
    session, url = _session(), f"http://{HOST}:{broker.http_port}/api/exchanges"
    yield
    while clock.goes_on:
        session.get(url, params={"page": "1", "use_regex": "true", "name": REGEX}, timeout=60)
        yield


def regex_policy(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Set a policy with a regular expression of exponential backtracking."""
    session, url = _session(), f"http://{HOST}:{broker.http_port}/api/policies/%2F/hostile"
    yield
    while clock.goes_on:
        session.put(url, json={"pattern": REGEX, "definition": {"max-length": 5}}, timeout=60)
        yield
    session.delete(url)


def topic_patterns(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Match messages of 127 words with 300 patterns of 127 words, `a`, `*` and `#` in turn."""
    connection = Connection(Address(broker.port))
    connection.declare_exchange("hostile.topic", "topic")
    connection.declare_queue("hostile.q")
    for number in range(PATTERNS):
        words = ["a*#"[(number >> place % 9 & 1) + (place + number) % 2] for place in range(WORDS)]
        connection.bind("hostile.q", "hostile.topic", ".".join([*words[:-2], f"b{number}"]))
    yield
    yield from _publish(connection, "hostile.topic", ".".join("a" * WORDS), b"", 1, clock)
    connection.delete_exchange("hostile.topic")
    connection.delete_queue("hostile.q")


def header_bindings(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Match batches of 3,000 messages with 1,000 header bindings."""
    connection = Connection(Address(broker.port))
    connection.declare_exchange("hostile.headers", "headers")
    connection.declare_queue("hostile.q")
    for number in range(HEADER_BINDINGS):
        table = _table({"x-match": "all", "k": "v", "n": str(number)})
        connection.call(50, 20, b"\0\0" + short("hostile.q") + short("hostile.headers") + short("") + b"\0" + table)
    properties = b"\x20\x00" + _table({"k": "v", "n": "none"})
    yield
    yield from _publish(connection, "hostile.headers", "", properties, RUN, clock)
    connection.delete_exchange("hostile.headers")
    connection.delete_queue("hostile.q")


def fanout(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Publish batches of messages to an exchange with 500 queues."""
    connection = Connection(Address(broker.port))
    connection.declare_exchange("hostile.fanout", "fanout")
    queues = [f"hostile.q{number}" for number in range(FANOUT)]
    for queue in queues:
        table = struct.pack(">I", 17) + short("x-max-length") + b"I" + struct.pack(">i", 10)
        connection.call(50, 10, b"\0\0" + short(queue) + b"\0" + struct.pack(">I", len(table) - 4) + table[4:])
        connection.bind(queue, "hostile.fanout", "")
    yield
    yield from _publish(connection, "hostile.fanout", "", b"", 100, clock)
    connection.delete_exchange("hostile.fanout")
    for queue in queues:
        connection.delete_queue(queue)


def invented_users(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Log in with 700 clients at once, as unknown users."""
    yield
    while clock.goes_on:
        with contextlib.ExitStack() as stack:
            for number in range(INVENTED):
                client = stack.enter_context(socket.create_connection((HOST, broker.port), timeout=60))
                client.sendall(b"AMQP\x00\x00\x09\x01" + _start_ok(f"invented-{number}", "x"))
            time.sleep(min(2.0, clock.left))
        yield


def bad_logins(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Guess guest's password over both ports, while guest logs in with the correct password."""
    yield
    while clock.goes_on:
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                client = stack.enter_context(socket.create_connection((HOST, broker.port), timeout=60))
                client.sendall(b"AMQP\x00\x00\x09\x01" + _start_ok("guest", "wrong"))
            Connection(Address(broker.port)).close()
            url = f"http://{HOST}:{broker.http_port}/api/whoami"
            assert requests.get(url, auth=GUEST, timeout=60).status_code == 200
            assert requests.get(url, auth=("guest", "wrong"), timeout=60).status_code == 401
        yield


def silent_sockets(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Open 160 silent connections to the management port of a broker with 128 file descriptors."""
    yield
    while clock.goes_on:
        with contextlib.ExitStack() as stack:
            for _ in range(SILENT):
                stack.enter_context(socket.create_connection((HOST, broker.http_port), timeout=60))
            time.sleep(min(1.0, clock.left))
            url = f"http://{HOST}:{broker.http_port}/api/whoami"
            assert requests.get(url, auth=GUEST, timeout=60).status_code == 200
        yield


def long_json(broker: JumpMQ, clock: Clock) -> Iterator[None]:
    """Import definitions of 16 MB, with very many small values."""
    session, url = _session(), f"http://{HOST}:{broker.http_port}/api/definitions"
    octets = json.dumps({"queues": [[]] * (LARGEST // 4 - 10)}).encode()[:LARGEST]
    yield
    while clock.goes_on:
        session.post(url, data=octets, headers={"Content-Type": "application/json"}, timeout=60)
        yield


ATTACKS: dict[str, Attack] = {
    one.__name__: one
    for one in (
        *(nothing, regex_listing, regex_policy, topic_patterns, header_bindings, fanout),
        *(invented_users, bad_logins, silent_sockets, long_json),
    )
}
CONFINED = {"silent_sockets"}
"""Attacks on a broker with a low limit of open files."""


def _session() -> requests.Session:
    session = requests.Session()
    session.auth = GUEST
    return session


def _table(values: dict[str, str]) -> bytes:
    fields = b"".join(
        short(name) + b"S" + struct.pack(">I", len(text)) + text.encode() for name, text in values.items()
    )
    return struct.pack(">I", len(fields)) + fields


def _start_ok(user: str, password: str) -> bytes:
    secret = f"\0{user}\0{password}".encode()
    return method(
        0, 10, 11, struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", len(secret)) + secret + short("en_US")
    )


def _publish(
    connection: Connection, exchange: str, key: str, properties: bytes, run: int, clock: Clock
) -> Iterator[None]:
    """Publish batches of messages, each after the broker has read the previous batch."""
    header = struct.pack(">HHQ", 60, 0, 1) + (properties or b"\0\0")
    publish = method(1, 60, 40, b"\0\0" + short(exchange) + short(key) + b"\0")
    octets = (publish + frame(HEADER, 1, header) + frame(BODY, 1, b"x")) * run
    while clock.goes_on:
        connection.send(octets)
        connection.prefetch(0)  # answered after all earlier frames are processed
        yield


class Confined(JumpMQ):
    """A broker limited to 128 open files."""

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        super()._launch(["prlimit", f"--nofile={FILES}:{FILES}", *command], environment)


def run(name: str, seconds: float) -> None:
    """Run one attack on a new broker, and print its line."""
    with (Confined if name in CONFINED else JumpMQ)() as broker:
        here, there = multiprocessing.Pipe()
        probing = multiprocessing.Process(target=probe, args=(broker.port, there, broker.pid), daemon=True)
        probing.start()
        hit, told = multiprocessing.Pipe()
        attacking = multiprocessing.Process(target=_attack, args=(name, broker, seconds, told))
        attacking.start()
        hit.recv()  # set up
        here.send(None)
        here.recv()
        hit.send(None)
        count = hit.recv()
        here.send(None)
        taken = sorted(here.recv())
        attacking.join()
        probing.terminate()
        probing.join()
    quantiles = (taken[len(taken) // 2], taken[int(len(taken) * 0.999)], taken[-1])
    shown = " ".join(f"{1000 * one:10.2f}" for one in quantiles)
    print(f"{name:18} {count:6} {len(taken):8} {shown}", flush=True)


def _attack(name: str, broker: JumpMQ, seconds: float, pipe: Pipe) -> None:
    """Set up an attack, report to the pipe, attack on a message of the pipe, and report the number of repetitions."""
    clock = Clock()
    made = ATTACKS[name](broker, clock)
    next(made)
    pipe.send(None)
    pipe.recv()
    clock.until = time.monotonic() + seconds
    with contextlib.suppress(LoadError):
        pipe.send(sum(1 for _ in made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each attack")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=ATTACKS, default=list(ATTACKS))
    options = parser.parse_args()
    print(f"{'attack':18} {'made':>6} {'probes':>8} {'p50 ms':>10} {'p99.9 ms':>10} {'longest ms':>10}")
    for name in options.only:
        run(name, options.seconds)


if __name__ == "__main__":
    main()
