"""Effects of lost nodes on clients: homes with three copies next to RabbitMQ's quorum queues, event by event.

    python -m benchmarks.outages [--only "leader killed,…"] [--brokers jumpmq,rabbitmq]

Three nodes on this machine. The second node leads a queue; a publisher with confirms and a consumer with
acknowledgements use the durable queue through the first node, which no event affects. After a few seconds an event
begins, lasts fifteen seconds, and ends; then the rest is consumed, and :mod:`fuzzing.history` verifies the clients'
observations. Printed are the longest time without a confirm and without a delivery, the number of refused messages,
and violations. Network partitions require root and iptables, and are skipped elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pika
import requests
from fuzzing.copies import GONE, Consumer, History, Node, Publisher, address_of
from fuzzing.history import problems
from tests.cutting import Cuts, can_cut, run_as

from jumpmq.broker import BrokerError
from jumpmq.testing import Installation, RabbitMQ, RabbitMQNode
from jumpmq.testing.etcd import etcd

NODES = 3
LEADER, FOLLOWER = 1, 2
"""Nodes affected by events; clients are at the first node."""

BEFORE, LASTS = 6.0, 15.0
"""Seconds before an event, and duration of an event."""

PATIENCE = 150.0

EVENTS = (
    "leader killed",
    "follower killed",
    "leader ended in order",
    "leader stopped",
    "follower stopped",
    "leader cut off",
    "follower cut off",
    "both others killed",
    "leader's disk emptied",
)


class Broker(Protocol):
    """A node of either broker."""

    port: int
    http_port: int

    def launch(self) -> None:
        """Start the node again, without waiting for it."""

    def down(self) -> None:
        """Kill the node with all of its processes."""

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the node."""

    def empty(self) -> None:
        """Delete the node's data directory."""

    def stop(self, timeout: float = 30) -> int:
        """Stop the node cleanly."""


class Own(Node):
    """A node of JumpMQ."""

    def empty(self) -> None:
        shutil.rmtree(self.data_dir)


class Rival(RabbitMQNode):
    """A node of RabbitMQ whose packets iptables can identify."""

    def __init__(self, number: int, first: RabbitMQNode | None) -> None:
        super().__init__(first)
        self.number = number

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        super()._launch(run_as(self.number, command) if can_cut() else command, environment)

    def launch(self) -> None:
        self._launch(self._command("rabbitmq-server"), self._environment())

    def down(self) -> None:
        self.kill()

    def signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def empty(self) -> None:
        for path in self.directory.iterdir():
            if path.is_dir() and path.name not in ("home", "epmd"):
                shutil.rmtree(path)


class Clock(History):
    """A history that notes the time of every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, list[float]] = {"confirmed": [], "got": []}

    def note(self, operation: str, queue: str, *rest: Any) -> None:
        super().note(operation, queue, *rest)
        if operation in self.times:
            self.times[operation].append(time.monotonic())

    def longest(self, operation: str, since: float, until: float) -> float:
        """Return the longest time without an operation."""
        moments = [since, *(one for one in self.times[operation] if since <= one <= until), until]
        return max(later - earlier for earlier, later in pairwise(moments))


@contextmanager
def own(directory: Path) -> Iterator[tuple[list[Broker], Cuts | None, Callable[[str], bool]]]:
    """Three nodes of JumpMQ, with three copies of every home."""
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(directory, sync=True))
        cuts = stack.enter_context(Cuts([f"-d {address_of(number)}" for number in range(NODES)])) if can_cut() else None
        nodes = [Own(number, directory, member.url, 1, cut=cuts is not None, copies=NODES) for number in range(NODES)]
        for node in nodes:
            stack.callback(node.kill)
            node.launch()
            wait(lambda node=node: answers(node))

        def is_well(queue: str) -> bool:
            homes = asked(nodes[0], "copies")
            return len(homes) == NODES and all((one["in_set"], one["leader"]) == (NODES, one["seat"]) for one in homes)

        yield list(nodes), cuts, is_well


@contextmanager
def rivals(directory: Path) -> Iterator[tuple[list[Broker], Cuts | None, Callable[[str], bool]]]:
    """Three nodes of RabbitMQ."""
    with ExitStack() as stack:
        nodes = [first := stack.enter_context(Rival(0, None))]
        nodes += [Rival(number, first) for number in range(1, NODES)]
        where = [f"--dport {node._dist_port}" for node in nodes]
        cuts = stack.enter_context(Cuts(where)) if can_cut() else None  # before they connect
        for node in nodes[1:]:
            stack.enter_context(node)

        def is_well(queue: str) -> bool:
            if not all(answers(node) for node in nodes):
                return False
            found = asked(nodes[0], f"queues/%2F/{queue}") if queue else {"online": nodes}
            return len(found.get("online", ())) == NODES

        yield list(nodes), cuts, is_well


def asked(node: Broker, path: str) -> Any:
    """Return the JSON answer of a node's management API."""
    answer = requests.get(f"http://guest:guest@127.0.0.1:{node.http_port}/api/{path}", timeout=10)
    answer.raise_for_status()
    return answer.json()


def answers(node: Broker) -> bool:
    """Return true if a node accepts clients."""
    with contextlib.suppress(*GONE):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port, socket_timeout=3)).close()
        return True
    return False


def wait(ready: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """Wait for a condition. Return the seconds."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        with contextlib.suppress(requests.RequestException, *GONE):
            if ready():
                return time.monotonic() - began
        time.sleep(0.3)
    raise BrokerError("what was waited for does not come")


def happen(event: str, nodes: list[Broker], cuts: Cuts | None) -> None:
    """Begin an event, and end it."""
    hit = nodes[FOLLOWER if event.startswith("follower") else LEADER]
    if "killed" in event or "disk" in event:
        down = nodes[1:] if event.startswith("both") else [hit]
        for node in down:
            node.down()
        if "disk" in event:
            hit.empty()
        time.sleep(LASTS)
        for node in down:
            node.launch()
    elif "in order" in event:
        threading.Thread(target=hit.stop, args=(60,)).start()
        time.sleep(LASTS)
        hit.stop(60)
        hit.launch()
    elif "stopped" in event:
        hit.signal(signal.SIGSTOP)
        time.sleep(LASTS)
        hit.signal(signal.SIGCONT)
    elif cuts is not None:
        one = nodes.index(hit)
        with ExitStack() as stack:
            for other in {0, 1, 2} - {one}:
                stack.enter_context(cuts.cut(one, other))
                stack.enter_context(cuts.cut(other, one))
            time.sleep(LASTS)


def trial(event: str, nodes: list[Broker], cuts: Cuts | None, is_well: Callable[[str], bool]) -> str:
    """Run an event. Return its row of the table."""
    queue = event.replace(" ", "-").replace("'", "")
    parameters = pika.ConnectionParameters("127.0.0.1", nodes[LEADER].port)
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    wait(lambda: is_well(queue))
    history, stop_publishing, stop = Clock(), threading.Event(), threading.Event()

    def port() -> int:
        return nodes[0].port

    clients = [
        Publisher("p", port, history, stop_publishing, queues=[queue], seed=1),
        Consumer("c", port, history, stop, queue=queue),
    ]
    for client in clients:
        client.start()
    time.sleep(BEFORE)
    since = time.monotonic()
    happen(event, nodes, cuts)
    ended = time.monotonic()
    try:
        again = f"{wait(lambda: is_well(queue)):.0f}"
    except BrokerError:
        again = "not by itself"
    until = time.monotonic()
    stop_publishing.set()
    clients[0].join(30)
    with contextlib.suppress(BrokerError):
        wait(lambda: not any(history.waiting.values()), 60)
    stop.set()
    clients[1].join(10)
    wrong = [one.replace("|", "/") for one in problems(history.operations)]
    confirms, deliveries = (history.longest(one, since, until) for one in ("confirmed", "got"))
    during = history.longest("confirmed", since, ended)
    counts = history.counts
    return (
        f"| {event} | {confirms:.1f} ({during:.1f} before its end) | {deliveries:.1f} | {counts['confirmed']} | "
        f"{counts['refused']} | {again} | {'; '.join(wrong) or '-'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(EVENTS))
    parser.add_argument("--brokers", default="jumpmq,rabbitmq")
    options = parser.parse_args()
    events = [one for one in options.only.split(",") if "cut" not in one or can_cut()]
    for name, cluster in (("jumpmq", own), ("rabbitmq", rivals)):
        if name not in options.brokers:
            continue
        if name == "rabbitmq":
            if not RabbitMQ.available():
                continue
            name = f"RabbitMQ {Installation.all()[0].number}"
        print(f"\n| {name}: what happens | s without a confirm | s without a delivery | confirmed | refused "
              "| s until three copies again | wrong |\n| --- |" + " ---: |" * 5 + " --- |", flush=True)  # fmt: skip
        for event in events:  # a new cluster per event: repeated faults delay the return of a home to its seat
            with (
                tempfile.TemporaryDirectory(prefix="jumpmq-outages-") as directory,
                cluster(Path(directory)) as (nodes, cuts, is_well),
            ):
                wait(lambda: is_well(""))
                print(trial(event, nodes, cuts, is_well), flush=True)


if __name__ == "__main__":
    sys.exit(main())
