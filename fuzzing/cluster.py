"""Kills and stops the nodes of a cluster, and its etcd, under load, and counts every message.

``python -m fuzzing.cluster --seconds 60``: publishers with confirms and consumers with acknowledgements use durable
queues of three nodes, through whichever node answers, while nodes and members of etcd are killed (SIGKILL) and stopped
(SIGSTOP) at random. Others declare queues at one node, use them at once at another, and delete them. Nothing that was
confirmed may be missing, messages of a queue come in the order of publishing, twice only where ``redelivered`` says so
or the publisher has published again, and at the end all nodes have the same definitions.

With ``--network`` (as root, with iptables) nodes also lose what others send to them over links, or what they send, or
both, and have their disks filled: each has a disk of its own in memory.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import requests

from fuzzing.workers import Client, Consumer, Ledger, Publisher
from jumpmq.broker import BrokerError
from jumpmq.testing.etcd import EtcdMember, etcd
from jumpmq.testing.own import JumpMQ

BEGAN = time.monotonic()
NODES = 3
QUEUES = 9
STRIKES = ("kill node", "kill node", "stop node", "stop node", "kill etcd", "stop etcd", "no quorum")
NETWORK_STRIKES = ("lose what comes", "lose what goes", "lose both", "lose both", "fill disk", "kill node", "stop node")
DISK_BYTES = 400 << 20
"""Of a node's disk in memory."""


class Definer(Client):
    """Declares a queue at one node, publishes to it at another, and deletes it at a third."""

    def __init__(self, port: Any, ledger: Ledger, stop: threading.Event, unseen: list[str]) -> None:
        super().__init__(port, ledger, [], stop)
        self.unseen = unseen  # queues that another node did not know
        self.count = 0

    def work(self, connection: Any) -> None:
        name = f"defined-{self.ident}-{self.count}"
        self.count += 1
        connection.channel().queue_declare(name)
        with contextlib.closing(self.connect()) as other:
            channel = other.channel()
            channel.confirm_delivery()
            try:
                channel.basic_publish("", name, b"", mandatory=True)
            except pika.exceptions.UnroutableError:
                self.unseen.append(f"{name} after {time.monotonic() - BEGAN:.0f} s")
            except pika.exceptions.NackError:
                pass  # its home is down
        with contextlib.closing(self.connect()) as third:
            third.channel().queue_delete(name)


def address_of(number: int) -> str:
    """Where a node takes links."""
    return f"127.0.0.{number + 11}"


@contextlib.contextmanager
def packets_lost(*of: str) -> Iterator[None]:
    """Lose packets within the block.

    Args:
        of: which, each as iptables says it: ``-d ADDRESS``, ``-s ADDRESS``.
    """
    with ExitStack() as stack:
        for rule in of:
            subprocess.run(["iptables", "-A", "INPUT", *rule.split(), "-j", "DROP"], check=True)
            stack.callback(subprocess.run, ["iptables", "-D", "INPUT", *rule.split(), "-j", "DROP"], check=True)
        yield


@contextlib.contextmanager
def disk(directory: Path) -> Iterator[None]:
    """A small disk in memory, which outlives processes."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill(directory: Path, seconds: float) -> None:
    """Leave no room on a disk for so long."""
    filling = directory / "filling"
    with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    time.sleep(seconds)
    filling.unlink()


class Cluster:
    """The nodes, some of which are down at times.

    Args:
        network: whether their network and disks fail, too.
    """

    def __init__(self, members: list[EtcdMember], directory: Path, *, network: bool) -> None:
        urls = ",".join(member.url for member in members)
        self.members = members
        self.strikes = NETWORK_STRIKES if network else STRIKES
        self.nodes = [
            JumpMQ(
                directory / f"node-{number}",
                f"node{number}@host",
                (
                    "--cluster",
                    "fuzzing",
                    "--etcd",
                    urls,
                    "--log-level",
                    "warning",
                    "--cluster-host",
                    address_of(number),
                ),
            )
            for number in range(NODES)
        ]

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def port(self) -> int:
        """That of a node, which may have died."""
        return random.choice(self.nodes).port

    def strike(self, choose: random.Random) -> str:
        """Do some harm, and undo it; returns what was done."""
        seconds = choose.choice([0.2, 1.0, 7.0, 14.0])
        match kind := choose.choice(self.strikes):
            case "kill node":
                node = choose.choice(self.nodes)
                node.kill()
                time.sleep(choose.choice([0.0, 0.0, seconds]))
                node.start()
            case "stop node":
                pid = choose.choice(self.nodes).pid
                os.kill(pid, signal.SIGSTOP)
                time.sleep(seconds)
                os.kill(pid, signal.SIGCONT)
            case "kill etcd":
                member = choose.choice(self.members)
                member.kill()
                time.sleep(seconds)
                member.start()
            case "stop etcd":
                choose.choice(self.members).pause(seconds)
            case "no quorum":
                for member in self.members[:2]:
                    member.kill()
                time.sleep(seconds)
                for member in self.members[:2]:
                    member.start()
            case "fill disk":
                fill(choose.choice(self.nodes).data_dir, seconds)
            case _:
                address = address_of(choose.randrange(NODES))
                come, go = f"-d {address}", f"-s {address}"
                with packets_lost(*{"lose what comes": (come,), "lose what goes": (go,)}.get(kind, (come, go))):
                    time.sleep(seconds)
        return f"{kind} ({seconds:g} s)"

    def differences(self) -> list[str]:
        """Where nodes' definitions differ, a sentence each."""
        told = []
        for node in self.nodes:
            found = requests.get(f"http://guest:guest@127.0.0.1:{node.http_port}/api/definitions", timeout=30).json()
            told.append({kind: sorted(map(repr, value)) for kind, value in found.items() if isinstance(value, list)})
        return [f"node {number} has other definitions" for number, one in enumerate(told) if one != told[0]]


def run(seconds: float, seed: int, *, network: bool = False) -> list[str]:
    """One run; returns what is wrong."""
    choose = random.Random(seed)
    ledger, stop_publishing, stop = Ledger(), threading.Event(), threading.Event()
    unseen: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-fuzzing-")))
        cluster = Cluster(stack.enter_context(etcd(directory, 3)), directory, network=network)
        if network:
            for node in cluster.nodes:
                stack.enter_context(disk(node.data_dir))
        for node in cluster.nodes:
            stack.callback(node.close)
        cluster.start()
        queues = [f"q{number}" for number in range(QUEUES)]
        for number, queue in enumerate(queues):
            parameters = pika.ConnectionParameters("127.0.0.1", cluster.nodes[number % NODES].port)
            with pika.BlockingConnection(parameters) as connection:
                connection.channel().queue_declare(queue, durable=True)
        publishers = [Publisher(cluster.port, ledger, queues[place::3], stop_publishing) for place in range(3)]
        consumers = [Consumer(cluster.port, ledger, queues[place::2], stop) for place in range(2)]
        definers = [Definer(cluster.port, ledger, stop_publishing, unseen) for _ in range(2)]
        for client in (*publishers, *consumers, *definers):
            client.start()
        end, blows = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            time.sleep(choose.uniform(0.5, 3.0))
            try:
                done = cluster.strike(choose)
            except BrokerError as error:
                return [
                    f"a node does not start again: {error}",
                    *(node.log.read_text()[-2000:] for node in cluster.nodes),
                ]
            blows += 1
            confirmed = sum(ledger.confirmed.values())
            print(f"{time.monotonic() - BEGAN:.0f} s: {done}; {confirmed} confirmed", file=sys.stderr, flush=True)
        time.sleep(15)
        stop_publishing.set()
        for client in (*publishers, *definers):
            client.join(60)
        until = time.monotonic() + 90
        while time.monotonic() < until:
            with ledger.lock:
                if all(len(ledger.acknowledged[queue]) >= count for queue, count in ledger.confirmed.items()):
                    break
            time.sleep(0.2)
        stop.set()
        for client in consumers:
            client.join(30)
        problems = ledger.problems() + cluster.differences()
        if problems:
            problems += [node.log.read_text()[-3000:] for node in cluster.nodes]
    declared = sum(client.count for client in definers)
    print(f"{sum(ledger.confirmed.values())} messages confirmed, {declared} queues declared, {blows} blows")
    if network:  # a link that carries nothing is known to be down after some seconds only
        print(f"{len(unseen)} declarations were not known at once at a node that was cut off")
        return problems
    return problems + [f"{name} was declared, and another node did not know it" for name in unseen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--network", action="store_true", help="lose packets, and fill disks, too")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    problems = run(arguments.seconds, arguments.seed, network=arguments.network)
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
