"""No request for copies is lost if several nodes write at once."""

import threading

import pika
from tests.etcd import needs_etcd
from tests.nodes.copies.operated_cluster import NODES, Cluster, answered
from tests.waiting import until

pytestmark = needs_etcd


def test_members_that_two_nodes_add_at_once_are_both_added(cluster: Cluster) -> None:
    """Members added at two nodes at once are both added (regression: a node overwrote concurrent changes)."""
    for node in cluster.nodes:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
            connection.channel().queue_declare(f"of {node.node}", durable=True)
    answers: list[int] = []
    together = threading.Barrier(2 * len(NODES))

    def add(queue: str, node: str, at: int) -> None:
        together.wait()
        path = f"queues/quorum/%2F/of {queue}/replicas/add"
        answers.append(cluster.ask("POST", path, {"node": node}, at=at)[0])

    others = [(seat, node, at) for seat in NODES for at, node in enumerate(NODES) if node != seat]
    threads = [threading.Thread(target=add, args=one) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*answers} <= {200, 202, 204} and len(answers) == len(others)
    homes = range(1, len(NODES) + 1)
    until(lambda: answered(lambda: all(_is_at_all_nodes(cluster, home) for home in homes)))


def _is_at_all_nodes(cluster: Cluster, home: int) -> bool:
    return sorted(cluster.copies(home)["wanted"]["members"]) == sorted(NODES)
