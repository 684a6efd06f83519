"""Kills, stops, cuts off and empties the nodes of a cluster with three copies of each home, and counts every message.

    python -m fuzzing.copies --seconds 60 --seed 7
    python -m fuzzing.copies --workers 2 --only "kill one,stop"

Publishers with confirms and consumers with acknowledgements use durable classic queues, quorum queues and streams of
every node, through any answering node, under a sequence of failures; ``BLOWS`` has their names. The clients record
their observations, and :mod:`fuzzing.history`, without imports of the broker, verifies them. With ``--keep FOLDER``
history and logs are kept. Network partitions require root and iptables, failures of disks a C compiler, and are skipped
elsewhere: disks are full, slow, hang, fail to sync; a loss of power loses unsynced octets; bits flip.
"""

import argparse
import asyncio
import contextlib
import errno
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pika
import requests
from tests.cutting import Cuts, can_cut, run_as

from fuzzing.clients import GONE, ReconnectingClient
from fuzzing.faulty_disk import ALLOCATE, CREATE, SLOW, SYNC, WRITE, FaultyDisk, is_available
from fuzzing.history import problems
from jumpmq.nodes.etcd.client import Etcd, EtcdError, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.replication.configuration import Configuration, node_of
from jumpmq.replication.wanted import Wanted
from jumpmq.testing import JumpMQ, children, free_ports
from jumpmq.testing.etcd import EtcdMember, etcd

BEGAN = time.monotonic()
CLUSTER = "copies"
NODES = ["node1@host", "node2@host", "node3@host"]
KINDS = ("classic", "quorum", "stream")

BLOWS = {
    "kill one": 4,
    "kill two": 2,
    "kill all": 2,
    "kill again": 2,
    "kill worker": 3,
    "kill supervisor": 1,
    "stop": 3,
    "stop for long": 2,
    "end": 3,
    "change copies": 3,
    "etcd stops": 1,
    "etcd dies": 1,
    "cut both ways": 2,
    "cut one way": 2,
    "cut off": 2,
    "empty": 1,
    "full disk": 2,
    "slow disk": 1,
    "hanging disk": 1,
    "failing sync": 1,
    "lose power": 3,
    "flip": 1,
}
"""Relative frequencies of the failures."""

CUTS = ("cut both ways", "cut one way", "cut off")

DISKS = ("full disk", "slow disk", "hanging disk", "failing sync", "lose power")
"""Failures that require a C compiler."""

FAIL_STOP = "jumpmq.store.errors.Unsynced"
"""Text of the log after a failed sync, which ends the process (R9)."""

OF_SEVERAL = ("kill worker", "kill supervisor")
"""Failures of nodes with several processes."""

LINKS = "25672"
"""Link port of every node, at the node's own address."""

WINDOW = 30
"""Maximum number of unconfirmed publishes of a publisher."""

PACE = 0.004
"""Seconds between two messages of a publisher."""

MOST_OCTETS = 12_000
"""Octets of a body: a segment of the log is full after half a minute."""

PATIENCE = 120.0
"""Timeout in seconds for the recovery at the end: leadership returns to its seat after half a minute."""


class Node(JumpMQ):
    """A node with fixed ports and a fixed address.

    Attributes:
        is_hit: the process is down or stopped on purpose.
        disk: injects failures of system calls; None without a compiler.
        may_end: the process may end by itself after a failed or hanging sync.
    """

    def __init__(
        self, number: int, directory: Path, urls: str, workers: int, *, cut: bool = False, copies: int = 1
    ) -> None:
        self.number, self.is_hit, self._cut = number, False, cut
        self.disk: FaultyDisk | None = None
        self.may_end = False
        self.ports = free_ports(2)
        ports = ("--port", str(self.ports[0]), "--http-port", str(self.ports[1]))
        where = ("--cluster-host", address_of(number), "--cluster-port", LINKS, "--copies", str(copies))
        more = ("--workers", str(workers), "--queue-leader-locator", "balanced") if workers > 1 else ()
        options = (*ports, *where, "--cluster", CLUSTER, "--etcd", urls, *more)
        super().__init__(directory / f"data-{number + 1}", NODES[number], options)
        self.directory = directory
        self.log = directory / f"node-{number + 1}.log"
        if is_available():
            (folder := directory / f"disk-{number + 1}").mkdir()
            self.disk = FaultyDisk(folder, self.data_dir, journals=True)

    @property
    def command(self) -> list[str]:
        more = () if self.disk is None else [f"{name}={value}" for name, value in self.disk.environment.items()]
        command = ["env", *more, *super().command]
        return run_as(self.number, command) if self._cut else command

    def launch(self) -> None:
        """Start the process, without waiting for its port: a follower opens no port."""
        source = str(Path(__file__).parents[1] / "src")
        told = self.log.read_bytes() if self.log.exists() else b""
        self._launch([*self.command, "serve", "--data-dir", str(self.data_dir), "--node", self.node, *self._arguments],
                     os.environ | {"PYTHONPATH": source, "PYTHONFAULTHANDLER": "1"})  # fmt: skip
        with (self.directory / f"node-{self.number + 1}.all.log").open("ab") as file:
            file.write(told + b"\n---- started again\n")
        self.port, self.http_port = self.ports
        self.is_hit = self.may_end = False

    def ended(self) -> bool:
        """Return true if the process has ended by itself."""
        return not self.is_hit and self._process is not None and self._process.poll() is not None

    def down(self) -> None:
        """Kill the process with all of its children."""
        self.is_hit = True
        self.kill()

    def show_threads(self, pid: int) -> None:
        """Log the stacks of a process that does not end in time, and end it."""
        if self.is_hit and self._process is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the node."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def address_of(number: int) -> str:
    """Link address of a node, different in concurrent runs."""
    return f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.{number + 11}"


class History:
    """Operations of all clients, in order."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.operations: list[tuple[Any, ...]] = []
        self.counts: Counter[str] = Counter()
        self.waiting: dict[str, set[tuple[str, int]]] = {}  # confirmed and not consumed, by queue
        self.early: dict[str, set[tuple[str, int]]] = {}  # consumed before the confirm came

    def note(self, operation: str, queue: str, *rest: Any) -> None:
        with self.lock:
            self.operations.append((operation, queue, *rest))
            self.counts[operation] += 1
            if operation == "reads":
                return
            message, waiting = (rest[0], rest[1]), self.waiting.setdefault(queue, set())
            early = self.early.setdefault(queue, set())
            if operation == "confirmed" and message not in early:
                waiting.add(message)
            elif operation in ("acknowledged", "read"):
                early.add(message)
                waiting.discard(message)


class Client(ReconnectingClient):
    """Notes its operations in a history."""

    def __init__(self, name: str, ports: Callable[[], int], history: History, stop: threading.Event) -> None:
        super().__init__(ports, stop, name)
        self.history = history

    def connect(self) -> Any:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self._port(), heartbeat=6, blocked_connection_timeout=20, socket_timeout=3
        )
        return pika.BlockingConnection(parameters)


class Publisher(Client):
    """Publishes to all queues in turn, without repeating unconfirmed messages."""

    def __init__(self, *given: Any, queues: list[str], seed: int) -> None:
        super().__init__(*given)
        self.queues, self.choose = queues, random.Random(seed)

    def work(self, connection: Any) -> None:
        me, number, open_ = f"{self.name}.{self.lives}", 0, dict[int, tuple[str, int]]()
        channel = connection.channel()

        def answered(frame: Any) -> None:
            method = frame.method
            tags = [
                tag for tag in open_ if tag == method.delivery_tag or (method.multiple and tag < method.delivery_tag)
            ]
            for tag in sorted(tags):
                queue, which = open_.pop(tag)
                if isinstance(method, pika.spec.Basic.Ack):
                    self.history.note("confirmed", queue, me, which)
                else:
                    self.history.counts["refused"] += 1

        channel._impl.confirm_delivery(answered)
        persistent = pika.BasicProperties(delivery_mode=2)
        while not (self.stop.is_set() and not open_):
            if self.stop.is_set() or len(open_) >= WINDOW:
                connection.process_data_events(0.05)
                continue
            number += 1
            queue = self.queues[number % len(self.queues)]
            open_[number] = queue, number
            self.history.note("sent", queue, me, number)
            filling = bytes(int(MOST_OCTETS * self.choose.random() ** 3))
            channel.basic_publish("", queue, f"{me}/{number}/".encode() + filling, persistent)
            connection.process_data_events(PACE)


class Consumer(Client):
    """Consumes from a queue, and acknowledges every message."""

    def __init__(self, *given: Any, queue: str) -> None:
        super().__init__(*given)
        self.queue, self.cancelled = queue, False

    def work(self, connection: Any) -> None:
        self.cancelled = False
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        channel.add_on_cancel_callback(self.on_cancel)
        channel.basic_consume(self.queue, self.take, arguments=self.arguments())
        while not (self.stop.is_set() or self.cancelled):
            connection.process_data_events(0.1)

    def on_cancel(self, frame: Any) -> None:
        self.cancelled = True

    def arguments(self) -> dict[str, Any] | None:
        """Arguments of ``basic.consume``."""
        return None

    def take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        publisher, number, _ = body.decode().split("/")
        self.history.note("got", self.queue, publisher, int(number), method.redelivered)
        channel.basic_ack(method.delivery_tag)
        self.history.note("acknowledged", self.queue, publisher, int(number))


class Reader(Consumer):
    """Reads a stream from the end of the previous connection or, now and then, from its beginning."""

    def __init__(self, *given: Any, queue: str) -> None:
        super().__init__(*given, queue=queue)
        self.offset = 0

    def arguments(self) -> dict[str, Any] | None:
        self.offset = 0 if self.lives % 4 == 0 else self.offset
        self.history.note("reads", self.queue, self.offset)
        return {"x-stream-offset": self.offset}

    def take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        publisher, number, _ = body.decode().split("/")
        offset = properties.headers["x-stream-offset"]
        self.history.note("read", self.queue, publisher, int(number), offset)
        self.offset = offset + 1
        channel.basic_ack(method.delivery_tag)


class Cluster:
    """The nodes and etcd, and their failures.

    Attributes:
        problems: unexpected ends of processes.
    """

    def __init__(self, nodes: list[Node], member: EtcdMember, cuts: Cuts | None, choose: random.Random) -> None:
        self.nodes, self.problems = nodes, list[str]()
        self._member, self._cuts, self._choose = member, cuts, choose
        self.homes: dict[int, str] = {}  # seats
        self._wanted: dict[int, Wanted] = {}

    def port(self) -> int:
        """AMQP port of a random node, which may be down."""
        return random.choice(self.nodes).port

    # --- etcd ---

    def values(self, folder: str) -> dict[str, bytes]:
        async def ask() -> dict[str, bytes]:
            client = Etcd([self._member.url])
            try:
                found = await client.folder(folder)
                return {value.key.removeprefix(folder): value.value for value in found.values}
            finally:
                await client.close()

        return asyncio.run(ask())

    def configurations(self) -> dict[int, Configuration]:
        """Configurations of all homes."""
        return {
            int(home): Configuration.from_json(value) for home, value in self.values(Keys(CLUSTER).all_homes).items()
        }

    def want(self, home: int, copies: int) -> None:
        """Change the number of copies, after etcd answers."""

        async def ask() -> None:
            client = Etcd([self._member.url])
            try:
                await client.transaction([], [put(Keys(CLUSTER).wanted(home), wanted.to_json())])
            finally:
                await client.close()

        def is_asked() -> bool:
            with contextlib.suppress(EtcdError):
                asyncio.run(ask())
                return True
            return False

        self._wanted[home] = wanted = Wanted.of(self.homes[home], NODES, copies)
        wait(is_asked, PATIENCE)

    # --- blows ---

    def strike(self, kind: str) -> None:
        """Begin a failure, and end it."""
        getattr(self, "_" + kind.replace(" ", "_"))()

    def _some(self, count: int) -> list[Node]:
        return self._choose.sample(self.nodes, count)

    def _pause(self, *seconds: float) -> None:
        time.sleep(self._choose.choice(seconds))

    def _kill(self, nodes: list[Node]) -> None:
        say(f"  {', '.join(node.node for node in nodes)}")
        for node in nodes:
            node.down()
            self._pause(0, 0, 0.3)
        self._pause(0, 1, 5, 10)
        for node in self._choose.sample(nodes, len(nodes)):
            node.launch()
            self._pause(0, 0, 2)

    def _kill_one(self) -> None:
        self._kill(self._some(1))

    def _kill_two(self) -> None:
        self._kill(self._some(2))

    def _kill_all(self) -> None:
        self._kill(self._some(3))

    def _kill_again(self) -> None:
        """Kill a node three times, before leadership returns."""
        nodes = self._some(1)
        for _ in range(3):
            self._kill(nodes)
            time.sleep(self._choose.uniform(0.3, 6))

    def _kill_worker(self) -> None:
        """Kill one or two workers of a node; the supervisor restarts them."""
        node = self._some(1)[0]
        running = children(node.pid)
        workers = self._choose.sample(running, min(self._choose.choice([1, 1, 2]), len(running)))
        say(f"  {node.node}: {workers}")
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_supervisor(self) -> None:
        """Kill and restart a node's supervisor; its workers stop cleanly meanwhile."""
        node = self._some(1)[0]
        say(f"  {node.node}")
        node.is_hit = True
        node.kill(alone=True)
        self._pause(0, 0, 1, 5)
        node.launch()

    def _stop(self, *seconds: float) -> None:
        node = self._some(1)[0]
        say(f"  {node.node}")
        node.signal(signal.SIGSTOP)
        self._pause(*(seconds or (2.5, 3.5, 5.0)))
        node.signal(signal.SIGCONT)

    def _stop_for_long(self) -> None:
        self._stop(7.0, 12.0)

    def _end(self) -> None:
        node = self._some(1)[0]
        say(f"  {node.node}")
        node.is_hit = True
        began = time.monotonic()
        threading.Timer(15, node.show_threads, (node.pid,)).start()
        status = node.stop(40)
        if (seconds := time.monotonic() - began) > 15 or status not in (
            0,
            -signal.SIGTERM,
        ):  # the latter before it has a handler
            self.problems.append(f"{node.node} took {seconds:.1f} s to end in order, with status {status}")
        self._pause(0, 0, 5)
        node.launch()

    def _change_copies(self) -> None:
        home = self._choose.choice(list(self.homes))
        for copies in self._choose.choice([(2, 3), (1, 3), (1, 2, 3), (2, 1, 3)]):
            say(f"  home {home}: {copies}")
            self.want(home, copies)
            time.sleep(self._choose.uniform(0, 6))
            if self._choose.random() < 0.4:
                self._kill_one()

    def _etcd_stops(self) -> None:
        self._member.pause(15)

    def _etcd_dies(self) -> None:
        self._member.kill()
        self._pause(1, 6)
        self._member.start()

    def _cut(self, *ways: tuple[int, int], seconds: float) -> None:
        say(f"  {ways} for {seconds} s")
        assert self._cuts is not None
        with ExitStack() as stack:
            for way in ways:
                stack.enter_context(self._cuts.cut(*way))
            time.sleep(seconds)

    def _cut_both_ways(self) -> None:
        one, two, _ = self._choose.sample(range(3), 3)
        self._cut((one, two), (two, one), seconds=self._choose.choice([2.5, 7, 12]))

    def _cut_one_way(self) -> None:
        one, two, _ = self._choose.sample(range(3), 3)
        self._cut((one, two), seconds=self._choose.choice([2.5, 7, 12]))

    def _cut_off(self) -> None:
        one, two, three = self._choose.sample(range(3), 3)
        self._cut((one, two), (two, one), (one, three), (three, one), seconds=self._choose.choice([2.5, 7, 12]))

    def _are_whole(self) -> bool:
        """Wait until all homes have all copies."""
        return wait(lambda: all(len(value.set) == 3 for value in self.configurations().values()), 20)

    def _empty(self) -> None:
        """Lose a disk while all other copies are complete."""
        if not self._are_whole():
            return say("  not now")
        node = self._some(1)[0]
        say(f"  {node.node}")
        node.down()
        for path in node.data_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._pause(0, 1, 8)
        node.launch()
        return None

    def _disk(self, calls: int, error: int, *seconds: float, count: int = -1, delay: float = 0.0) -> None:
        """Inject failures into a node's disk for a while. A failed or hanging sync may end the process (R9)."""
        node = self._some(1)[0]
        assert node.disk is not None
        node.may_end |= bool(calls & SYNC)
        before = node.disk.failed
        node.disk.fail(calls, error, count=count, delay=delay)
        self._pause(*seconds)
        node.disk.be_well()
        say(f"  {node.node}: {node.disk.failed - before} calls")

    def _full_disk(self) -> None:
        self._disk(CREATE | WRITE | ALLOCATE, errno.ENOSPC, 1, 5, 12)

    def _slow_disk(self) -> None:
        self._disk(WRITE | SYNC, SLOW, 5, 10, delay=self._choose.choice([0.02, 0.2, 1.5]))

    def _hanging_disk(self) -> None:
        self._disk(SYNC, SLOW, 3, 14, count=1, delay=self._choose.choice([4.0, 13.0]))

    def _failing_sync(self) -> None:
        self._disk(SYNC, errno.EIO, 2, count=1)

    def _lose_power(self) -> None:
        nodes = self._some(self._choose.choice([1, 1, 2, 3]))
        for node in nodes:
            node.is_hit = True
            node.signal(signal.SIGSTOP)
        for node in nodes:
            node.down()
        time.sleep(0.5)  # indexing processes end with their parent
        for node in nodes:
            assert node.disk is not None
            say(f"  {node.node}: {node.disk.lose_power(self._choose)} writes")
        self._pause(0, 1, 8)
        for node in nodes:
            node.launch()

    def _flip(self) -> None:
        """Flip a bit of a copy while all other copies are complete."""
        if not self._are_whole():
            return say("  not now")
        node = self._some(1)[0]
        node.down()
        if paths := sorted(node.data_dir.glob("copies/*/log/*.log")):
            path = self._choose.choice(paths)
            with path.open("r+b") as file:
                at = self._choose.randrange(max(path.stat().st_size, 1))
                octet = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([octet[0] ^ 1 << self._choose.randrange(8)]), at)
            say(f"  {path} at {at}")
        node.launch()
        return None

    # --- looks ---

    def watch(self, stop: threading.Event) -> None:
        """Restart processes that have ended unexpectedly, and note their ends."""
        while not stop.wait(0.3):
            for node in self.nodes:
                if node.ended():
                    if not node.may_end:
                        told, at = node.log.read_text(errors="replace")[-1500:], time.monotonic() - BEGAN
                        self.problems.append(f"{node.node} ended by itself at {at:.1f} s:\n{told}")
                    say(f"{node.node} ended by itself")
                    node.down()
                    node.launch()

    def is_well(self) -> str:
        """Return the unfinished recoveries; empty when all homes have all copies.

        After three failures of its node, a home has another leader for an hour; the node opens no ports meanwhile.
        """
        try:
            found = self.configurations()
        except (EtcdError, OSError) as error:
            return f"etcd: {error}"
        for home, value in found.items():
            if len(value.set) < 3:
                return f"home {home}: {value}"
        for node in self.nodes:
            if not all(node_of(value.leader) == node.node for value in found.values() if value.seat == node.node):
                continue
            try:
                requests.get(
                    f"http://guest:guest@127.0.0.1:{node.http_port}/api/overview", timeout=5
                ).raise_for_status()
            except requests.RequestException as error:
                return f"{node.node}: {error}"
        return ""

    def use(self) -> dict[str, tuple[int, int]]:
        """Open files and resident MB of every node."""
        found = {}
        for node in self.nodes:
            with contextlib.suppress(OSError):
                found[node.node] = len([*Path(f"/proc/{node.pid}/fd").iterdir()]), node.memory() >> 20
        return found


def say(what: str) -> None:
    print(f"{time.monotonic() - BEGAN:.1f} s: {what}", file=sys.stderr, flush=True)


def declare(node: Node, queues: list[str]) -> None:
    """Declare a queue of every kind at a node."""
    for queue in queues:
        wait(partial(is_declared, node, queue), 30)


def is_declared(node: Node, queue: str) -> bool:
    """Try to declare a queue; the chosen home may lack links at first."""
    with contextlib.suppress(*GONE):
        parameters = pika.ConnectionParameters("127.0.0.1", node.port, connection_attempts=5)
        with pika.BlockingConnection(parameters) as connection:
            arguments = {"x-queue-type": queue.partition("-")[0]}
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)
            return True
    return False


def wait(ready: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def run(
    seconds: float, seed: int, *, workers: int = 1, only: tuple[str, ...] = (), keep: Path | None = None
) -> list[str]:
    """Run the fuzzer once. Return the failures."""
    choose, history = random.Random(seed), History()
    stop_publishing, stop, unwatched = threading.Event(), threading.Event(), threading.Event()
    able = (*(CUTS if can_cut() else ()), *(OF_SEVERAL if workers > 1 else ()), *(DISKS if is_available() else ()))
    kinds = [kind for kind in only or BLOWS if kind in able or kind not in (*CUTS, *OF_SEVERAL, *DISKS)]
    with ExitStack() as stack:
        if keep is None:
            keep = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-copies-")))
        else:
            shutil.rmtree(keep, ignore_errors=True)
            keep.mkdir(parents=True)
        (member,) = stack.enter_context(etcd(keep))
        cuts = stack.enter_context(Cuts([f"-d {address_of(number)}" for number in range(3)])) if can_cut() else None
        nodes = [Node(number, keep, member.url, workers, cut=cuts is not None) for number in range(3)]
        cluster = Cluster(nodes, member, cuts, choose)
        for node in nodes:
            stack.callback(node.kill)
            node.launch()
            wait(partial(answers, node), 60)
        queues = [f"{kind}-{number}" for number in range(3) for kind in KINDS]
        for number, node in enumerate(nodes):
            declare(node, queues[number * 3 : number * 3 + 3])
        publishers = [
            Publisher(f"p{number}", cluster.port, history, stop_publishing, queues=queues, seed=seed + number)
            for number in range(2)
        ]
        consumers: list[Consumer] = [
            (Reader if queue.startswith("stream") else Consumer)(queue, cluster.port, history, stop, queue=queue)
            for queue in queues
        ]
        for client in (*publishers, *consumers):
            client.start()
        watcher = threading.Thread(target=cluster.watch, args=(unwatched,), daemon=True)
        watcher.start()
        wait(lambda: len(cluster.configurations()) == workers * len(nodes), 60)
        cluster.homes = {home: value.seat for home, value in cluster.configurations().items()}
        for home in cluster.homes:
            cluster.want(home, 3)
        time.sleep(choose.uniform(0, 4))
        end, blows, use = time.monotonic() + seconds, 0, dict[str, tuple[int, int]]()
        while time.monotonic() < end:
            kind = "kill one" if not blows and not only else choose.choices(kinds, [BLOWS[kind] for kind in kinds])[0]
            say(f"{kind}; {history.counts['confirmed']} confirmed, {history.counts['acknowledged']} acknowledged")
            cluster.strike(kind)
            blows += 1
            use = use or (cluster.use() if blows == 2 else {})
            time.sleep(choose.choice([0.5, 3, 6, 12]))
        for home in cluster.homes:
            cluster.want(home, 3)
        say(f"all is mended; {history.counts}")
        wrong = [] if wait(lambda: not cluster.is_well(), PATIENCE) else [f"not well: {cluster.is_well()}"]
        before = history.counts["confirmed"]
        say(f"all is well, or not; open files and MB: {use}, and now {cluster.use()}")
        if not wait(lambda: history.counts["confirmed"] > before + 20, PATIENCE):
            wrong.append("nothing is confirmed any more")
        stop_publishing.set()
        for client in publishers:
            client.join(30)
        rest, until = 1 << 60, time.monotonic() + PATIENCE
        while (now := sum(map(len, history.waiting.values()))) and time.monotonic() < until:
            if now < rest:
                rest, until = now, time.monotonic() + 40
            time.sleep(0.2)
        say(f"all is consumed, or not: {now} are missing")
        stop.set()
        for client in consumers:
            client.join(10)
        (keep / "history").write_text("".join(f"{json.dumps(one)}\n" for one in history.operations))
        for node in nodes:
            node.is_hit = True
            if status := node.stop(40):
                wrong.append(f"{node.node} ended with status {status}")
        unwatched.set()  # not before: the end of the watching thread kills its child processes
        watcher.join(10)
        wrong += problems(history.operations) + cluster.problems + alarms(keep)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(history.counts.items()))
    print(f"{blows} blows; {counts}")
    return wrong


def answers(node: Node) -> bool:
    """Return true if a node accepts clients."""
    with contextlib.suppress(*GONE):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port, socket_timeout=2)).close()
        return True
    return False


def alarms(directory: Path) -> list[str]:
    """Return the tracebacks in the logs, except of failed syncs."""
    found = []
    for path in sorted(directory.glob("node-*.log")):
        text = path.read_text(errors="replace")
        tracebacks = re.finditer(r"^Traceback .*?(?=^\S(?<!T))", text, re.MULTILINE | re.DOTALL)
        told = [match for match in tracebacks if not text.startswith(FAIL_STOP, match.end())]
        found += [f"{path.name}: {match[0][-700:]}" for match in told]
    return found[:5]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--workers", type=int, default=1, help="of each node")
    parser.add_argument("--only", default="", help="blows, with commas")
    parser.add_argument("--keep", type=Path, help="folder for history, logs and data")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    only = tuple(filter(None, given.only.split(",")))
    wrong = run(given.seconds, given.seed, workers=given.workers, only=only, keep=given.keep)
    for problem in wrong:
        print(problem)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
