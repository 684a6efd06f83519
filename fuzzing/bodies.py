"""Sends damaged bodies to the management port of a live broker, and measures the latency of a bystander meanwhile.

    python -m fuzzing.bodies --seconds 600

The broker is a separate process. Arrow streams (:mod:`fuzzing.arrow`) and JSON are damaged, or well-formed and large,
and sent by an administrator, by a user with few permissions, and by a user with none. A bystander, another process,
publishes and gets messages, persistent and transient in turn. Failures are: a status of 500 or more, a missing answer,
a growth of more than 100 MB, a latency of the bystander of more than ``--wait`` seconds. The exit status is then 1.
Other load of the machine affects the bystander, too: its latency at an idle broker is printed first.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.queues
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import requests

from fuzzing import arrow
from jumpmq.testing import JumpMQ

GROWTH = 100_000_000
USERS = ("guest", "little", "nothing")
TALKERS = 2
SHOWN = 20
IDLE = 200
"""Number of bystander measurements before the first request."""

LARGE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "ranges/%2F", {"queues": [f"no {number}" for number in range(20_000)], "missing": True}),
    ("POST", "messages/%2F", {"slices": [["q", number, number + 1] for number in range(30_000)]}),
    ("POST", "readers/%2F/g/reserve", {"queues": {f"no {number}": None for number in range(20_000)}}),
    ("POST", "readers/%2F/g/open", {"query": "q", "lease": 86400}),
    ("POST", "readers/%2F/g/read", {"slices": [["q", None, number, 0, 1] for number in range(20_000)]}),
    ("POST", "readers/%2F/g/commit", {"queues": {f"no {number}": 1 for number in range(20_000)}}),
    ("PUT", "queues/%2F/j", {"durable": True, "arguments": {f"x-{number}": number for number in range(1000)}}),
    ("PUT", "policies/%2F/p", {"pattern": "(a?){1000}" * 40, "definition": {"max-length": 10}}),
    ("POST", "definitions", {f"key {number}": number for number in range(400_000)}),
    ("POST", "exchanges/%2F/amq.default/publish", {"routing_key": "q", "payload": "x" * 900_000, "properties": {}}),
    ("GET", "queues?page=1&use_regex=true&name=" + "(a?){30}" * 20, {}),
)


def damaged_json(rng: random.Random) -> tuple[str, str, bytes]:
    """A request with JSON, mostly damaged."""
    verb, path, body = rng.choice(LARGE)
    octets = bytearray(json.dumps(body).encode())
    if rng.random() < 0.3:
        del octets[rng.randrange(len(octets)) :]
    for _ in range(rng.choice((0, 0, 1, 2, 5, 50))):
        if octets:
            place = rng.randrange(len(octets))
            octets[place : place + 1] = rng.choice((b"", b'"', b"{", b"[", b"\\u", b"-1", b"1e999", rng.randbytes(2)))
    return verb, path, bytes(octets)


def large_stream(rng: random.Random) -> bytes:
    """Return a stream at or beyond a limit."""
    rows = rng.choice((20_000, 100_000, 100_001))
    key, body = rng.choice((b"q", b"lost", rng.randbytes(20))), rng.randbytes(rng.choice((0, 20, 300)))
    columns = {"routing_key": pa.repeat(pa.scalar(key, pa.binary()), rows)}
    columns["body"] = pa.repeat(pa.scalar(body, pa.binary()), rows)
    batch = pa.record_batch(columns)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    found: bytes = out.getvalue().to_pybytes()
    return found


class Run:
    """A run on a broker.

    Attributes:
        found: failures, in words.
        statuses: number of answers by status.
        waits: latencies of the bystander's messages in seconds, by delivery mode.
        slow: descriptions of excessive latencies.
    """

    def __init__(self, broker: JumpMQ, seed: int, wait: float) -> None:
        self.found: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.waits: dict[int, list[float]] = {1: [], 2: []}
        self.slow: list[str] = []
        self._wait = wait
        self._asked: dict[int, str] = {}
        self._broker = broker
        self._seed = seed
        self._over = threading.Event()

    def go(self, seconds: float) -> None:
        """Send damaged bodies for the given seconds."""
        self._make_users()
        context = multiprocessing.get_context("spawn")
        waits: multiprocessing.queues.Queue[tuple[int, float] | None] = context.Queue()
        left = context.Event()
        bystander = context.Process(target=stand_by, args=(self._broker.port, waits, left))
        bystander.start()
        listener = threading.Thread(target=self._listen, args=(waits,))
        listener.start()
        while len(self.waits[1]) < IDLE:
            time.sleep(0.1)
        print(f"idle: {self.described()}", flush=True)
        self.waits, self.slow = {1: [], 2: []}, []
        threads = [threading.Thread(target=self._talk, args=(number,)) for number in range(TALKERS)]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 5)
        before = self._broker.memory()
        self._over.wait(seconds * 4 / 5)
        self._over.set()
        for thread in threads:
            thread.join()
        left.set()
        listener.join()
        bystander.join()
        time.sleep(1)
        after = self._broker.memory()
        print(f"memory: {before / 1e6:.0f} MB after a fifth of the time, {after / 1e6:.0f} MB at the end")
        if after - before > GROWTH:
            self.found.append(f"memory grew by {(after - before) / 1e6:.0f} MB")

    def described(self) -> str:
        """The bystander's latencies in words."""
        found = []
        for mode, kind in ((1, "transient"), (2, "persistent")):
            waits = sorted(self.waits[mode])
            middle, late = waits[len(waits) // 2], waits[int(len(waits) * 0.999)]
            found.append(f"{len(waits)} {kind}: median {middle:.4f} s, 99.9 % {late:.3f} s, longest {waits[-1]:.3f} s")
        return "; ".join(found)

    def _listen(self, waits: multiprocessing.queues.Queue[tuple[int, float] | None]) -> None:
        while (wait := waits.get()) is not None:
            mode, seconds = wait
            self.waits[mode].append(seconds)
            if seconds > self._wait:
                kind = "transient" if mode == 1 else "persistent"
                self.slow.append(f"{seconds:.3f} s for a {kind} message, during {sorted(self._asked.values())}")

    def _make_users(self) -> None:
        for name in USERS[1:]:
            self._ask("guest", "PUT", f"users/{name}", b'{"password": "guest", "tags": "management"}')
            allowed = "^(q|x|amq.default)$" if name == "little" else ""
            rights = json.dumps({"configure": "", "write": allowed, "read": allowed})
            self._ask("guest", "PUT", f"permissions/%2F/{name}", rights.encode())
        definition = b'{"durable": true, "arguments": {"x-max-length": 1000}}'
        self._ask("guest", "PUT", "queues/%2F/q", definition)

    def _ask(self, user: str, verb: str, path: str, body: bytes, kind: str = "json") -> requests.Response:
        headers = {"Content-Type": "application/json" if kind == "json" else "application/vnd.apache.arrow.stream"}
        url = f"http://127.0.0.1:{self._broker.http_port}/api/{path}"
        return requests.request(verb, url, data=body, auth=(user, "guest"), headers=headers, timeout=60)

    def _talk(self, number: int) -> None:
        rng = random.Random(self._seed + number)
        while not self._over.is_set():
            user, chance = rng.choice(USERS), rng.random()
            if chance < 0.1:
                verb, path, body, kind = "POST", "messages/%2F/publish?unroutable=drop", large_stream(rng), "arrow"
            elif chance < 0.8:
                stream, query = arrow.sample(rng), rng.choice(("queue=q", "exchange=x", "unroutable=drop"))
                verb, path, kind = "POST", f"messages/%2F/publish?{query}", "arrow"
                body = arrow.damaged(stream, rng) if rng.random() < 0.9 else stream
            else:
                (verb, path, body), kind = damaged_json(rng), "json"
            self._asked[number] = f"{verb} {path[:60]} ({len(body)} octets)"
            try:
                answer = self._ask(user, verb, path, body, kind)
            except requests.RequestException as error:
                self.found.append(f"{verb} {path[:60]}: {error}")
                self._over.set()
                return
            self.statuses[answer.status_code] += 1
            if answer.status_code >= 500:
                self.found.append(f"{verb} {path[:60]}: {answer.status_code} {answer.text[:200]}")


def stand_by(port: int, waits: multiprocessing.queues.Queue[tuple[int, float] | None], over: Any) -> None:
    """Publish and get messages until the end of the run. Put delivery mode and seconds of a message, and None at
    the end.
    """
    connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/%2F?heartbeat=0"))
    channel = connection.channel()
    channel.queue_declare("bystander", durable=True)
    channel.confirm_delivery()
    mode = 2
    while not over.is_set():
        begun = time.perf_counter()
        channel.basic_publish("", "bystander", b"x", pika.BasicProperties(delivery_mode=mode))
        channel.basic_get("bystander", auto_ack=True)
        waits.put((mode, time.perf_counter() - begun))
        mode = 3 - mode
        time.sleep(0.005)
    waits.put(None)
    connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--wait", type=float, default=0.25, help="seconds that the bystander may wait")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, JumpMQ(Path(directory) / "data") as broker:
        run = Run(broker, arguments.seed, arguments.wait)
        run.go(arguments.seconds)
    print(f"seed {arguments.seed}: {run.described()}; answers {dict(sorted(run.statuses.items()))}")
    run.found += sorted(run.slow, reverse=True)[:SHOWN]
    for line in run.found:
        print(line)
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
