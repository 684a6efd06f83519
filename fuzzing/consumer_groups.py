"""Kills, stops and adds the member processes of a consumer group, and verifies all deliveries.

    python -m fuzzing.consumer_groups --seconds 600
    python -m fuzzing.consumer_groups --seconds 600 --clients pika aio-pika java amqplib --kill-broker
    python -m fuzzing.consumer_groups --seconds 600 --workers 3 --change-rings --kill-workers
    python -m fuzzing.consumer_groups --seconds 600 --nodes 3 --change-rings --kill-broker

The group consumes from a hash exchange of streams and of queues with and without slots: with ``--workers`` spread over
the processes of a broker, with ``--nodes`` over the nodes of a cluster. Clients write deliveries, and imminent
acknowledgements, to a common file, in order of time. Failures are: a lost message, a key out of order, a key at two
members at once. The exit status is then 1. With ``--change-rings`` no queue is a stream, and queues are bound, unbound
and given other weights meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from tests.broker.consumer_groups.checker import Checker

from jumpmq.management import ManagementClient, ManagementError
from jumpmq.ordering.verification import ONCE, Verification
from jumpmq.testing import JumpMQ, children
from jumpmq.testing.etcd import etcd

MEMBERS, KEYS = 4, 50
QUEUES: list[dict[str, Any]] = [
    {},
    {"x-slots": 8},
    {"x-slots": 8},
    {"x-queue-type": "stream"},
    {"x-queue-type": "stream"},
]
RING = [{}, {"x-slots": 8}, {}, {"x-slots": 8, "x-in-flight-per-slot": 1}] * 2
"""Arguments of the queues that are bound and unbound in turn."""

GONE = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)
"""Errors of a client after a failure of its broker."""

PATIENCE = 120.0
"""Seconds for the remaining messages at the end."""


PROGRAMS = Path(__file__).parent / "members"
JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]

Command = Callable[[Path], list[str]]
"""Returns the command of a member without its arguments, given the folder of the compiled Java classes."""

CLIENTS: dict[str, Command] = {
    "pika": lambda _: [sys.executable, str(PROGRAMS / "member_pika.py")],
    "aio-pika": lambda _: [sys.executable, str(PROGRAMS / "member_aio_pika.py")],
    "java": lambda folder: ["java", "-cp", os.pathsep.join(map(str, (folder, *JARS))), "Member"],
    "amqplib": lambda _: ["node", str(PROGRAMS / "member.js")],
}


def installed() -> list[str]:
    """The clients installed on this machine."""
    modules = Path("/usr/lib/node_modules")
    has_java = shutil.which("javac") is not None and all(jar.exists() for jar in JARS)
    has_node = shutil.which("node") is not None and (modules / "amqplib").is_dir()
    return ["pika", "aio-pika", *(["java"] if has_java else []), *(["amqplib"] if has_node else [])]


class Brokers:
    """A broker alone, or the nodes of a cluster.

    Args:
        nodes: number of nodes.
        arguments: of ``jumpmq serve``.
        ends: closes started processes.
    """

    def __init__(self, folder: Path, nodes: int, arguments: Sequence[str], ends: contextlib.ExitStack) -> None:
        if nodes > 1:
            (member,) = ends.enter_context(etcd(folder))
            arguments = (*arguments, "--cluster", "fuzzing", "--etcd", member.url)
        self._all = [JumpMQ(folder / f"data-{place}", f"node{place}@host", arguments) for place in range(nodes)]
        for broker in self._all:
            ends.enter_context(broker)
        self._next = 0
        self._killed: tuple[JumpMQ, float] | None = None  # a killed broker, and its time of restart
        self._stopped: threading.Timer | None = None  # resumes a stopped broker

    @property
    def port(self) -> int:
        """AMQP port of the brokers in turn; the broker may be down."""
        self._next += 1
        return self._all[self._next % len(self._all)].port

    def hit(self, chance: random.Random, gone: Callable[[], object]) -> None:
        """Kill a broker, restarted by :meth:`wake`, or stop it for a while. At most one broker is down.

        Args:
            gone: called when the deliveries of members may go to other members.

        Args:
            gone: called when members' deliveries may come to others.
        """
        if self._killed is not None or (self._stopped is not None and self._stopped.is_alive()):
            return
        broker = chance.choice(self._all)
        gone()
        if len(self._all) == 1 or chance.random() < 0.6:
            broker.kill()
            seconds = 0.0 if len(self._all) == 1 else chance.choice([0.0, 1.0, 8.0, 13.0])
            self._killed = broker, time.monotonic() + seconds
            if len(self._all) == 1:  # a single broker
                self.wake(float("inf"), gone)
            return
        os.kill(broker.pid, signal.SIGSTOP)
        seconds = chance.choice([0.3, 1.0, 8.0])  # nodes count as down after five seconds

        def go_on() -> None:
            gone()  # its outstanding deliveries have arrived
            os.kill(broker.pid, signal.SIGCONT)

        self._stopped = threading.Timer(seconds, go_on)
        self._stopped.start()

    def wake(self, now: float, gone: Callable[[], object]) -> None:
        """Restart a killed broker at its time."""
        if self._killed is not None and self._killed[1] <= now:
            gone()  # its outstanding deliveries have arrived
            self._killed[0].start()
            self._killed = None

    def kill_worker(self, chance: random.Random) -> None:
        """Kill a worker of a random broker."""
        if found := children(chance.choice(self._all).pid):
            os.kill(chance.choice(found), signal.SIGKILL)

    def mended(self) -> None:
        """Wait until all brokers serve."""
        if self._stopped is not None:
            self._stopped.join()
        self.wake(float("inf"), lambda: None)

    def tell(self) -> None:
        """Print the brokers' queues, ordering barriers and groups, to explain a stalled run."""
        for broker in self._all:
            api = ManagementClient(f"http://guest:guest@127.0.0.1:{broker.http_port}", 10.0)
            with contextlib.suppress(ManagementError):
                for path in ("queues", "fences", "consumer-groups"):
                    print(broker.node, path, json.dumps(api.get(path), indent=1), file=sys.stderr)
            print(broker.node, broker.log.read_text(errors="replace")[-3000:], file=sys.stderr)


class Members:
    """Member processes of the group.

    Attributes:
        all: running processes, by name.
    """

    def __init__(self, brokers: Brokers, log: Path, commands: list[list[str]]) -> None:
        self.all: dict[str, subprocess.Popen[bytes]] = {}
        self._brokers = brokers
        self._log, self._commands = log, commands
        self._written = os.open(log, os.O_WRONLY | os.O_APPEND)
        self._started = 0
        self._wake_at: dict[str, float] = {}
        self._environment = os.environ | {"NODE_PATH": "/usr/lib/node_modules"}

    def fill(self) -> None:
        """Start replacements of ended members."""
        for name in [name for name, process in self.all.items() if process.poll() is not None]:
            self.end(name)
        while len(self.all) < MEMBERS:
            name, command = f"m{self._started}", self._commands[self._started % len(self._commands)]
            self._started += 1
            arguments = [*command, f"amqp://guest:guest@127.0.0.1:{self._brokers.port}/%2F", name, str(self._log)]
            self.all[name] = subprocess.Popen(arguments, env=self._environment, stderr=subprocess.DEVNULL)

    def stop(self, name: str, seconds: float) -> None:
        """Stop a member (SIGSTOP) for the given seconds."""
        self._wake_at[name] = time.monotonic() + seconds
        self.all[name].send_signal(signal.SIGSTOP)

    def wake(self, now: float) -> None:
        """Resume stopped members at their time."""
        for name in [name for name, until in self._wake_at.items() if until <= now]:
            del self._wake_at[name]
            self.all[name].send_signal(signal.SIGCONT)

    def hit(self, chance: random.Random) -> None:
        """Stop or kill a random member."""
        name = chance.choice(list(self.all))
        if name not in self._wake_at and chance.random() < 0.5:
            self.stop(name, chance.random() * 2)
        else:
            self.end(name)

    def gone(self) -> None:
        """Note in the log that the deliveries of all members may go to other members."""
        for name in list(self.all):
            os.write(self._written, f"gone {name}\n".encode())

    def end(self, name: str) -> None:
        """Kill a member."""
        self._wake_at.pop(name, None)
        os.write(self._written, f"gone {name}\n".encode())
        process = self.all.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all members."""
        for name in list(self.all):
            self.end(name)
        os.close(self._written)


def replay(log: Path, published: dict[str, int], unconfirmed: Sequence[tuple[str, int]] = ()) -> Checker:
    """Replay the log, and verify deliveries and ordering."""
    checker, verification = Checker(), Verification()
    got: dict[tuple[str, str], dict[str, Any]] = {}
    gone: set[str] = set()
    checker.published.update(published)
    for unsure in unconfirmed:
        checker.may_go(*unsure)
    for line in log.read_text().splitlines():
        match line.split():
            case "got", name, tag, key, number, redelivered, epoch:
                checker.delivered(name, int(tag), key, int(number), redelivered == "1", int(epoch))
                got[name, tag] = {"key": key, "number": int(number), "epoch": int(epoch), "consumer": name}
            case "ack", name, tag:
                checker.acknowledge(name, int(tag))
                if name not in gone:  # a late write of a member without its share is refused
                    faults = verification.add(got[name, tag])
                    # A message acknowledged around the kill of a process is redelivered.
                    checker.faults += [str(fault) for fault in faults if fault.kind != ONCE]
            case "gone", name:
                checker.gone(name)
                gone.add(name)
    return checker


def story(log: Path, key: str) -> list[str]:
    """The lines of the log about a key, and about all members, with line numbers."""
    told, tags = [], dict[tuple[str, ...], str]()
    for place, line in enumerate(log.read_text().splitlines()):
        kind, *rest = line.split()
        who = tuple(rest[:2])
        if kind == "got" and rest[2] == key:
            tags[who] = rest[3]
            told.append(f"{place} {line}")
        elif kind == "gone" or (kind == "ack" and who in tags):
            told.append(f"{place} {line} {tags.get(who, '')}")
    return told


def _channel(brokers: Brokers) -> Any:
    """A channel at the first answering broker."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            channel = pika.BlockingConnection(pika.ConnectionParameters(port=brokers.port)).channel()
            channel.confirm_delivery()
        except GONE:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return channel


def _declare(channel: Any, change_rings: bool) -> None:
    ordered = {"ordered-scaling": True} if change_rings else {}
    channel.exchange_declare("orders", "x-consistent-hash", durable=True, arguments=ordered)
    for number, arguments in enumerate(RING if change_rings else QUEUES):
        placed = {"x-queue-leader-locator": "balanced", **arguments}
        channel.queue_declare(f"orders-{number}", durable=True, arguments=placed)
        channel.queue_bind(f"orders-{number}", "orders", "1")


class _Ring:
    """Changes the weights of queues; weight 0 unbinds a queue."""

    def __init__(self) -> None:
        self._weights = dict.fromkeys(range(len(RING)), 1)

    def change(self, channel: Any, chance: random.Random) -> None:
        """Change a random weight; at least one queue stays bound."""
        number = chance.choice(list(self._weights))
        weight = chance.choice([0, 1, 2])
        bound = [one for one, has in self._weights.items() if has]
        if weight == self._weights[number] or (not weight and bound == [number]):
            return
        if before := self._weights[number]:
            channel.queue_unbind(f"orders-{number}", "orders", str(before))
            self._weights[number] = 0
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
    nodes: int = 1,
    kill_broker: bool = False,
    kill_workers: bool = False,
    change_rings: bool = False,
) -> Checker:
    """Use a broker, or a cluster, for the given seconds.

    Args:
        interval: mean seconds between two failures.
        kill_broker, kill_workers: kill a whole broker, or a process of a broker.
        change_rings: bind and unbind queues.
    """
    chance = random.Random(seed)
    published: dict[str, int] = {}
    persistent = pika.BasicProperties(delivery_mode=2)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        folder = Path(directory)
        if "java" in clients:
            jars = os.pathsep.join(map(str, JARS))
            subprocess.run(["javac", "-cp", jars, "-d", directory, str(PROGRAMS / "Member.java")], check=True)
        arguments = ("--workers", str(workers)) if workers > 1 else ()
        brokers = Brokers(folder, nodes, arguments, ends)
        log = folder / "log"
        log.touch()
        channel = _channel(brokers)
        _declare(channel, change_rings)
        ring, unconfirmed = _Ring(), []
        members = Members(brokers, log, [CLIENTS[name](folder) for name in clients])
        ends.callback(members.close)
        now = time.monotonic()
        ends_at, hit_at = now + seconds, now + interval
        kill_at = now + 10 * interval if kill_broker or kill_workers else float("inf")
        change_at = now + interval if change_rings else float("inf")
        while (now := time.monotonic()) < ends_at:
            members.fill()
            members.wake(now)
            brokers.wake(now, members.gone)
            if now >= kill_at:
                if kill_workers:
                    members.gone()
                    brokers.kill_worker(chance)
                else:
                    brokers.hit(chance, members.gone)
                kill_at = time.monotonic() + (5 + 15 * chance.random()) * interval
            try:
                if now >= change_at:
                    change_at = now + 2 * chance.random() * interval
                    ring.change(channel, chance)
            except GONE:
                channel = _channel(brokers)
            key = str(chance.randrange(KEYS))
            published[key] = published.get(key, 0) + 1
            try:
                channel.basic_publish("orders", key, f"{key} {published[key]}".encode(), persistent)
            except pika.exceptions.NackError:
                unconfirmed.append((key, published[key]))
            except GONE:
                unconfirmed.append((key, published[key]))
                channel = _channel(brokers)
            if now >= hit_at:
                members.hit(chance)
                hit_at = now + 2 * chance.random() * interval
        members.wake(float("inf"))
        brokers.mended()
        ends_at = time.monotonic() + PATIENCE
        while (checker := replay(log, published, unconfirmed)).left and time.monotonic() < ends_at:
            members.fill()
            time.sleep(0.5)
        if checker.left:
            brokers.tell()
        for key in {fault.partition(" ")[0] for fault in checker.faults}:
            print(*story(log, key), sep="\n", file=sys.stderr)
    return checker


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=installed(), help="those that are installed")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between two blows, about")
    parser.add_argument("--nodes", type=int, default=1, help="of a cluster")
    parser.add_argument(
        "--kill-broker", action="store_true", help="and start it again; of a cluster, stop and kill nodes"
    )
    parser.add_argument("--kill-workers", action="store_true", help="a process of it by turns")
    parser.add_argument("--change-rings", action="store_true", help="bind and unbind queues meanwhile")
    given = parser.parse_args()
    checker = run(
        given.seconds,
        given.seed,
        given.workers,
        given.clients,
        interval=given.interval,
        nodes=given.nodes,
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
