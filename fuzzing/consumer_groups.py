"""Kills, stops and adds members of a consumer group, each a process, and checks what every one of them got.

    python -m fuzzing.consumer_groups --seconds 600
    python -m fuzzing.consumer_groups --seconds 600 --clients pika aio-pika java amqplib --kill-broker
    python -m fuzzing.consumer_groups --seconds 600 --workers 3 --change-rings --kill-workers

The group is on a hash exchange of streams and of queues that have slots or none, with ``--workers`` spread over the
processes of a broker. Clients write what they get, and what they are about to acknowledge, to one file, whose order is
that in which it happened. What is found: a message that is lost, a key out of order, a key at two members at once. The
exit status is 1 then. With ``--change-rings`` no queue is a stream, and queues are bound, unbound and given other
weights meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pika
from tests.broker.consumer_groups.checker import Checker

from jumpmq.testing import JumpMQ, children

MEMBERS, KEYS = 4, 50
QUEUES: list[dict[str, Any]] = [
    {},
    {"x-slots": 8},
    {"x-slots": 8},
    {"x-queue-type": "stream"},
    {"x-queue-type": "stream"},
]
RING = [{}, {"x-slots": 8}, {}, {"x-slots": 8, "x-in-flight-per-slot": 1}] * 2
"""The queues that are bound and unbound by turns."""

PATIENCE = 120.0
"""Seconds for what is left to be consumed at the end."""


PROGRAMS = Path(__file__).parent / "members"
JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]

Command = Callable[[Path], list[str]]
"""What runs a member, before its arguments: of a folder in which Java's is compiled."""

CLIENTS: dict[str, Command] = {
    "pika": lambda _: [sys.executable, str(PROGRAMS / "member_pika.py")],
    "aio-pika": lambda _: [sys.executable, str(PROGRAMS / "member_aio_pika.py")],
    "java": lambda folder: ["java", "-cp", os.pathsep.join(map(str, (folder, *JARS))), "Member"],
    "amqplib": lambda _: ["node", str(PROGRAMS / "member.js")],
}


def installed() -> list[str]:
    """The clients that this machine has."""
    modules = Path("/usr/lib/node_modules")
    has_java = shutil.which("javac") is not None and all(jar.exists() for jar in JARS)
    has_node = shutil.which("node") is not None and (modules / "amqplib").is_dir()
    return ["pika", "aio-pika", *(["java"] if has_java else []), *(["amqplib"] if has_node else [])]


class Members:
    """Processes that are members of the group.

    Attributes:
        all: those that were started and not killed, by name.
        port: of the broker.
    """

    def __init__(self, port: int, log: Path, commands: list[list[str]]) -> None:
        self.all: dict[str, subprocess.Popen[bytes]] = {}
        self.port = port
        self._log, self._commands = log, commands
        self._written = os.open(log, os.O_WRONLY | os.O_APPEND)
        self._started = 0
        self._wake_at: dict[str, float] = {}
        self._environment = os.environ | {"NODE_PATH": "/usr/lib/node_modules"}

    def fill(self) -> None:
        """Start members in place of those that are gone."""
        for name in [name for name, process in self.all.items() if process.poll() is not None]:
            self.end(name)
        while len(self.all) < MEMBERS:
            name, command = f"m{self._started}", self._commands[self._started % len(self._commands)]
            self._started += 1
            arguments = [*command, f"amqp://guest:guest@127.0.0.1:{self.port}/%2F", name, str(self._log)]
            self.all[name] = subprocess.Popen(arguments, env=self._environment, stderr=subprocess.DEVNULL)

    def stop(self, name: str, seconds: float) -> None:
        """Have one do nothing for so long."""
        self._wake_at[name] = time.monotonic() + seconds
        self.all[name].send_signal(signal.SIGSTOP)

    def wake(self, now: float) -> None:
        """Have those go on whose time is over."""
        for name in [name for name, until in self._wake_at.items() if until <= now]:
            del self._wake_at[name]
            self.all[name].send_signal(signal.SIGCONT)

    def hit(self, chance: random.Random) -> None:
        """Stop or kill one."""
        name = chance.choice(list(self.all))
        if name not in self._wake_at and chance.random() < 0.5:
            self.stop(name, chance.random() * 2)
        else:
            self.end(name)

    def gone(self) -> None:
        """What they hold may come to others from now on."""
        for name in self.all:
            os.write(self._written, f"gone {name}\n".encode())

    def end(self, name: str) -> None:
        """Kill one."""
        self._wake_at.pop(name, None)
        os.write(self._written, f"gone {name}\n".encode())
        process = self.all.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all."""
        for name in list(self.all):
            self.end(name)
        os.close(self._written)


def replay(log: Path, published: dict[str, int], unconfirmed: Sequence[tuple[str, int]] = ()) -> Checker:
    """What the log says."""
    checker = Checker()
    checker.published.update(published)
    for key, number in unconfirmed:
        checker.may_go(key, number)
    for line in log.read_text().splitlines():
        match line.split():
            case "got", name, tag, key, number, redelivered:
                checker.delivered(name, int(tag), key, int(number), redelivered == "1")
            case "ack", name, tag:
                checker.acknowledge(name, int(tag))
            case "gone", name:
                checker.gone(name)
    return checker


def _channel(port: int) -> Any:
    channel = pika.BlockingConnection(pika.ConnectionParameters(port=port)).channel()
    channel.confirm_delivery()
    return channel


def _declare(channel: Any, change_rings: bool) -> None:
    ordered = {"ordered-scaling": True} if change_rings else {}
    channel.exchange_declare("orders", "x-consistent-hash", durable=True, arguments=ordered)
    for number, arguments in enumerate(RING if change_rings else QUEUES):
        placed = {"x-queue-leader-locator": "balanced", **arguments}
        channel.queue_declare(f"orders-{number}", durable=True, arguments=placed)
        channel.queue_bind(f"orders-{number}", "orders", "1")


class _Ring:
    """Changes the weights of queues, 0 of which is unbound."""

    def __init__(self) -> None:
        self._weights = dict.fromkeys(range(len(RING)), 1)

    def change(self, channel: Any, chance: random.Random) -> None:
        """Change one; a queue stays bound."""
        number = chance.choice(list(self._weights))
        weight = chance.choice([0, 1, 2])
        bound = [one for one, has in self._weights.items() if has]
        if weight == self._weights[number] or (not weight and bound == [number]):
            return
        if before := self._weights[number]:
            channel.queue_unbind(f"orders-{number}", "orders", str(before))
        if weight:
            channel.queue_bind(f"orders-{number}", "orders", str(weight))
        self._weights[number] = weight


def run(
    seconds: float,
    seed: int,
    workers: int,
    clients: Sequence[str] = ("pika",),
    *,
    interval: float = 0.5,
    kill_broker: bool = False,
    kill_workers: bool = False,
    change_rings: bool = False,
) -> Checker:
    """Use a broker for so long.

    Args:
        interval: seconds between two blows, about.
        kill_broker, kill_workers: whether it is killed as a whole, or a process of it.
        change_rings: whether queues are bound and unbound.
    """
    chance = random.Random(seed)
    published: dict[str, int] = {}
    persistent = pika.BasicProperties(delivery_mode=2)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        folder = Path(directory)
        if "java" in clients:
            jars = os.pathsep.join(map(str, JARS))
            subprocess.run(["javac", "-cp", jars, "-d", directory, str(PROGRAMS / "Member.java")], check=True)
        broker = ends.enter_context(JumpMQ(data_dir=folder / "data", arguments=("--workers", str(workers))))
        log = folder / "log"
        log.touch()
        channel = _channel(broker.port)
        _declare(channel, change_rings)
        ring, unconfirmed = _Ring(), []
        members = Members(broker.port, log, [CLIENTS[name](folder) for name in clients])
        ends.callback(members.close)
        now = time.monotonic()
        ends_at, hit_at = now + seconds, now + interval
        kill_at = now + 10 * interval if kill_broker or kill_workers else float("inf")
        change_at = now + interval if change_rings else float("inf")
        while (now := time.monotonic()) < ends_at:
            members.fill()
            members.wake(now)
            if now >= kill_at:
                members.gone()
                if kill_workers and (found := children(broker.pid)):
                    os.kill(chance.choice(found), signal.SIGKILL)
                else:
                    broker.kill()
                    broker.start()
                    members.port = broker.port
                    channel = _channel(broker.port)
                kill_at = time.monotonic() + (5 + 15 * chance.random()) * interval
            try:
                if now >= change_at:
                    ring.change(channel, chance)
                    change_at = now + 2 * chance.random() * interval
                key = str(chance.randrange(KEYS))
                published[key] = published.get(key, 0) + 1
                channel.basic_publish("orders", key, f"{key} {published[key]}".encode(), persistent)
            except (pika.exceptions.AMQPError, OSError):
                unconfirmed.append((key, published[key]))
                channel = _channel(broker.port)
            if now >= hit_at:
                members.hit(chance)
                hit_at = now + 2 * chance.random() * interval
        members.wake(float("inf"))
        ends_at = time.monotonic() + PATIENCE
        while (checker := replay(log, published, unconfirmed)).left and time.monotonic() < ends_at:
            members.fill()
            time.sleep(0.5)
    return checker


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=installed(), help="those that are installed")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between two blows, about")
    parser.add_argument("--kill-broker", action="store_true", help="and start it again")
    parser.add_argument("--kill-workers", action="store_true", help="a process of it by turns")
    parser.add_argument("--change-rings", action="store_true", help="bind and unbind queues meanwhile")
    given = parser.parse_args()
    checker = run(
        given.seconds,
        given.seed,
        given.workers,
        given.clients,
        interval=given.interval,
        kill_broker=given.kill_broker,
        kill_workers=given.kill_workers,
        change_rings=given.change_rings,
    )
    for fault in checker.faults:
        print(fault)
    print(f"{sum(checker.published.values())} messages, {checker.left} lost, {len(checker.faults)} faults")
    return int(bool(checker.left or checker.faults))


if __name__ == "__main__":
    sys.exit(main())
