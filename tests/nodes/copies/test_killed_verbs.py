"""Changes of copies and nodes, with the changing process killed after every write to etcd.

The repeated command finishes, and no confirmed message is lost.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from tests.etcd import needs_etcd
from tests.nodes.copies.operated_cluster import NODES, Cluster, answered, running
from tests.waiting import until

from jumpmq._child_processes import package_environment
from jumpmq.testing import JumpMQ

pytestmark = [needs_etcd, pytest.mark.slow]

ONE, TWO, THREE = NODES

STEPS = 5.0
"""Seconds for the leader to write all steps of a change."""

KILLED = """
import base64, os, signal
from pathlib import Path
from jumpmq.cli.jumpmq import main
from jumpmq.nodes.etcd.client import Etcd

order, transaction = Path("kill"), Etcd.transaction

def keys(operations):
    for one in operations:
        for operation in one.values():
            yield base64.b64decode(operation["key"]).decode().removeprefix("/jumpmq/test/")

async def killed(etcd, comparisons, operations, *others):
    done = await transaction(etcd, comparisons, operations, *others)
    if order.exists() and done[0]:
        prefix, count = order.read_text().split()
        writes = [one for one in operations if "request_range" not in one]
        if any(key.startswith(prefix) for key in keys(writes)):
            order.write_text(f"{prefix} {int(count) - 1}")
            if int(count) == 1:
                order.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
    return done

Etcd.transaction = killed
main()
"""


class Killed(JumpMQ):
    """A node killed after a number of writes of a key in etcd."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", KILLED]

    def after(self, prefix: str, count: int = 1) -> None:
        """Kill the node after so many writes of keys with a prefix."""
        (self.directory / "new").write_text(f"{prefix} {count}")
        (self.directory / "new").rename(self.directory / "kill")

    @property
    def is_killed(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def again(self) -> None:
        """Start the killed node; return before the ports are open, which may wait for the home."""
        (self.directory / "kill").unlink(missing_ok=True)
        self.kill()
        serve = ["serve", "--data-dir", str(self.data_dir), "--node", self.node]
        self._launch([*self.command, *serve, *self._arguments], package_environment())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path, Killed) as cluster:
        yield cluster


def _publish(cluster: Cluster, count: int) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", "q", b"confirmed", pika.BasicProperties(delivery_mode=2))


def _messages(cluster: Cluster) -> int:
    return int(cluster.ask("GET", "queues/%2F/q", at=1)[1].get("messages", 0))


def _node(cluster: Cluster, number: int) -> Killed:
    node = cluster.nodes[number]
    assert isinstance(node, Killed)
    return node


def _repeated(cluster: Cluster, *command: str, writes: int) -> None:
    """Repeat a command until completion, with one kill per call.

    First the second node is killed after its write, then the leader of home 1 after its first write, after
    two, and so on. The last command finishes without a kill.
    """
    _killed(cluster, "wanted/1", *command)
    for count in range(1, writes + 1):
        until(lambda: answered(lambda: cluster.copies(1, at=1)["running"]))
        leader = _node(cluster, NODES.index(cluster.copies(1, at=1)["leader"]))
        leader.after("home/1", count)
        cluster.control(*command, at=1)
        deadline = time.monotonic() + STEPS
        while not leader.is_killed and time.monotonic() < deadline:
            time.sleep(0.05)
        if leader.is_killed:
            leader.again()
    for node in NODES:
        (_node(cluster, NODES.index(node)).directory / "kill").unlink(missing_ok=True)
    until(lambda: answered(lambda: _finishes(cluster, *command)))


def _finishes(cluster: Cluster, *command: str) -> bool:
    """Give a command; then return the home to the home's own node, if necessary."""
    if cluster.control(*command, at=1).returncode != 0:
        _returns(cluster)
        return False
    return True


def _returns(cluster: Cluster) -> bool:
    return cluster.control("transfer_leadership", "1", ONE, at=1).returncode == 0


def _killed(cluster: Cluster, prefix: str, *command: str) -> None:
    """Give a command to the second node, which is killed after the write of a key, and restart the node."""
    node = _node(cluster, 1)
    node.after(prefix)
    assert cluster.control(*command, at=1).returncode != 0
    assert node.is_killed, prefix
    node.again()
    until(lambda: answered(lambda: cluster.ask("GET", "nodes", at=1)[0] == 200))


def _at(cluster: Cluster, *members: str) -> bool:
    states = cluster.states(1, at=1)
    return sorted(states) == sorted(members) and {*states.values()} == {"leader", "in set"}


def test_a_killed_change_of_copies_is_repeated_and_finishes(cluster: Cluster) -> None:
    _publish(cluster, 10)
    _repeated(cluster, "set_copies", "3", "--home", "1", writes=2)
    until(lambda: answered(lambda: _at(cluster, *NODES) and cluster.copies(1, at=1)["min"] == 2))
    until(lambda: _returns(cluster) and cluster.copies(1, at=1)["leader"] == ONE)
    _repeated(cluster, "shrink", THREE, writes=1)
    until(lambda: answered(lambda: _at(cluster, ONE, TWO)))
    _repeated(cluster, "add_member", "q", THREE, writes=1)
    until(lambda: answered(lambda: _at(cluster, *NODES)))
    until(lambda: answered(lambda: _messages(cluster) == 10))


def test_a_killed_removal_of_a_node_is_repeated_and_finishes(cluster: Cluster) -> None:
    _publish(cluster, 10)
    cluster.output("set_copies", "2", "--home", "3", at=1)
    until(lambda: answered(lambda: cluster.states(3, at=1) == {THREE: "leader", ONE: "in set"}))
    cluster.nodes[2].kill()
    until(lambda: answered(lambda: cluster.states(3, at=1) == {THREE: "away", ONE: "leader"}))
    until(lambda: cluster.copies(3, at=1)["running"])
    for prefix in ("log/", "home/3", "log/"):  # the home is left, and ended; the node is forgotten
        _killed(cluster, prefix, "forget_cluster_node", THREE)
    repeated = cluster.control("forget_cluster_node", THREE, at=1)
    assert (repeated.returncode, repeated.stderr) == (65, f"Error:\nnode '{THREE}' is not in the cluster\n")
    until(lambda: answered(lambda: [one["home"] for one in cluster.ask("GET", "copies")[1]] == [1, 2]))
    assert [one["name"] for one in cluster.ask("GET", "nodes")[1]] == [ONE, TWO]
    assert _messages(cluster) == 10


def test_a_node_that_starts_after_an_interrupted_removal_gets_queues_again(cluster: Cluster) -> None:
    cluster.output("set_copies", "2", "--home", "3", at=1)
    until(lambda: answered(lambda: cluster.states(3, at=1) == {THREE: "leader", ONE: "in set"}))
    cluster.nodes[2].kill()
    until(lambda: answered(lambda: cluster.states(3, at=1) == {THREE: "away", ONE: "leader"}))
    until(lambda: cluster.copies(3, at=1)["running"])
    _killed(cluster, "log/", "forget_cluster_node", THREE)
    _node(cluster, 2).again()
    until(lambda: answered(lambda: cluster.control("transfer_leadership", "3", THREE, at=1).returncode == 0))
    until(lambda: answered(lambda: [one["leaves"] for one in cluster.ask("GET", "workers", at=2)[1]] == [False]))
