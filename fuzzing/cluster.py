"""Kills and stops the nodes of a cluster, and its etcd, under load, and counts every message.

``python -m fuzzing.cluster --seconds 60``: publishers with confirms and consumers with acknowledgements use durable
queues of three nodes, through whichever node answers, while nodes and members of etcd are killed (SIGKILL) and stopped
(SIGSTOP) at random. Others declare queues at one node, use them at once at another, and delete them. Nothing that was
confirmed may be missing, messages of a queue come in the order of publishing, twice only where ``redelivered`` says so
or the publisher has published again, and at the end all nodes have the same definitions.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
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


class Cluster:
    """The nodes, some of which are down at times."""

    def __init__(self, members: list[EtcdMember], directory: Path) -> None:
        urls = ",".join(member.url for member in members)
        self.members = members
        self.nodes = [
            JumpMQ(
                directory / f"node-{number}",
                f"node{number}@host",
                ("--cluster", "fuzzing", "--etcd", urls, "--log-level", "warning"),
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
        match kind := choose.choice(STRIKES):
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
        return f"{kind} ({seconds:g} s)"

    def differences(self) -> list[str]:
        """Where nodes' definitions differ, a sentence each."""
        told = []
        for node in self.nodes:
            found = requests.get(f"http://guest:guest@127.0.0.1:{node.http_port}/api/definitions", timeout=30).json()
            told.append({kind: sorted(map(repr, value)) for kind, value in found.items() if isinstance(value, list)})
        return [f"node {number} has other definitions" for number, one in enumerate(told) if one != told[0]]


def run(seconds: float, seed: int) -> list[str]:
    """One run; returns what is wrong."""
    choose = random.Random(seed)
    ledger, stop_publishing, stop = Ledger(), threading.Event(), threading.Event()
    unseen: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-fuzzing-")))
        cluster = Cluster(stack.enter_context(etcd(directory, 3)), directory)
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
    return problems + [f"{name} was declared, and another node did not know it" for name in unseen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    problems = run(arguments.seconds, arguments.seed)
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
