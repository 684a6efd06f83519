"""Requests every endpoint as every kind of user in turn, and measures the latency of a bystander meanwhile.

    python -m fuzzing.endpoints --seconds 600
    python -m fuzzing.endpoints --seconds 60 --only maker
    python -m fuzzing.endpoints --seconds 600 --workers 2

The requests are those of :mod:`fuzzing.management`, generated from the API's own description, and the large ones of
:mod:`fuzzing.bodies`. The broker, a separate process, has 2,000 queues and 4,000 bindings. A bystander publishes and
gets messages there; a second bystander at an idle broker measures the machine. Failures are: a status of 500 or more,
and a latency of more than ``--wait`` seconds, with the concurrent requests. The exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import deque

import requests

from fuzzing import bodies, management
from fuzzing.bystander import Bystander, Wait, described
from jumpmq.testing import JumpMQ

QUEUES = 2000
TALKERS = 2
LARGE = 0.05
"""Fraction of large requests."""


class Run:
    """A run on a broker.

    Attributes:
        found: failures, in words.
        counts: number of requests by user.
    """

    def __init__(self, broker: JumpMQ, idle: JumpMQ, seed: int, wait: float, queues: int) -> None:
        self.found: list[str] = []
        self.counts: dict[str, int] = {}
        self._broker = broker
        self._bystanders = [Bystander(one.port, one.pid) for one in (broker, idle)]
        self._seed = seed
        self._wait = wait
        self._queues = queues
        self._recent: deque[tuple[float, float, str]] = deque(maxlen=10_000)

    def go(self, seconds: float, users: list[str]) -> None:
        """Send requests for the given seconds as every given user."""
        port = self._broker.http_port
        management.make_users(port)
        management.read_messages(port)
        declare_many(port, self._queues)
        known = management.endpoints(port)
        for user in users:
            self._waits()
            until = time.monotonic() + seconds
            threads = [threading.Thread(target=self._talk, args=(user, n, known, until)) for n in range(TALKERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            management.put_right(port)
            waits, idle = self._waits()
            kind = management.USERS[user] or "none"
            print(
                f"{kind}: {self.counts[user]} requests; {described(waits)}; idle broker: {described(idle)}", flush=True
            )
            self._check(waits)
        for one in self._bystanders:
            one.leave()

    def _waits(self) -> list[list[Wait]]:
        return [one.waits() for one in self._bystanders]

    def _check(self, waits: list[Wait]) -> None:
        for one in waits:
            if one.seconds > self._wait:
                meanwhile = {what for began, ended, what in self._recent if began < one.ended and ended > one.began}
                self.found.append(
                    f"{one.seconds:.3f} s (and {one.stolen:.3f} s without a processor) during {meanwhile}"
                )

    def _talk(self, user: str, number: int, known: list[tuple[str, str, list[str]]], until: float) -> None:
        port, count = self._broker.http_port, 0
        while time.monotonic() < until:
            chance = random.Random(f"{self._seed}/{user}/{number}/{count}")
            count += 1
            began = time.monotonic()
            if chance.random() < LARGE:
                verb, path, body = bodies.damaged_json(chance)
                headers = {"Content-Type": "application/json"}
                url, login = f"http://127.0.0.1:{port}/api/{path}", (user, user)
                status = requests.request(verb, url, data=body, auth=login, headers=headers, timeout=60).status_code
                what = f"{verb} /api/{path[:80]} ({len(body)} octets)"
            else:
                octets = management.compose(chance, known, user)
                status = management.send(port, octets, chance)
                what = octets.partition(b"HTTP/1.1")[0].decode("latin-1")[:200]
                if management.hinders(octets):
                    management.put_right(port)
            self._recent.append((began, time.monotonic(), what))
            if status >= 500 and not (status == 503 and "/api/health/" in what):  # a failed health check
                self.found.append(f"status {status} for {what}")
            self.counts[user] = self.counts.get(user, 0) + 1


def declare_many(port: int, count: int) -> None:
    """Queues and bindings, for long lists."""
    queues = [{"name": f"fuzzed {number}", "vhost": "/", "durable": True} for number in range(count)]
    bindings = [
        {"source": source, "vhost": "/", "destination": queue["name"], "destination_type": "queue", "routing_key": key}
        for queue in queues
        for source, key in (("amq.topic", f"a.{queue['name']}.#"), ("amq.direct", queue["name"]))
    ]
    definitions = json.dumps({"queues": queues, "bindings": bindings})
    url = f"http://127.0.0.1:{port}/api/definitions"
    headers = {"Content-Type": "application/json"}
    requests.post(url, definitions, auth=("guest", "guest"), headers=headers, timeout=60).raise_for_status()


def fuzz(
    seconds: float, seed: int, users: list[str], wait: float = 0.25, queues: int = QUEUES, workers: int = 1
) -> Run:
    """Fuzz a new broker with the given number of processes, for the given seconds per user."""
    with JumpMQ(arguments=["--workers", str(workers)]) as broker, JumpMQ() as idle:
        run = Run(broker, idle, seed, wait, queues)
        run.go(seconds, users)
        return run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=100, help="of all users together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--wait", type=float, default=0.25, help="seconds that the bystander may wait")
    parser.add_argument("--only", choices=management.USERS, help="one user")
    parser.add_argument("--workers", type=int, default=1, help="processes of the broker")
    arguments = parser.parse_args()
    users = [arguments.only] if arguments.only else list(management.USERS)
    run = fuzz(arguments.seconds / len(users), arguments.seed, users, arguments.wait, workers=arguments.workers)
    print(f"seed {arguments.seed}: {len(run.found)} found")
    print("\n".join(run.found))
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
