"""Copies as operators see and change them: jumpmqctl and the management API, at three nodes with a real etcd."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.cli.commands import run
from tests.etcd import etcd, needs_etcd
from tests.waiting import until

from jumpmq.testing import JumpMQ
from jumpmq.testing.ports import free_ports

pytestmark = needs_etcd

NODES = ["one@host", "two@host", "three@host"]


class Cluster:
    """Three nodes, which keep their ports when they start again."""

    def __init__(self, directory: Path, url: str) -> None:
        self.etcd = url
        ports = free_ports(6)
        self.nodes = [
            JumpMQ(
                directory / node,
                node,
                ("--cluster", "test", "--etcd", url, "--port", str(ports[i]), "--http-port", str(ports[i + 3])),
            )
            for i, node in enumerate(NODES)
        ]

    def url(self, number: int, user: str = "guest") -> str:
        return f"http://{user}:{user}@127.0.0.1:{self.nodes[number].http_port}"

    def control(self, *arguments: str, at: int = 0) -> subprocess.CompletedProcess[str]:
        return run("jumpmqctl", *arguments, JUMPMQ_URL=self.url(at))

    def output(self, *arguments: str, at: int = 0) -> str:
        result = self.control(*arguments, at=at)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def ask(self, method: str, path: str, body: Any = None, at: int = 0, user: str = "guest") -> tuple[int, Any]:
        answer = requests.request(method, f"{self.url(at, user)}/api/{path}", json=body, timeout=30)
        return answer.status_code, answer.json() if answer.content else None

    def copies(self, home: int, at: int = 0) -> dict[str, Any]:
        status, found = self.ask("GET", f"copies/{home}", at=at)
        assert status == 200
        return dict(found)

    def states(self, home: int, at: int = 0) -> dict[str, str]:
        return {one["node"]: one["state"] for one in self.copies(home, at)["members"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with etcd(directory) as (member,):
        cluster = Cluster(directory, member.url)
        with cluster.nodes[0], cluster.nodes[1], cluster.nodes[2]:
            yield cluster


def answered(ask: Callable[[], bool]) -> bool:
    """False while nothing answers, as while a process starts again."""
    try:
        return ask()
    except (requests.RequestException, AssertionError):
        return False


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
    assert cluster.copies(1)["wanted"] == {"copies": 3, "min": 2, "leader": "one@host"}
    assert cluster.output("-q", "await_online_quorum_plus_one") == ""
    assert cluster.output("-q", "check_if_node_is_quorum_critical").endswith(
        "reported no quorum queues with minimum quorum\n"
    )
    status = cluster.output("-q", "quorum_status", "quorum", at=2).splitlines()
    assert [line.split("\t")[:3] for line in status] == [
        ["Node Name", "Raft State", "Membership"],
        ["one@host", "leader", "voter"],
        ["two@host", "follower", "voter"],
        ["three@host", "follower", "voter"],
    ]
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
    assert warnings["copies-missing"] == "one@host: home 1 has 2 of 3 copies; one@host is away."
    assert cluster.control("check_if_node_is_quorum_critical", at=1).returncode == 69

    heir = next(node for node in NODES[1:] if node != cluster.copies(1, at=1)["leader"])
    status, refusal = cluster.ask("PUT", "copies/1/leader", {"node": "four@host"}, at=1)
    assert (status, refusal["reason"].startswith("node 'four@host' has no copy of home 1")) == (400, True)
    said = cluster.output("-q", "transfer_leadership", "1", heir, at=1)
    assert said.startswith(f"Node {heir} leads home 1 as soon as its copy has all")
    until(lambda: cluster.copies(1, at=1)["leader"] == heir)
    assert cluster.ask("DELETE", "copies/1/leader", at=1)[0] == 204
    until(lambda: cluster.copies(1, at=2)["wanted"]["leader"] == "one@host")
    assert "leaders bring it about" in cluster.output("-q", "set_copies", "1", at=1)
    until(lambda: {one["wanted"]["copies"] for one in cluster.ask("GET", "copies", at=2)[1]} == {1})
