"""Expiry next to RabbitMQ: messages that expire into another queue, and a ladder of retries.

    python -m benchmarks.expiry [-n MESSAGES] [--seconds SECONDS]

``expire``: transient messages of 100 octets, each with an ``expiration`` of its own, are published to a queue with a
dead-letter queue: messages per second, from the first publish until all are dead-lettered. ``ladder``: a thousand
messages per second pass five queues with a TTL of 10 ms, each the dead-letter queue of the previous: milliseconds from
sending to receiving behind the last queue, beyond the 50 ms of the TTLs. ``delay``, of JumpMQ alone, as RabbitMQ needs
a plugin: messages pass an exchange of type ``x-delayed-message`` into a queue, each with a delay of its own; delayed
messages are on disk, in either delivery mode.
"""

from __future__ import annotations

import argparse
import struct
import threading
import time

import requests

from benchmarks.load.client import BODY, HEADER, Address, Connection, frame, method, short
from jumpmq.testing import HOST, BrokerProcess, JumpMQ, installed

BLOCK = 500
EXPIRATION, HEADERS = 1 << 8, 1 << 13
"""Flags of the two properties."""
STEPS, STEP_MS = 5, 10
MARK = b"\xfe\xfdsent at"
SENT = struct.Struct(">d")


def declare(broker: BrokerProcess, name: str, **arguments: object) -> None:
    url = f"http://{HOST}:{broker.http_port}/api/queues/%2F/{name}"
    body = {"durable": True, "arguments": {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}}
    requests.put(url, json=body, auth=("guest", "guest"), timeout=30).raise_for_status()


def publication(queue: str, octets: bytes, expiration: str = "") -> bytes:
    """The frames of a transient message."""
    properties = struct.pack(">H", EXPIRATION) + short(expiration) if expiration else bytes(2)
    publish = method(1, 60, 40, b"\0\0" + short("") + short(queue) + b"\0")
    header = struct.pack(">HHQ", 60, 0, len(octets)) + properties
    return publish + frame(HEADER, 1, header) + frame(BODY, 1, octets)


def expire(broker: BrokerProcess, count: int) -> float:
    """Messages per second."""
    declare(broker, "grave")
    declare(broker, "dying", dead_letter_exchange="", dead_letter_routing_key="grave")
    connection = Connection(Address(broker.port))
    octets = bytes(100)
    blocks = [
        b"".join(publication("dying", octets, str(100 + (start + place) // 1000)) for place in range(BLOCK))
        for start in range(0, count, BLOCK)
    ]
    began = time.perf_counter()
    for block in blocks:
        connection.send(block)
    while connection.count("grave") < count:
        time.sleep(0.02)
    return count / (time.perf_counter() - began)


def delayed(queue: str, octets: bytes, delay: int) -> bytes:
    """The frames of a message to the exchange ``later``."""
    table = short("x-delay") + b"I" + struct.pack(">i", delay)
    properties = struct.pack(">HI", HEADERS, len(table)) + table
    publish = method(1, 60, 40, b"\0\0" + short("later") + short(queue) + b"\0")
    return publish + frame(HEADER, 1, struct.pack(">HHQ", 60, 0, len(octets)) + properties) + frame(BODY, 1, octets)


def delay(broker: BrokerProcess, count: int) -> float:
    """Messages per second."""
    declare(broker, "due")
    url, auth = f"http://{HOST}:{broker.http_port}/api", ("guest", "guest")
    body = {"type": "x-delayed-message", "durable": True, "arguments": {"x-delayed-type": "direct"}}
    requests.put(f"{url}/exchanges/%2F/later", json=body, auth=auth, timeout=30).raise_for_status()
    binding = f"{url}/bindings/%2F/e/later/q/due"
    requests.post(binding, json={"routing_key": "due"}, auth=auth, timeout=30).raise_for_status()
    connection, octets = Connection(Address(broker.port)), bytes(100)
    blocks = [
        b"".join(delayed("due", octets, 100 + (start + place) // 1000) for place in range(BLOCK))
        for start in range(0, count, BLOCK)
    ]
    began = time.perf_counter()
    for block in blocks:
        connection.send(block)
    while connection.count("due") < count:
        time.sleep(0.02)
    return count / (time.perf_counter() - began)


def ladder(broker: BrokerProcess, seconds: float) -> list[float]:
    """Milliseconds per message beyond the sum of the TTLs, sorted."""
    declare(broker, "top")
    for step in range(STEPS):
        target = f"step-{step + 1}" if step + 1 < STEPS else "top"
        arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": target, "message_ttl": STEP_MS}
        declare(broker, f"step-{step}", **arguments)
    sender, receiver = Connection(Address(broker.port)), Connection(Address(broker.port))
    receiver.consume("top", auto_ack=True)
    count = int(seconds * 1000)
    late: list[float] = []
    reading = threading.Thread(target=_receive, args=(receiver, count, late))
    reading.start()
    began = time.monotonic()
    for number in range(count):
        wait = began + number / 1000 - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        sender.send(publication("step-0", MARK + SENT.pack(time.monotonic())))
    reading.join()
    return sorted(late)


def _receive(connection: Connection, count: int, late: list[float]) -> None:
    while len(late) < count:
        octets, now, at = bytes(connection.buffer[: connection.filled]), time.monotonic(), 0
        while (found := octets.find(MARK, at)) >= 0 and found + len(MARK) + SENT.size <= len(octets):
            at = found + len(MARK) + SENT.size
            late.append(1000 * (now - SENT.unpack_from(octets, at - SENT.size)[0]) - STEPS * STEP_MS)
        connection.discard(at)
        if len(late) < count:
            connection.fill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1_000_000, help="messages that expire")
    parser.add_argument("--seconds", type=float, default=10, help="how long the ladder is fed")
    options = parser.parse_args()
    print(f"{'broker':10} {'expire/s':>10} {'delay/s':>10} {'ladder p50 ms':>14} {'p99 ms':>8}")
    for kind in installed():
        with kind() as broker:
            late = ladder(broker, options.seconds)
            rate = expire(broker, options.n)
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            later = f"{delay(broker, options.n):,.0f}" if isinstance(broker, JumpMQ) else "-"
            print(f"{broker.name:10} {rate:10,.0f} {later:>10} {p50:14.1f} {p99:8.1f}", flush=True)


if __name__ == "__main__":
    main()
