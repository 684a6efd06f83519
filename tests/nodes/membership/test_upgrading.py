"""A cluster of an earlier commit is upgraded node by node, and back: nodes of both are one broker meanwhile.

Only with `JUMPMQ_EARLIER=FOLDER`, another checkout whose kernels are built, say of the last commit without epochs:

    git worktree add /tmp/earlier d63e9fcc
    cd /tmp/earlier && python setup.py build_ext --inplace
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import pytest
from tests.etcd import etcd, needs_etcd
from tests.waiting import until

from jumpmq.testing import JumpMQ

pytestmark = [needs_etcd, pytest.mark.slow]

EARLIER = os.environ.get("JUMPMQ_EARLIER")

if EARLIER is None:
    pytest.skip("JUMPMQ_EARLIER names no checkout", allow_module_level=True)


class Node(JumpMQ):
    """A node of the current or an earlier commit, selected before every start."""

    is_earlier = True

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        if self.is_earlier:
            environment = environment | {"PYTHONPATH": f"{EARLIER}/src"}
        super()._launch(command, environment)


class Upgraded:
    """The nodes, and all confirmed messages."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.expected: dict[str, list[bytes]] = {}

    def declare(self, at: Node, queue: str) -> None:
        """Declare a queue at a node, and use the queue at all nodes at once."""
        with _channel(at) as channel:
            channel.queue_declare(queue, durable=True)
            self.expected[queue] = []
        for node in self.nodes:
            with _channel(node) as channel:
                assert channel.queue_declare(queue, passive=True).method.message_count == 0

    def publish(self) -> None:
        """Publish to all queues at all nodes."""
        for node in self.nodes:
            with _channel(node) as channel:
                channel.confirm_delivery()
                for queue, expected in self.expected.items():
                    body = b"%d" % len(expected)
                    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
                    expected.append(body)

    def read_all(self) -> None:
        for place, (queue, expected) in enumerate(self.expected.items()):
            with _channel(self.nodes[place % len(self.nodes)]) as channel:
                found = [channel.basic_get(queue, auto_ack=True)[2] for _ in expected]
                assert found == expected
                assert channel.basic_get(queue)[0] is None


@contextmanager
def _channel(node: Node) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        yield connection.channel()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Upgraded]:
    with etcd(tmp_path) as members, ExitStack() as running:
        nodes = []
        for number in range(3):
            options = ("--cluster", "test", "--etcd", members[0].url, "--queue-leader-locator", "client-local")
            nodes.append(running.enter_context(Node(tmp_path / f"node-{number}", f"n{number}@localhost", options)))
        yield Upgraded(nodes)


def test_nodes_are_upgraded_one_by_one_and_one_goes_back(cluster: Upgraded) -> None:
    for number, node in enumerate(cluster.nodes):
        cluster.declare(node, f"before-{number}")
    cluster.publish()
    steps = [(0, False), (1, False), (0, True), (0, False), (2, False)]
    for step, (number, is_earlier) in enumerate(steps):
        node = cluster.nodes[number]
        if step % 2:
            node.kill()
        else:
            node.stop()
        node.is_earlier = is_earlier
        node.start()
        until(lambda: _all_answer(cluster))
        for place, at in enumerate(cluster.nodes):
            cluster.declare(at, f"after-{step}-{place}")
        cluster.publish()
    cluster.read_all()


def _all_answer(cluster: Upgraded) -> bool:
    """Return True if every node reaches the queues of all nodes."""
    for node in cluster.nodes:
        try:
            with _channel(node) as channel:
                for queue in cluster.expected:
                    channel.queue_declare(queue, passive=True)
        except (pika.exceptions.AMQPError, OSError):
            return False
    return True
