"""Kills and stops the nodes of a cluster, and its etcd, under load, and counts every message.

``python -m fuzzing.cluster --seconds 60``: publishers with confirms and consumers with acknowledgements use durable
queues of three nodes, through any answering node, while nodes and members of etcd are killed (SIGKILL) and stopped
(SIGSTOP) at random: a single node, a node and etcd, or two nodes. etcd also answers slowly, and revokes the leases of
live nodes. Queues move from node to node, and some messages are rejected, and consumed as dead letters. Further clients
declare queues at a node, use them at once at another node, and delete them. No confirmed message may be lost, the
messages of a queue arrive in the order of publishing, duplicates have ``redelivered`` or were published again, and at
the end all nodes have the same definitions.

With ``--workers 2`` every node has two workers, which are killed and stopped, too.

With ``--network`` (as root, with iptables) nodes also lose incoming, outgoing or all packets of links, and have full
disks: every node has a disk of its own in memory.
"""

import argparse
import base64
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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import requests

from fuzzing.workers import DEAD, Client, Ledger, Mover, Publisher, RejectingConsumer, declare, tell
from jumpmq.broker import BrokerError
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.membership.answers import SLOW
from jumpmq.testing.etcd import EtcdMember, etcd
from jumpmq.testing.own import JumpMQ
from jumpmq.testing.processes import children

BEGAN = time.monotonic()
CLUSTER = "fuzzing"
NODES = 3
QUEUES = 9
NODE_STRIKES = ("kill node", "kill node", "stop node", "stop node", "revoke lease")
WORKER_STRIKES = "kill worker", "kill worker", "kill supervisor"
NETWORK_STRIKES = ("lose what comes", "lose what goes", "lose both", "lose both", "fill disk", "kill node", "stop node")
ETCD_STRIKES = ("kill etcd", "stop etcd", "slow etcd", "no quorum")
LASTING = (0.2, 1.0, 1.0, 7.0, 7.0, 13.0)
"""Seconds; a link counts as broken after five, a node as dead after ten."""

AT_ONCE = 2
"""Maximum number of concurrent failures."""

PATIENCE = 90.0
"""Timeout in seconds for the recovery at the end."""

DISK_BYTES = 400 << 20
"""Size of a node's disk in memory."""


class Definer(Client):
    """Declares a queue at a node, publishes to the queue at a second node, and deletes the queue at a third."""

    def __init__(self, cluster: "Cluster", ledger: Ledger, stop: threading.Event, unseen: list[str]) -> None:
        super().__init__(cluster.port, ledger, [], stop)
        self.cluster = cluster
        self.unseen = unseen  # queues unknown at a second node
        self.count = 0

    def work(self, connection: Any) -> None:
        name = f"defined-{self.ident}-{self.count}"
        self.count += 1
        began = time.monotonic()
        durable = self.count % 2 == 0
        connection.channel().queue_declare(name, durable=durable)
        seconds = time.monotonic() - began
        with contextlib.closing(self.connect()) as other:
            channel = other.channel()
            channel.confirm_delivery()
            try:
                channel.basic_publish("", name, b"", mandatory=True)
            except pika.exceptions.UnroutableError:
                if seconds > SLOW:  # the answer did not wait for slow nodes
                    return
                if not durable and self.cluster.killed_at > began:  # the queue may have ended with its home
                    return
                self.unseen.append(f"{name} after {time.monotonic() - BEGAN:.1f} s")
            except pika.exceptions.NackError:
                pass  # the queue's home is down
        with contextlib.closing(self.connect()) as third:
            third.channel().queue_delete(name)


def address_of(number: int) -> str:
    """Link address of a node, different in concurrent runs."""
    return f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.{number + 11}"


@contextlib.contextmanager
def packets_lost(*of: str) -> Iterator[None]:
    """Drop packets within the block.

    Args:
        of: rules of iptables: ``-d ADDRESS``, ``-s ADDRESS``.
    """
    with ExitStack() as stack:
        for rule in of:
            subprocess.run(["iptables", "-w", "-A", "INPUT", *rule.split(), "-j", "DROP"], check=True)
            stack.callback(subprocess.run, ["iptables", "-w", "-D", "INPUT", *rule.split(), "-j", "DROP"], check=True)
        yield


@contextlib.contextmanager
def disk(directory: Path) -> Iterator[None]:
    """A small file system in memory, which survives the end of processes."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill(directory: Path, seconds: float) -> None:
    """Fill a disk for the given seconds."""
    filling = directory / "filling"
    with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    time.sleep(seconds)
    filling.unlink()


def revoke(member: EtcdMember, node: str) -> None:
    """Revoke a node's lease in etcd."""

    def ask(call: str, **body: str) -> dict[str, Any]:
        answer: dict[str, Any] = requests.post(f"{member.url}/v3/{call}", json=body, timeout=2).json()
        return answer

    key = base64.b64encode(Keys(CLUSTER).live_node(node).encode()).decode()
    for found in ask("kv/range", key=key).get("kvs", []):
        ask("lease/revoke", ID=found["lease"])


class Cluster:
    """The nodes, some of which are down at times.

    Args:
        pool: starts processes, which end with the starting thread.
        network: network and disks fail, too.
        workers: number of workers per node.
    """

    def __init__(
        self, members: list[EtcdMember], directory: Path, pool: ThreadPoolExecutor, *, network: bool, workers: int
    ) -> None:
        self._pool = pool
        self.members = members
        self.node_strikes = (NETWORK_STRIKES if network else NODE_STRIKES) + (WORKER_STRIKES if workers > 1 else ())
        self._workers = workers
        options: tuple[str, ...] = ("--cluster", CLUSTER, "--etcd", ",".join(member.url for member in members))
        if workers > 1:
            options += ("--workers", str(workers), "--queue-leader-locator", "balanced")
        self.nodes = []
        for number in range(NODES):
            own = (*options, "--log-level", "warning", "--cluster-host", address_of(number))
            self.nodes.append(JumpMQ(directory / f"node-{number}", f"node{number}@host", own))
        self.killed_at = 0.0  # when a process of a node was last, by the monotonic clock
        self._hit: dict[object, Future[None]] = {}  # running failures, by target

    def start(self) -> None:
        self.nodes[0].start()  # forms the cluster
        for started in [self._pool.submit(node.start) for node in self.nodes[1:]]:
            started.result()

    def port(self) -> int:
        """AMQP port of a random node, which may be down."""
        return random.choice(self.nodes).port

    def url(self) -> str:
        """URL of a random node's management API, which may be down."""
        return f"http://guest:guest@127.0.0.1:{random.choice(self.nodes).http_port}"

    def strike(self, choose: random.Random) -> str:
        """Begin a failure that ends by itself. Return a description, or nothing at the limit of concurrent failures."""
        self._hit = {victim: blow for victim, blow in self._hit.items() if not blow.done() or blow.exception()}
        free = [victim for victim in (*self.nodes, "etcd", "etcd") if victim not in self._hit]
        if len(self._hit) >= AT_ONCE:
            return ""
        victim, seconds, again = choose.choice(free), choose.choice(LASTING), choose.choice([0.0, 0.0, 1.0])
        if isinstance(victim, JumpMQ):
            kind = choose.choice(self.node_strikes)
            if kind == "kill node":
                seconds *= again
            self._hit[victim] = self._pool.submit(self._strike_node, kind, victim, seconds)
            return f"{kind} {victim.node} ({seconds:g} s)"
        kind = choose.choice(ETCD_STRIKES)
        self._hit[victim] = self._pool.submit(self._strike_etcd, kind, choose.sample(self.members, 2), seconds)
        return f"{kind} ({seconds:g} s)"

    def mended(self) -> None:
        """Wait until all failures have ended.

        Raises:
            BrokerError: a node has not restarted.
        """
        for blow in self._hit.values():
            blow.result()

    def _strike_node(self, kind: str, node: JumpMQ, seconds: float) -> None:
        if kind.startswith("kill"):
            self.killed_at = time.monotonic() + 1  # at most: a worker ends a moment after its supervisor
        match kind:
            case "kill node":
                node.kill()
                time.sleep(seconds)
                node.start()
            case "stop node":
                pid = node.pid if self._workers == 1 else random.choice(children(node.pid))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(seconds)
                    os.kill(pid, signal.SIGCONT)
            case "kill worker":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(children(node.pid)), signal.SIGKILL)
                time.sleep(seconds)
            case "kill supervisor":
                os.kill(node.pid, signal.SIGKILL)
                time.sleep(seconds)
                node.kill()
                node.start()
            case "revoke lease":
                with contextlib.suppress(requests.RequestException):  # etcd is hit, too
                    revoke(random.choice(self.members), node.node)
            case "fill disk":
                fill(node.data_dir, seconds)
            case _:
                address = address_of(self.nodes.index(node))
                come, go = f"-d {address}", f"-s {address}"
                with packets_lost(*{"lose what comes": (come,), "lose what goes": (go,)}.get(kind, (come, go))):
                    time.sleep(seconds)

    def _strike_etcd(self, kind: str, members: list[EtcdMember], seconds: float) -> None:
        match kind:
            case "kill etcd" | "no quorum":
                struck = members[:1] if kind == "kill etcd" else members
                for member in struck:
                    member.kill()
                time.sleep(seconds)
                for member in struck:
                    member.start()
            case "stop etcd":
                members[0].pause(seconds)
            case _:
                until = time.monotonic() + seconds
                while time.monotonic() < until:  # all members are stopped for most of the time
                    pausing = [threading.Thread(target=member.pause, args=(0.3,)) for member in self.members]
                    for thread in pausing:
                        thread.start()
                    for thread in pausing:
                        thread.join()
                    time.sleep(0.05)

    def lasting_differences(self) -> list[str]:
        """As :meth:`differences`, after all running moves have ended."""
        until = time.monotonic() + PATIENCE
        while (told := self.differences()) and time.monotonic() < until:
            time.sleep(0.5)
        return told

    def differences(self) -> list[str]:
        """Differences between the nodes' definitions, a sentence per node."""
        told = []
        for node in self.nodes:
            found = requests.get(f"http://guest:guest@127.0.0.1:{node.http_port}/api/definitions", timeout=30).json()
            told.append({kind: sorted(map(repr, value)) for kind, value in found.items() if isinstance(value, list)})
        return [f"node {number} has other definitions" for number, one in enumerate(told) if one != told[0]]


def run(seconds: float, seed: int, *, network: bool = False, workers: int = 1) -> list[str]:
    """Run the fuzzer once. Return the failures."""
    choose = random.Random(seed)
    ledger, stop_publishing, stop = Ledger(), threading.Event(), threading.Event()
    unseen: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-fuzzing-")))
        pool = stack.enter_context(ThreadPoolExecutor(NODES))
        members = stack.enter_context(etcd(directory, 3))
        cluster = Cluster(members, directory, pool, network=network, workers=workers)
        if network:
            for node in cluster.nodes:
                stack.enter_context(disk(node.data_dir))
        for node in cluster.nodes:
            stack.callback(node.close)
        cluster.start()
        queues = [f"q{number}" for number in range(QUEUES)]
        for number, queue in enumerate([DEAD, *queues]):
            declare(cluster.nodes[number % NODES].port, queue)
        publishers = [Publisher(cluster.port, ledger, queues[place::3], stop_publishing) for place in range(3)]
        # A consumer per queue, so that a failed home delays only the consumers of its queues.
        consumers = [RejectingConsumer(cluster.port, ledger, [queue], stop) for queue in (DEAD, *queues)]
        definers = [Definer(cluster, ledger, stop_publishing, unseen) for _ in range(2)]
        mover = Mover(cluster.url, queues, seed, stop_publishing)
        for client in (*publishers, *consumers, *definers, mover):
            client.start()
        say(f"all serve, {cluster.nodes[0].startup:.1f} s")
        end, blows = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            time.sleep(choose.uniform(0.2, 1.5))
            if done := cluster.strike(choose):
                blows += 1
                say(f"{done}; {sum(ledger.confirmed.values())} confirmed")
        logs = [node.log for node in cluster.nodes]
        try:
            cluster.mended()
        except (BrokerError, OSError) as error:
            return [f"a node does not start again: {error}", *(log.read_text()[-2000:] for log in logs)]
        say("all is mended")
        problems = [] if more_is_confirmed(ledger, queues) else ["not every queue takes messages again"]
        say("all is confirmed again")
        stop_publishing.set()
        for client in (*publishers, *definers, mover):
            client.join(60)
        if not all_is_consumed(ledger):
            tell(cluster.url())
        say("all is consumed")
        stop.set()
        for client in consumers:
            client.join(30)
        problems += ledger.problems() + cluster.lasting_differences()
        if problems or (unseen and not network):
            problems += [log.read_text()[-3000:] for log in logs]
    declared = sum(client.count for client in definers)
    print(
        f"{sum(ledger.confirmed.values())} messages confirmed, {declared} queues declared, {mover.count} moves,"
        f" {blows} blows"
    )
    if network:  # a node may be cut off from all others, and from etcd
        print(f"{len(unseen)} declarations were not known at once at a node that was cut off: {', '.join(unseen)}")
        return problems
    return problems + [f"{name} was declared, and another node did not know it" for name in unseen]


def say(what: str) -> None:
    print(f"{time.monotonic() - BEGAN:.1f} s: {what}", file=sys.stderr, flush=True)


def more_is_confirmed(ledger: Ledger, queues: list[str]) -> bool:
    """Wait until every queue has confirmed a new message."""
    before, until = dict(ledger.confirmed), time.monotonic() + PATIENCE
    while any(ledger.confirmed[queue] <= before.get(queue, 0) for queue in queues):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def all_is_consumed(ledger: Ledger) -> bool:
    """Wait until all confirmed messages are acknowledged, or until progress ends."""
    before, until = -1, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with ledger.lock:
            if all(len(ledger.acknowledged[queue]) >= count for queue, count in ledger.confirmed.items()):
                return True
            done = sum(map(len, ledger.acknowledged.values()))
        if done > before:
            before, until = done, time.monotonic() + PATIENCE
        time.sleep(0.1)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--network", action="store_true", help="lose packets, and fill disks, too")
    parser.add_argument("--workers", type=int, default=1, help="of each node")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    problems = run(arguments.seconds, arguments.seed, network=arguments.network, workers=arguments.workers)
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
