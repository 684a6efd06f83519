"""Copies in jumpmqctl and the management API, at three nodes with a real etcd."""

import json
from collections.abc import Iterator

import pika
import pytest
import requests
from tests.etcd import needs_etcd
from tests.nodes.copies.operated_cluster import NODES, Cluster, answered, running
from tests.waiting import until

from jumpmq.store.records import FRAME, OPENING_SIZE

pytestmark = needs_etcd


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of the file, which build on each other."""
    with running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_homes_of_a_cluster_have_one_copy_at_first(cluster: Cluster) -> None:
    for at in range(3):
        status, found = cluster.ask("GET", "copies", at=at)
        assert status == 200
        assert [(one["home"], one["seat"], one["leader"], one["copies"], one["min"]) for one in found] == [
            (home, node, node, 1, 1) for home, node in enumerate(NODES, 1)
        ]
    listed = cluster.output("-q", "list_copies").splitlines()
    assert listed[1] == "1\tone@host\tone@host\t1\t1\t1\t1\tone@host leader\t\t"
    assert "jumpmq_copies" not in requests.get(f"{cluster.url(0)}/metrics", timeout=30).text


def test_wishes_that_cannot_be_met_are_refused(cluster: Cluster) -> None:
    for body, reason in (
        ({"copies": 4}, "4 copies need as many nodes, and the cluster has 3"),
        ({"copies": 0}, "a home has 1 to 7 copies, not 0"),
        ({"copies": 3, "min": 4}, "min is from 1 to copies, which is 3; not 4"),
    ):
        assert cluster.ask("PUT", "copies/1", body) == (400, {"error": "bad_request", "reason": reason})
    assert cluster.ask("PUT", "copies/1", {})[0] == 400
    assert cluster.ask("PUT", "copies/1", {"copies": "many"})[0] == 400
    assert cluster.ask("PUT", "copies/9", {"copies": 1}) == (404, {"error": "not_found", "reason": "no home 9"})
    assert cluster.ask("GET", "copies/x") == (404, {"error": "not_found", "reason": "no home x"})
    assert cluster.ask("PUT", "copies/1/leader", {"node": "two@host"}) == (
        400,
        {"error": "bad_request", "reason": "home 1 has no copies that could lead it"},
    )
    refused = cluster.control("set_copies", "4", "--home", "1")
    assert (refused.returncode, refused.stderr) == (69, "Error:\n4 copies need as many nodes, and the cluster has 3\n")
    refused = cluster.control("set_copies", "2", "--home", "9")
    assert (refused.returncode, refused.stderr) == (65, "Error:\nno home 9\n")


def test_a_home_gets_copies_and_is_served_again_when_its_node_dies(cluster: Cluster) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"before", pika.BasicProperties(delivery_mode=2))
    critical = cluster.control("check_if_node_is_quorum_critical")
    assert (critical.returncode, critical.stderr.startswith("Error:\nThere are quorum queues that would")) == (69, True)

    said = cluster.output("set_copies", "3", "--home", "1", at=1)
    assert "each process starts again once, which closes the connections to one@host" in said
    until(lambda: answered(lambda: cluster.states(1, at=1) == dict.fromkeys(NODES, "in set") | {NODES[0]: "leader"}))
    until(lambda: answered(lambda: cluster.copies(1)["copies"] == 3))
    assert cluster.copies(1)["wanted"] == {"copies": 3, "min": 2, "members": NODES, "leader": "one@host"}
    _members_are_changed(cluster)
    _copies_are_compared(cluster)
    _queues_are_where_there_are_copies(cluster)
    assert cluster.output("-q", "await_online_quorum_plus_one") == ""
    assert cluster.output("-q", "check_if_node_is_quorum_critical").endswith(
        "reported no quorum queues with minimum quorum\n"
    )
    status = cluster.output("-q", "quorum_status", "quorum", at=2).splitlines()
    header, *rows = [line.split("\t") for line in status]
    assert header[:7] == [
        *("Node Name", "Raft State", "Membership"),
        *("Last Log Index", "Last Written", "Last Applied"),
        "Commit Index",
    ]
    assert header[7:] == ["Snapshot Index", "Term", "Machine Version"]
    assert [row[:3] for row in rows] == [
        ["one@host", "leader", "voter"],
        ["three@host", "follower", "voter"],
        ["two@host", "follower", "voter"],
    ]
    assert len({position for row in rows for position in row[3:5]}) == 1  # all copies have the whole log
    assert int(rows[0][3]) > 0
    assert [row[5] for row in rows] == [rows[0][6], "", ""]
    shown = cluster.ask("GET", "queues/%2F/quorum", at=2)[1]
    assert (sorted(shown["members"]), sorted(shown["online"])) == (sorted(NODES), sorted(NODES))
    figures = requests.get(f"{cluster.url(2)}/metrics", timeout=30).text
    assert 'jumpmq_copies_members{home="1"} 3.0' in figures
    assert 'jumpmq_copies_in_set{home="1"} 3.0' in figures
    assert 'jumpmq_copies_min{home="1"} 2.0' in figures
    assert (
        'jumpmq_copies_lag_bytes{home="1",node="two@host"}'
        in requests.get(f"{cluster.url(0)}/metrics", timeout=30).text
    )

    blocked = cluster.nodes[1].data_dir / "copies" / "1" / "replica.new"
    blocked.mkdir()  # the file with the mark cannot be written
    (led := cluster.nodes[0].data_dir / "replica.new").mkdir()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"then", pika.BasicProperties(delivery_mode=2))
        until(lambda: sum("trouble" in one for one in cluster.copies(1, at=2)["members"]) == 2)
        channel.basic_publish("", "q", b"on", pika.BasicProperties(delivery_mode=2))  # the leader goes on
    assert "two@host: " in cluster.output("-q", "list_copies").splitlines()[1].split("\t")[-1]
    told = {one["text"] for one in cluster.ask("GET", "warnings")[1] if one["kind"] == "copy-troubled"}
    assert f"Copy of home 1: {blocked.with_suffix('')} cannot be written: Is a directory." in told and len(told) == 2
    figures = requests.get(f"{cluster.url(2)}/metrics", timeout=30).text
    assert 'jumpmq_copies_troubled{home="1",node="two@host"} 1.0' in figures
    blocked.rmdir()
    led.rmdir()
    assert "copies" not in {one["kind"] for one in cluster.ask("GET", "warnings", at=1)[1]}

    cluster.nodes[0].kill()
    until(lambda: cluster.copies(1, at=1)["leader"] != "one@host")
    assert cluster.copies(1, at=1)["confirms"]
    until(lambda: cluster.states(1, at=1)["one@host"] == "away")
    warnings = {one["kind"]: one["text"] for one in cluster.ask("GET", "warnings", at=1)[1]}
    assert warnings["copies-missing"] == "one@host is away: home 1 has 2 of 3 copies."
    assert cluster.control("check_if_node_is_quorum_critical", at=1).returncode == 69
    said = cluster.control("-q", "check_copies", "1", at=1).stdout
    assert said.startswith("home 1: not compared: one@host (node away, or serving no home)\n")

    leader = cluster.copies(1, at=1)["leader"]
    until(lambda: cluster.ask("GET", "queues/%2F/q", at=1)[1]["state"] == "running")
    count = cluster.ask("GET", "queues/%2F/q", at=1)[1]["messages"]
    lost = cluster.ask("GET", "nodes/one@host", at=1)[1]
    assert (lost["running"], lost["copies_led"], lost["copies_followed"]) == (False, 0, 1)
    assert not lost["keeps_copies"]
    assert cluster.copies(1, at=1)["running"]
    assert [(one["running"], one["served_by"], one["messages"]) for one in lost["workers"]] == [(False, leader, count)]
    there = cluster.ask("GET", f"nodes/{leader}", at=1)[1]
    assert (there["running"], there["copies_led"], len(there["workers"])) == (True, 1, 1)
    assert all(one["name"] != "one@host" for one in there["cluster_links"])
    shown = cluster.ask("GET", "queues/%2F/q", at=1)[1]
    assert (shown["node"], shown["leader"], shown["messages"]) == ("one@host", leader, count)
    assert (sorted(shown["members"]), sorted(shown["online"])) == (sorted(NODES), sorted(NODES[1:]))
    running = json.loads(cluster.output("cluster_status", "--formatter", "json", at=1))["running_nodes"]
    assert sorted(running) == sorted(NODES[1:])
    of_leader = requests.get(f"{cluster.url(NODES.index(leader))}/metrics", timeout=30).text
    assert count and f"\nrabbitmq_queue_messages_ready {count}.0\n" in of_leader

    heir = next(node for node in NODES[1:] if node != cluster.copies(1, at=1)["leader"])
    answer, refusal = cluster.ask("PUT", "copies/1/leader", {"node": "four@host"}, at=1)
    assert (answer, refusal["reason"].startswith("node 'four@host' has no copy of home 1")) == (400, True)
    said = cluster.output("-q", "transfer_leadership", "1", heir, at=1)
    assert said.startswith(f"Node {heir} leads home 1 as soon as the node's copy is complete")
    until(lambda: cluster.copies(1, at=1)["leader"] == heir)
    assert cluster.ask("DELETE", "copies/1/leader", at=1)[0] == 204
    until(lambda: cluster.copies(1, at=2)["wanted"]["leader"] == "one@host")
    assert "leaders make the copies" in cluster.output("-q", "set_copies", "1", at=1)
    until(lambda: {one["wanted"]["copies"] for one in cluster.ask("GET", "copies", at=2)[1]} == {1})


def _members_are_changed(cluster: Cluster) -> None:
    """Change the members of home 1, copied to all nodes, by RabbitMQ's commands."""
    head = "home\tmembers\tqueues\tresult\n"
    assert cluster.output("-q", "grow", "two@host", "even") == ""
    assert cluster.output("-q", "grow", "two@host", "all", "--queue-pattern", "^none$") == ""
    refused = cluster.control("grow", "four@host", "all")
    assert (refused.returncode, refused.stderr) == (64, "Error:\nnode four@host is not a member of the cluster\n")
    assert cluster.control("grow", "two@host", "some").returncode == 64
    assert cluster.output("shrink", "four@host").endswith("\nno home of another node has a copy on four@host\n")
    refused = cluster.control("-q", "shrink", "one@host")
    reason = "home 1: the home belongs to node 'one@host', which always has a copy of it"
    assert refused.stdout == f"{head}1\tone@host, two@host, three@host\t2\terror: {reason}\n"
    assert (refused.returncode, refused.stderr) == (69, "Error:\n1 home could not be changed\n")
    said = cluster.output("-q", "add_member", "quorum", "two@host")
    assert said == "home 1 gets copies on one@host, two@host, three@host, with 1 other queue\n"
    refused = cluster.control("add_member", "quorum", "four@host")
    assert (refused.returncode, refused.stderr) == (64, "Error:\nnode four@host is not a member of the cluster\n")
    assert cluster.control("add_member", "none", "two@host").returncode == 65
    refused = cluster.control("-q", "rebalance", "queues")
    reason = "type queues is not supported. Try one of all, quorum, stream."
    assert (refused.returncode, refused.stderr) == (69, f"Error:\n{reason}\n")
    for method, path, body, expected in (
        (
            "POST",
            "replicas/on/two@host/grow",
            {"strategy": "all", "queue_pattern": "("},
            "must be a regular expression",
        ),
        ("POST", "replicas/on/two@host/grow", {"strategy": "some"}, "'strategy' must be"),
        ("POST", "%2F/quorum/replicas/add", {"node": "four@host"}, "node 'four@host' is not in the cluster"),
        ("DELETE", "%2F/quorum/replicas/delete", {"node": "two@host"}, "'jumpmqctl shrink two@host' removes"),
    ):
        status, refusal = cluster.ask(method, f"queues/quorum/{path}", body)
        assert (status, expected in refusal["reason"]) == (400, True), refusal
    cluster.ask("PUT", "users/watch", {"password": "watch", "tags": "monitoring"})
    assert cluster.ask("GET", "copies", user="watch")[0] == 200
    assert cluster.ask("DELETE", "queues/quorum/replicas/on/two@host/shrink", user="watch")[0] == 401

    assert cluster.output("-q", "shrink", "two@host") == f"{head}1\tone@host, three@host\t2\tok\n"
    until(lambda: set(cluster.states(1)) == {"one@host", "three@host"})
    assert cluster.copies(1)["min"] == 1
    said = cluster.output("-q", "add_member", "quorum", "two@host")
    assert said == "home 1 gets copies on one@host, three@host, two@host, with 1 other queue\n"
    until(lambda: cluster.copies(1)["in_set"] == 3 and cluster.copies(1)["min"] == 2)
    synced = cluster.output("-q", "check_if_new_quorum_queue_replicas_have_finished_initial_sync", at=1)
    assert synced == "Node two@host reported no queues with promotable replicas\n"


def _copies_are_compared(cluster: Cluster) -> None:
    """Compare the copies of home 1, before and after the damage of an octet, and its repair."""
    assert cluster.ask("GET", "copies/1/check") == (
        404,
        {"error": "not_found", "reason": "no comparison of home 1's copies was begun at this node"},
    )
    assert cluster.ask("POST", "copies/1/check", user="watch")[0] == 401
    said = cluster.output("-q", "check_copies", "1", at=2)
    assert said.startswith("home 1: copies on one@host, three@host, two@host are equal: ")
    assert cluster.ask("GET", "copies/1/check", at=2, user="watch")[1]["state"] == "equal"
    for home, reason in ((3, "home 3 has one copy"), (9, "no home 9")):
        refused = cluster.control("check_copies", str(home))
        assert (refused.returncode, refused.stderr) == (65, f"Error:\n{reason}\n")

    path = max((cluster.nodes[1].data_dir / "copies" / "1" / "log").glob("0*.log"))
    at = OPENING_SIZE + FRAME.size  # of the first block of the first commit

    def invert() -> None:
        with path.open("r+b") as file:
            file.seek(at)
            octet = file.read(1)[0]
            file.seek(at)
            file.write(bytes([octet ^ 255]))

    invert()
    refused = cluster.control("-q", "check_copies")
    invert()
    assert (refused.returncode, refused.stderr) == (
        69,
        "Error:\ncopies of 1 home differ, are damaged, or could not be compared\n",
    )
    assert refused.stdout.count("\n") == 2, refused.stdout
    first, difference = refused.stdout.splitlines()
    assert first == "home 1: copies on one@host, three@host, two@host differ:"
    assert difference.startswith(f"log/{path.name}, ") and difference.endswith("; damaged: two@host")
    (told,) = cluster.ask("GET", "copies/1/check")[1]["differences"]
    assert told["offset"] <= at < told["offset"] + told["length"]
    sums = told["checksums"]
    assert sums["one@host"] == sums["three@host"] != sums["two@host"]


def _queues_are_where_there_are_copies(cluster: Cluster) -> None:
    """Declare queues with a minimum number of copies at node three, whose home has one copy."""
    for kind, argument in (("quorum", "x-quorum-initial-group-size"), ("stream", "x-initial-cluster-size")):
        for count, node in ((1, "three@host"), (3, "one@host"), (5, "one@host")):
            body = {"durable": True, "arguments": {"x-queue-type": kind, argument: count}}
            assert cluster.ask("PUT", "queues/%2F/placed", body, at=2)[0] == 201
            assert cluster.ask("GET", "queues/%2F/placed", at=2)[1]["node"] == node
            assert cluster.ask("DELETE", "queues/%2F/placed", at=2)[0] == 204


def _forgotten(cluster: Cluster, node: str) -> str:
    """Return the output of `forget_cluster_node`; "" while etcd has the lease of a killed node."""
    done = cluster.control("forget_cluster_node", node, at=1)
    assert done.returncode == 0 or "etcd notices the end in 10 seconds" in done.stderr, done.stderr
    return done.stdout if done.returncode == 0 else ""


def test_a_lost_node_is_forgotten_once_its_queues_have_moved(cluster: Cluster) -> None:
    until(lambda: cluster.ask("GET", "queues/%2F/q", at=1)[1].get("state") == "running")
    status, refusal = cluster.ask("DELETE", "nodes/one@host", at=1)
    assert status == 400
    assert "serves its home 1 (durable queues: 2): drain node 'one@host' first" in refusal["reason"]
    until(lambda: "served_by" in cluster.ask("GET", "nodes/one@host", at=2)[1]["workers"][0])  # with metrics
    refused = cluster.control("forget_cluster_node", "one@host", at=2)
    assert (refused.returncode, refused.stderr) == (69, f"Error:\n{refusal['reason']}\n")
    count = cluster.ask("GET", "queues/%2F/q", at=1)[1]["messages"]
    cluster.output("drain", "--node", "one@host", at=1)
    assert cluster.ask("GET", "queues/%2F/q", at=1)[1]["messages"] == count > 0
    assert "0 queues were on the node" in until(lambda: _forgotten(cluster, "one@host"))
    until(lambda: [one["name"] for one in cluster.ask("GET", "nodes", at=2)[1]] == sorted(NODES[1:]))
    until(lambda: [one["home"] for one in cluster.ask("GET", "copies", at=2)[1]] == [2, 3])
    assert cluster.ask("GET", "queues/%2F/q", at=2)[1]["messages"] == count
