"""After the loss of etcd's data, homes with copies continue with a copy of all confirmed messages."""

import asyncio
import threading

import pytest
from tests.etcd import needs_etcd
from tests.nodes.copies.copied_nodes import KEYS, NAMES, Node, Nodes, published, served, taken, until

from jumpmq.broker import BrokerError
from jumpmq.nodes.etcd.client import Etcd, delete, end_of

pytestmark = [needs_etcd, pytest.mark.several, pytest.mark.slow]


def lose_all(url: str) -> None:
    """Delete the cluster's keys in etcd."""

    async def lose() -> None:
        client = Etcd([url])
        await client.transaction([], [delete(KEYS.all, end_of(KEYS.all))])
        await client.close()

    asyncio.run(lose())


def begin(node: Node) -> threading.Event:
    """Start a node in a thread, without waiting; return the event of its first accepted client."""
    started = threading.Event()

    def run() -> None:
        node.start()
        started.set()
        threading.Event().wait()  # a process ends with the thread that has started it

    threading.Thread(target=run, daemon=True).start()
    return started


def with_options(node: Node, *options: str) -> Node:
    node._arguments = (*node._arguments, *options)
    return node


def test_a_home_goes_on_with_a_copy_that_has_all(three: Nodes) -> None:
    one, two, other = three.all
    published(one, "q", range(50))
    three.copied()
    one.kill()  # from now on this node's copy is older than the other copies
    assert served(two, "q") == 50
    published(two, "q", range(50, 120))
    before = three.configuration()
    for node in (two, other):
        node.kill()
    lose_all(three.url)
    with_options(two, "--recover-cluster", "true").start()
    started = begin(one)
    until(lambda: "home 1 waits, as etcd has lost it: what node 'n3@host'" in one.log.read_text())
    other.start()
    assert started.wait(180)
    value = three.configuration()
    assert value.epoch > before.epoch + 100 and value.members == before.members and value.seat == NAMES[0]
    assert sorted(taken(one, "q")) == list(range(120))


def test_the_definitions_come_from_a_copy_and_a_lost_node_is_not_waited_for(three: Nodes) -> None:
    one, two, other = three.all
    published(one, "q", range(50))
    three.copied()
    published(one, "q", range(50, 80))
    for node in (other, one, two):
        node.kill()
    lose_all(three.url)
    with pytest.raises(BrokerError, match="the last entry of the log here is"):
        one.start()
    one.kill()
    started = begin(with_options(one, "--recover-cluster", "true", "--recover-without", other.node))
    until(lambda: "home 1 waits, as etcd has lost it: what node 'n2@host' has" in one.log.read_text())
    two.start()
    assert started.wait(180)
    assert sorted(taken(one, "q")) == list(range(80))
