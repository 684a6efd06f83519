"""A cluster of three nodes next to RabbitMQ's: messages between nodes and on one node, and definitions.

    python -m benchmarks.cluster [-n MESSAGES]

All nodes are on this machine; JumpMQ's cluster has an etcd of one member, which syncs. A queue is at the node of its
declaration, as a classic queue of RabbitMQ. A rate covers a whole run: until the last confirm, or the last delivery.
At the end a fourth node joins: measured from the start of its process until it serves clients with all definitions.
Work on one node is also measured on a broker without a cluster, together with the processor time per message.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.load.client import Address, Connection
from benchmarks.load.options import Load
from benchmarks.load.processes import together
from benchmarks.load.roles import consumer, publisher
from benchmarks.load.traffic import Messages
from jumpmq.management import ManagementClient
from jumpmq.testing import BrokerProcess, JumpMQ, RabbitMQ, RabbitMQNode
from jumpmq.testing.etcd import etcd, is_installed

NODES = 3
RING = "ring"
DECLARED_ALONE = 200
DECLARED_TOGETHER = 1000
DECLARERS = 16
QUEUES, BINDINGS = 1000, 10_000
"""Definitions present when the fourth node joins."""
NEAR = "publish to a queue of the same node, messages/s", "consume from it, messages/s"
CPU = "processor time of both for a message, us"
JOINING = f"a fourth node joins {QUEUES:,} queues and {BINDINGS:,} bindings, s"


Cluster = tuple[Sequence[BrokerProcess], Callable[[], BrokerProcess]]
"""Three nodes, and a factory of a fourth node."""


@contextmanager
def jumpmq_cluster() -> Iterator[Cluster]:
    """Three nodes with an etcd."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-benchmark-")))
        (member,) = stack.enter_context(etcd(directory, sync=True))

        def node(number: int) -> JumpMQ:
            return JumpMQ(directory / f"node-{number}", f"node{number}@host", ("--cluster", "b", "--etcd", member.url))

        yield [stack.enter_context(node(number)) for number in range(NODES)], lambda: node(NODES)


@contextmanager
def rabbitmq_cluster() -> Iterator[Cluster]:
    """Three nodes of RabbitMQ."""
    with ExitStack() as stack:
        first = stack.enter_context(RabbitMQNode())
        nodes = [first, *(stack.enter_context(RabbitMQNode(first)) for _ in range(NODES - 1))]
        yield nodes, lambda: RabbitMQNode(first)


def load_of(node: BrokerProcess, exchange: str, count: int) -> Load:
    """Persistent messages of 100 octets, confirmed 500 at a time."""
    return Load(
        Address(node.port), Messages(exchange, 100, 1_000_000, True), "x-consistent-hash", 1, 1, count,
        True, 500, 1, 1000, 200, False, False, 0.0, 0.0, 0,
    )  # fmt: skip


def prepare(nodes: Sequence[BrokerProcess], exchange: str, homes: Sequence[int]) -> list[str]:
    """Declare a hash exchange with a queue at each of the given nodes. Return the names for :func:`load_of`."""
    names = [exchange if len(homes) == 1 else f"{exchange}.{home}" for home in homes]
    for name, home in zip(names, homes, strict=True):
        with closing(Connection(Address(nodes[home].port))) as connection:
            connection.declare_exchange(exchange, "x-consistent-hash")
            connection.declare_queue(f"{name}.q0")
            connection.bind(f"{name}.q0", exchange, "1")
    return names


def publish(nodes: Sequence[BrokerProcess], name: str, home: int, count: int) -> float:
    """Publishes per second to a queue at a node, through the first node."""
    prepare(nodes, name, [home])
    (figures,) = together([publisher(load_of(nodes[0], name, count), 0)])
    return count / float(figures["seconds"])


def consume(nodes: Sequence[BrokerProcess], name: str, count: int) -> float:
    """Deliveries per second of the messages left by :func:`publish`, through the first node."""
    (figures,) = together([consumer(load_of(nodes[0], name, count), count)])
    return count / float(figures["seconds"])


def spread(nodes: Sequence[BrokerProcess], count: int) -> float:
    """Messages per second through a hash exchange over the queues of all nodes, each consumed at its node."""
    names = prepare(nodes, RING, range(NODES))
    with closing(Connection(Address(nodes[0].port))) as connection:
        connection.declare_queue(f"{RING}.q0")  # for the publisher's passive declaration at its end
    publishing = publisher(load_of(nodes[0], RING, count), 0)
    together([publishing])  # consumers need the number of messages in advance
    roles = [publishing]
    for name, node in zip(names, nodes, strict=True):
        with closing(Connection(Address(node.port))) as connection:
            share = connection.count(f"{name}.q0")
            connection.purge(f"{name}.q0")
        roles.append(consumer(load_of(node, name, share), share))
    return count / max(float(one["seconds"]) for one in together(roles))


def declare_alone(nodes: Sequence[BrokerProcess]) -> float:
    """Median time of one declaration, in milliseconds."""
    times = []
    with closing(Connection(Address(nodes[0].port))) as connection:
        for number in range(DECLARED_ALONE):
            began = time.perf_counter()
            connection.declare_queue(f"alone-{number}")
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def declare_together(nodes: Sequence[BrokerProcess]) -> float:
    """Declarations per second of many clients, distributed over the nodes."""

    def work(client: int) -> None:
        with closing(Connection(Address(nodes[client % NODES].port))) as connection:
            for number in range(DECLARED_TOGETHER // DECLARERS):
                connection.declare_queue(f"together-{client}-{number}")

    threads = [threading.Thread(target=work, args=(client,)) for client in range(DECLARERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return DECLARED_TOGETHER / (time.perf_counter() - began)


def fill(node: BrokerProcess) -> None:
    """Declare the definitions that the fourth node receives."""
    names = [f"many-{number}" for number in range(QUEUES)]
    each = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    bindings = [
        {"source": "many", "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": f"{key}"}
        | {"arguments": {}}
        for name in names
        for key in range(BINDINGS // QUEUES)
    ]
    definitions: dict[str, Any] = {
        "exchanges": [{"name": "many", "type": "direct", "internal": False} | each],
        "queues": [{"name": name} | each for name in names],
        "bindings": bindings,
    }
    ManagementClient(f"http://guest:guest@127.0.0.1:{node.http_port}", 300.0).post("definitions", body=definitions)


def joined(nodes: Sequence[BrokerProcess], make: Callable[[], BrokerProcess]) -> float:
    """Seconds until a new node serves clients with all definitions."""
    fill(nodes[0])
    node = make()
    try:
        began = time.perf_counter()
        node.start()
        with closing(Connection(Address(node.port))) as connection:
            connection.count(f"many-{QUEUES - 1}")
        return time.perf_counter() - began
    finally:
        node.close()


def near(nodes: Sequence[BrokerProcess], count: int) -> dict[str, float]:
    """Rates and processor time of work on one node."""
    cpu = nodes[0].cpu_seconds()
    found = {NEAR[0]: publish(nodes, "near", 0, count), NEAR[1]: consume(nodes, "near", count)}
    return found | {CPU: (nodes[0].cpu_seconds() - cpu) / count * 1e6}


def measured(nodes: Sequence[BrokerProcess], make: Callable[[], BrokerProcess], count: int) -> dict[str, float]:
    """All lines."""
    found = near(nodes, count)
    found["publish to a queue of another node, messages/s"] = publish(nodes, "far", 1, count)
    found["consume from that, messages/s"] = consume(nodes, "far", count)
    found["a hash exchange over three nodes, consumed at each, messages/s"] = spread(nodes, count)
    found["a declaration, alone, ms (p50)"] = declare_alone(nodes)
    found[f"declarations/s of {DECLARERS} clients"] = declare_together(nodes)
    found[JOINING] = joined(nodes, make)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=60_000, help="messages of a line")
    count = parser.parse_args().n
    if not is_installed():
        sys.exit("etcd is not installed: apt-get install etcd-server")
    columns: dict[str, dict[str, float]] = {}
    with jumpmq_cluster() as (nodes, make):
        columns["JumpMQ"] = measured(nodes, make, count)
    if RabbitMQ.available():
        with rabbitmq_cluster() as (nodes, make):
            version = ".".join(map(str, RabbitMQ().version))
            columns[f"RabbitMQ {version}"] = measured(nodes, make, count)
    with JumpMQ() as alone:
        columns["JumpMQ without a cluster"] = near([alone], count)
    print(f"| three nodes on {len(os.sched_getaffinity(0))} cores | {' | '.join(columns)} |")
    print(f"| --- |{' ---: |' * len(columns)}")
    for line in next(iter(columns.values())):
        figures = (f"{column[line]:,.1f}" if line in column else "" for column in columns.values())
        print(f"| {line} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
