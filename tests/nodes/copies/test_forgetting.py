"""A node is not forgotten while only the node has all confirmed messages of a home, at three nodes with a real etcd."""

import threading

import pika
from tests.etcd import needs_etcd
from tests.nodes.copies.operated_cluster import NODES, Cluster, answered
from tests.waiting import PATIENCE, until

pytestmark = needs_etcd

ONE, TWO, THREE = NODES


def _publish(cluster: Cluster, at: int, queue: str) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.nodes[at].port)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"confirmed", pika.BasicProperties(delivery_mode=2))


def _refusal(cluster: Cluster, node: str, at: int, *options: str) -> str:
    """Return the command's refusal, which the API gives too, before or after: a lease may end in between."""
    query = "?accept-loss=true" if options else ""

    def reason() -> str:
        status, refusal = cluster.ask("DELETE", f"nodes/{node}{query}", at=at)
        assert (status, refusal["error"]) == (400, "bad_request")
        return str(refusal["reason"])

    before = reason()
    refused = cluster.control("forget_cluster_node", node, *options, at=at)
    assert refused.returncode == 69
    assert refused.stderr in (f"Error:\n{before}\n", f"Error:\n{reason()}\n")
    return refused.stderr.removeprefix("Error:\n").removesuffix("\n")


def _starts(cluster: Cluster, started: threading.Event, over: threading.Event) -> None:
    """Start the third node in a thread; without a serving copy of its home the node opens no port."""
    cluster.nodes[2].start()
    started.set()
    over.wait()


def test_the_last_complete_copy_is_not_forgotten(cluster: Cluster) -> None:
    cluster.output("set_copies", "2", "--home", "1", at=1)
    cluster.output("set_copies", "2", "--home", "3", at=1)
    both = {ONE: "leader", TWO: "in set"}, {THREE: "leader", ONE: "in set"}
    until(lambda: answered(lambda: (cluster.states(1, at=1), cluster.states(3, at=1)) == both))
    until(lambda: answered(lambda: all(one["running"] for one in cluster.ask("GET", "nodes", at=1)[1])))
    assert _refusal(cluster, ONE, 1, "--yes") == f"node '{ONE}' runs: the node must be stopped first"

    _publish(cluster, 2, "three")
    cluster.nodes[1].kill()
    _publish(cluster, 0, "one")
    until(lambda: answered(lambda: cluster.states(1) == {ONE: "leader", TWO: "away"}))
    cluster.nodes[2].kill()
    until(lambda: answered(lambda: cluster.states(3) == {THREE: "away", ONE: "leader"}))
    until(lambda: answered(lambda: cluster.ask("GET", "queues/%2F/three")[1]["state"] == "running"))
    _publish(cluster, 0, "three")
    cluster.nodes[0].kill()
    cluster.nodes[1].start()
    started, over = threading.Event(), threading.Event()
    threading.Thread(target=_starts, args=(cluster, started, over), daemon=True).start()

    until(lambda: "etcd notices" not in _refusal(cluster, ONE, 1))
    own = (
        f"node '{ONE}' has the only complete copy of its home 1 (durable queues: 1), whose messages would be lost: "
        f"start the node and drain it, or give up a part of them with `jumpmq force-leader 1` at node '{TWO}', or "
        f"accept the loss (--yes)"
    )
    other = (
        f"node '{ONE}' has the only complete copy of home 3 of node '{THREE}', whose messages would be lost: start "
        f"node '{ONE}' until another copy is in the set, or give up messages with `jumpmq force-leader 3` at node "
        f"'{THREE}'"
    )
    assert _refusal(cluster, ONE, 1) == f"{own}; {other}"
    assert _refusal(cluster, ONE, 1, "--yes") == other

    cluster.nodes[0].start()
    assert started.wait(PATIENCE)
    until(lambda: answered(lambda: cluster.ask("GET", "queues/%2F/one", at=1)[1].get("messages") == 1))
    until(lambda: answered(lambda: cluster.ask("GET", "queues/%2F/three", at=1)[1].get("messages") == 2))
    over.set()


def test_a_home_without_copies_is_lost_with_consent_only(cluster: Cluster) -> None:
    _publish(cluster, 2, "three")
    cluster.nodes[2].kill()
    until(lambda: not cluster.ask("GET", f"nodes/{THREE}")[1]["running"])
    assert _refusal(cluster, THREE, 0) == (
        f"node '{THREE}' runs: the node must be stopped first. After a kill etcd notices the end in 10 seconds"
    )
    until(lambda: "etcd notices" not in _refusal(cluster, THREE, 0))
    assert _refusal(cluster, THREE, 0) == (
        f"node '{THREE}' has the only complete copy of its home 3 (durable queues: 1), whose messages would be lost: "
        f"start the node and drain it, or accept the loss (--yes)"
    )
    said = cluster.output("forget_cluster_node", THREE, "--yes")
    assert said.endswith("1 queue was on the node and is gone:\n/\tthree\n")
    assert [one["name"] for one in cluster.ask("GET", "nodes", at=1)[1]] == [ONE, TWO]


def test_a_home_that_another_node_can_serve_is_not_lost(cluster: Cluster) -> None:
    """A node is not forgotten while its home has a complete copy at a live node, though no node serves the home."""
    cluster.output("set_copies", "3", "--home", "1", at=2)
    all_in = {ONE: "leader", TWO: "in set", THREE: "in set"}
    until(lambda: answered(lambda: cluster.states(1, at=2) == all_in))
    until(lambda: answered(lambda: all(one["running"] for one in cluster.ask("GET", "nodes", at=2)[1])))
    _publish(cluster, 0, "one")
    cluster.nodes[0].kill()
    cluster.nodes[1].kill()
    reason = (
        f"node '{THREE}' has all confirmed messages of home 1 (durable queues: 1), and no node serves the home yet: "
        f"start nodes with copies, or `jumpmqctl set_copies 3 --home 1 --min 1`, then drain node '{ONE}'"
    )
    until(lambda: _refusal(cluster, ONE, 2, "--yes") == reason)  # after the leases of both nodes

    until(lambda: any(one["kind"] == "copies-below-min" for one in cluster.ask("GET", "warnings", at=2)[1]))
    told = {one["kind"]: one for one in cluster.ask("GET", "warnings", at=2)[1] if one["name"] == ONE}
    assert told["copies-below-min"]["text"] == (
        "Nothing is confirmed at home 1: 1 of at least 2 copies are there, and no node serves the home."
    )
    assert "`jumpmqctl set_copies 3 --home 1 --min 1` asks for no more" in told["copies-below-min"]["advice"]
    assert f"`jumpmqctl drain --node {ONE}`, and then" in told["node-down"]["advice"]
    assert cluster.output("-q", "list_copies", at=2).splitlines()[1].split("\t")[:3] == ["1", ONE, "none"]
    cluster.output("set_copies", "3", "--home", "1", "--min", "1", at=2)
    until(lambda: cluster.copies(1, at=2)["running"])
    assert cluster.ask("GET", "queues/%2F/one", at=2)[1]["messages"] == 1
