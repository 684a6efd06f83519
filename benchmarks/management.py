"""The management API of a broker with 10,000 queues: duration of a list, and latency of messages meanwhile.

Prints the time of ``GET /api/queues``, the maximum latency of a message, alone and during requests for lists, and the
time of a policy that makes 1,000 shards: milliseconds, the median of five.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pika
import requests

from jumpmq.testing import HOST, JumpMQ

QUEUES = 10_000
SHARDS = 1_000
ROUNDS = 5


def main() -> None:
    with JumpMQ() as broker, requests.Session() as session:
        session.auth = ("guest", "guest")
        api = f"http://{HOST}:{broker.http_port}/api"
        queues = [{"name": f"queue-{number}", "vhost": "/"} for number in range(QUEUES)]
        session.post(f"{api}/definitions", json={"queues": queues}, timeout=60).raise_for_status()
        report("GET /api/queues", lambda: elapsed(lambda: session.get(f"{api}/queues", timeout=60)))
        connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port))
        channel = connection.channel()
        report("longest message, alone", lambda: longest_message(channel, ["sleep", "1"]))
        listing = ["curl", "--silent", "--user", "guest:guest", "--output", "/dev/null", f"{api}/queues"]
        report("longest message, while a list is made", lambda: longest_message(channel, listing))
        connection.close()
        report(f"{SHARDS:,} shards by one policy", lambda: make_shards(session, api))


def report(what: str, measure: Callable[[], float]) -> None:
    print(f"{what:40} {1000 * statistics.median(measure() for _ in range(ROUNDS)):8.1f} ms", flush=True)


def elapsed(act: Callable[[], requests.Response]) -> float:
    """Duration of a request in seconds."""
    began = time.perf_counter()
    act().raise_for_status()
    return time.perf_counter() - began


def longest_message(channel: pika.adapters.blocking_connection.BlockingChannel, command: list[str]) -> float:
    """Maximum seconds from a publish to its delivery, message after message, while a command runs."""
    queue, longest = channel.queue_declare("", exclusive=True).method.queue, 0.0
    with subprocess.Popen(command) as running:
        while running.poll() is None:
            began = time.perf_counter()
            channel.basic_publish("", queue, b"x")
            while channel.basic_get(queue, auto_ack=True)[0] is None:
                pass
            longest = max(longest, time.perf_counter() - began)
    if running.returncode:
        sys.exit(f"{command[0]} failed")
    return longest


def make_shards(session: requests.Session, api: str) -> float:
    """Seconds until a policy has made the shards of a new exchange."""
    name = f"sharded-{time.monotonic_ns()}"
    session.put(f"{api}/exchanges/%2F/{name}", json={"type": "x-modulus-hash"}, timeout=60).raise_for_status()
    policy = {"pattern": f"^{name}$", "definition": {"shards-per-node": SHARDS}}
    return elapsed(lambda: session.put(f"{api}/policies/%2F/{name}", json=policy, timeout=60))


if __name__ == "__main__":
    main()
