"""Kills, stops and adds members of a consumer group, each a process, and checks what every one of them got.

    python -m fuzzing.consumer_groups --seconds 600

The group is on a hash exchange of streams and of queues that have slots or none, with ``--workers`` spread over the
processes of a broker. Clients write what they get, and what they are about to acknowledge, to one file, whose order is
that in which it happened. What is found: a message that is lost, a key out of order, a key at two members at once. The
exit status is 1 then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pika
from tests.broker.consumer_groups.checker import Checker

from jumpmq.testing import JumpMQ

MEMBERS, KEYS = 4, 50
QUEUES: list[dict[str, Any]] = [
    {},
    {"x-slots": 8},
    {"x-slots": 8},
    {"x-queue-type": "stream"},
    {"x-queue-type": "stream"},
]
PATIENCE = 60.0
"""Seconds for what is left to be consumed at the end."""


def consume(port: int, name: str, log: Path) -> None:
    """Be a member until killed."""
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    channel = pika.BlockingConnection(pika.ConnectionParameters(port=port)).channel()
    channel.basic_qos(prefetch_count=20)

    def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
        os.write(written, f"got {name} {method.delivery_tag} {body.decode()} {int(method.redelivered)}\n".encode())
        if random.random() < 0.1:
            time.sleep(0.01)
        os.write(written, f"ack {name} {method.delivery_tag}\n".encode())
        channel.basic_ack(method.delivery_tag)

    arguments = {"x-consumer-group": "g", "x-rebalance-delay": 50, "x-stream-offset": "first"}
    channel.basic_consume("orders", on_message, arguments=arguments)
    channel.start_consuming()


def replay(log: Path, published: dict[str, int]) -> Checker:
    """What the log says."""
    checker = Checker()
    checker.published.update(published)
    for line in log.read_text().splitlines():
        match line.split():
            case "got", name, tag, key, number, redelivered:
                checker.delivered(name, int(tag), key, int(number), redelivered == "1")
            case "ack", name, tag:
                checker.acknowledge(name, int(tag))
            case "gone", name:
                checker.gone(name)
    return checker


def run(seconds: float, seed: int, workers: int) -> Checker:
    """Use a broker for so long."""
    chance, context = random.Random(seed), multiprocessing.get_context("spawn")
    published: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory, JumpMQ(arguments=("--workers", str(workers))) as broker:
        log = Path(directory) / "log"
        log.touch()
        written = os.open(log, os.O_WRONLY | os.O_APPEND)
        channel = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)).channel()
        channel.confirm_delivery()
        channel.exchange_declare("orders", "x-consistent-hash", durable=True)
        for number, arguments in enumerate(QUEUES):
            placed = {"x-queue-leader-locator": "balanced", **arguments}
            channel.queue_declare(f"orders-{number}", durable=True, arguments=placed)
            channel.queue_bind(f"orders-{number}", "orders", "1")
        members: dict[str, Any] = {}
        stopped: dict[str, float] = {}
        ends_at, started = time.monotonic() + seconds, 0
        while time.monotonic() < ends_at:
            if len(members) < MEMBERS:
                name, started = f"m{started}", started + 1
                members[name] = context.Process(target=consume, args=(broker.port, name, log), daemon=True)
                members[name].start()
            key = str(chance.randrange(KEYS))
            published[key] = published.get(key, 0) + 1
            channel.basic_publish("orders", key, f"{key} {published[key]}".encode())
            for name in [one for one, until in stopped.items() if until <= time.monotonic()]:
                del stopped[name]
                os.kill(members[name].pid, signal.SIGCONT)
            if chance.random() < 0.02:
                name = chance.choice(list(members))
                if name not in stopped and chance.random() < 0.5:
                    stopped[name] = time.monotonic() + chance.random() * 2
                    os.kill(members[name].pid, signal.SIGSTOP)
                else:
                    stopped.pop(name, None)
                    os.write(written, f"gone {name}\n".encode())
                    members.pop(name).kill()
        for name in stopped:
            os.kill(members[name].pid, signal.SIGCONT)
        ends_at = time.monotonic() + PATIENCE
        while (checker := replay(log, published)).left and time.monotonic() < ends_at:
            time.sleep(0.5)
        for member in members.values():
            member.kill()
    return checker


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    checker = run(arguments.seconds, arguments.seed, arguments.workers)
    for fault in checker.faults:
        print(fault)
    print(f"{sum(checker.published.values())} messages, {checker.left} lost, {len(checker.faults)} faults")
    return int(bool(checker.left or checker.faults))


if __name__ == "__main__":
    sys.exit(main())
