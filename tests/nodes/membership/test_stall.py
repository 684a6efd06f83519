"""Nodes with a full or outdated etcd: definitions stand still, all nodes report the reason, messages flow."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from tests.etcd import EtcdMember, etcd, needs_etcd
from tests.http.api import API
from tests.nodes.clusters import PERSISTENT, Cluster, declare, member_of
from tests.nodes.homes import in_loop, until
from tests.waiting import until as soon

from jumpmq.amqp.errors import MetadataTimeout
from jumpmq.nodes.etcd.client import Etcd, EtcdError, delete, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.timing import Timing
from jumpmq.testing import JumpMQ
from jumpmq.testing.processes import children

pytestmark = needs_etcd


async def fill(asking: Etcd) -> None:
    """Fill etcd until it takes no more writes."""
    with pytest.raises(EtcdError, match="database space exceeded"):
        for number in range(1000):
            await asking.transaction([], [put("/filling", bytes(500_000) + str(number).encode())])


async def make_room(asking: Etcd) -> None:
    """Make room as an operator would: etcdctl compact, defrag, alarm disarm."""
    revision = (await asking.folder("/filling/")).revision
    await asking._call("kv/compaction", {"revision": str(revision), "physical": True})
    await asking._call("maintenance/defragment", {})
    for alarm in (await asking._call("maintenance/alarm", {"action": "GET"})).get("alarms", ()):
        await asking._call("maintenance/alarm", {"action": "DEACTIVATE"} | alarm)


@in_loop
async def test_an_etcd_without_space_has_definitions_stand_still(tmp_path: Path) -> None:
    """With an etcd out of space, definitions stand still; reads and keep-alives are answered as usual."""
    async with Cluster(
        tmp_path, "--quota-backend-bytes", "2000000", timing=Timing(patience=1.0, alive_interval=0.2)
    ) as cluster:
        first, second = await cluster.start_all(2)
        asking = cluster.client()
        await declare(second, "q")
        await fill(asking)
        with pytest.raises(MetadataTimeout, match="etcd has no space left"):
            await declare(first, "late", limited=True)
        with pytest.raises(MetadataTimeout, match="etcd has no space left"):  # at once
            await declare(first, "later", limited=True)
        await until(lambda: member_of(second).stall.reason)  # without any request for a change
        reason = member_of(first).stall.reason
        assert reason is not None
        assert "database space exceeded" in reason
        await make_room(asking)
        await until(lambda: "late" in second.topology.vhosts["/"].declared)
        await until(lambda: member_of(first).stall.reason is None and member_of(second).stall.reason is None)
        await declare(first, "again", limited=True)


def test_a_request_that_waits_for_etcd_is_answered_when_the_node_stops(tmp_path: Path) -> None:
    with (
        etcd(tmp_path) as (member,),
        JumpMQ(tmp_path / "node", arguments=("--cluster", "test", "--etcd", member.url)) as node,
    ):
        api = api_of(node)
        api.get("overview")
        member.kill()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(api.request, "PUT", "queues", "/", "q", json={"durable": True})
            other = api_of(node)
            for _ in range(20):
                other.get("overview")
            assert node.stop() == 0
            answer = asked.result(30)
        assert (answer.status_code, answer.json()["reason"]) == (
            503,
            "the broker stops; the request may have had effects",
        )
        assert "Traceback" not in node.log.read_text()


class NodeProcesses:
    """Two nodes, and an etcd whose data is replaced.

    Attributes:
        nodes: the running nodes.
        copies: etcd's data before and after the declaration of the last queue.
    """

    def __init__(self, directory: Path, member: EtcdMember, stack: ExitStack) -> None:
        self.directory = directory
        self.member = member
        self._stack = stack
        self.nodes = [stack.enter_context(self.node(number)) for number in (1, 2)]
        self.copies = {"empty": directory / "none", "older": directory / "older", "newer": directory / "newer"}
        self.declare(self.nodes[0], "q1")
        self.copy("older")
        self.declare(self.nodes[1], "q2")
        self.copy("newer")

    def node(self, number: int, *further: str) -> JumpMQ:
        options = ("--cluster", "test", "--etcd", self.member.url, *further)
        return JumpMQ(self.directory / f"node-{number}", f"n{number}@localhost", options)

    def declare(self, node: JumpMQ, queue: str) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters(port=node.port)) as connection:
            connection.channel().queue_declare(queue, durable=True)

    def copy(self, name: str) -> None:
        """Keep a copy of etcd's data."""
        self.member.kill()
        shutil.copytree(self.directory / "etcd-0", self.copies[name])
        self._start()

    def restore(self, name: str) -> None:
        """Restore a kept copy of etcd's data."""
        self.member.kill()
        shutil.rmtree(self.directory / "etcd-0")
        if self.copies[name].exists():
            shutil.copytree(self.copies[name], self.directory / "etcd-0")
        self._start()

    def _start(self) -> None:
        self.member.start()
        soon(lambda: self.member.is_healthy)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeProcesses]:
    with etcd(tmp_path) as (member,), ExitStack() as stack:
        yield NodeProcesses(tmp_path, member, stack)


def api_of(node: JumpMQ) -> API:
    return API(f"http://guest:guest@127.0.0.1:{node.http_port}")


def passes(node: JumpMQ, check: str) -> bool:
    return api_of(node).request("GET", *check.split("/")).status_code == 200


@in_loop
async def test_a_cluster_that_took_the_name_of_one_that_etcd_has_lost_is_told_of(tmp_path: Path) -> None:
    async with Cluster(tmp_path, timing=Timing(alive_interval=0.2)) as cluster:
        first = await cluster.start(0)
        asking, keys = cluster.client(), Keys("test")
        failures: list[str] = []
        member_of(first).etcd.on_failure = failures.append
        entry = keys.entry(member_of(first).log.entry + 1)
        await asking.transaction([], [put(keys.id, "other"), put(entry, "another cluster's")])
        await until(lambda: member_of(first).stall.reason)
        assert member_of(first).stall.reason == "etcd has lost cluster 'test', and has another one of that name"
        with pytest.raises(MetadataTimeout, match="has lost its data"):
            await declare(first, "late", limited=True)
        await asking.transaction([], [put(keys.id, member_of(first).me.id), delete(entry)])
        await until(lambda: member_of(first).stall.reason is None)
        await declare(first, "again", limited=True)
        assert not failures


@in_loop
async def test_a_new_node_that_waits_while_others_miss_the_cluster_writes_nothing_into_etcd(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new node that waits while the others miss the cluster leaves nothing in etcd, in any of its attempts."""
    keys = Keys("test")
    async with Cluster(tmp_path) as cluster:
        asking = cluster.client()
        told = keys.lost_of("identity") + "n1@localhost"
        await asking.transaction([], [put(told, json.dumps({"entry": 3}))])
        starting = asyncio.create_task(cluster.start(0))
        try:
            await until(lambda: "the start waits for etcd: etcd lacks entry 3" in caplog.text)
            assert [one.key for one in (await asking.folder(keys.all)).values] == [told]
        finally:
            await asking.transaction([], [delete(told)])
            await starting


@pytest.mark.slow
@pytest.mark.parametrize("state", ["empty", "older"])
def test_an_etcd_that_comes_back_without_what_nodes_have_is_told_of_by_all(cluster: NodeProcesses, state: str) -> None:
    lacks = "etcd lacks cluster 'test'" if state == "empty" else "etcd lacks entry"
    cluster.restore(state)
    for node in cluster.nodes:
        soon(lambda node=node: not passes(node, "health/checks/definitions"))  # type: ignore[misc]
        api = api_of(node)
        assert lacks in api.request("GET", "health", "checks", "definitions").json()["reason"]
        assert not passes(node, "health/checks/alarms")
        assert not passes(node, "healthchecks/node")
        assert passes(node, "health/checks/local-alarms")
        (told,) = [one for one in api.get("warnings") if one["kind"] == "definitions-stand-still"]
        assert lacks in told["text"]
        assert "\njumpmq_definitions_stand_still 1.0" in api.session.get(f"{api.address}/metrics").text
        assert f"definitions cannot be changed: {lacks}" in node.log.read_text()
        refused = api.request("PUT", "queues", "/", "q3", json={"durable": True})
        assert refused.status_code == 503
        assert "etcd was set back to an older state, or has lost its data" in refused.text
        with pika.BlockingConnection(pika.ConnectionParameters(port=node.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue in ("q1", "q2"):
                channel.basic_publish("", queue, b"", PERSISTENT, mandatory=True)
            with pytest.raises(pika.exceptions.AMQPError, match="has lost its data"):
                channel.queue_declare("q4", durable=True)
    stranger = cluster.node(3)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(stranger.start)
        try:
            soon(lambda: stranger.log.exists() and "the start waits for etcd: etcd lacks" in stranger.log.read_text())
            cluster.restore("newer")
            for node in cluster.nodes:
                soon(lambda node=node: passes(node, "health/checks/definitions"))  # type: ignore[misc]
                cluster.declare(node, f"again-{node.node}")
            starting.result(60)
            held = {one["name"]: one["messages"] for one in api_of(stranger).get("queues")}
            assert held == {"q1": 2, "q2": 2, "again-n1@localhost": 0, "again-n2@localhost": 0}
        finally:
            stranger.close()


@pytest.mark.slow
def test_a_worker_that_dies_while_etcd_lacks_something_waits_and_its_node_serves(cluster: NodeProcesses) -> None:
    with cluster.node(3, "--workers", "2") as node:
        cluster.declare(node, "q3")
        cluster.copies["newest"] = cluster.directory / "newest"
        cluster.copy("newest")
        cluster.restore("empty")
        soon(lambda: not passes(node, "health/checks/definitions"))
        os.kill(children(node.pid)[1], signal.SIGKILL)
        soon(lambda: "the start waits for etcd: etcd lacks cluster 'test'" in node.log.read_text())
        assert passes(node, "health/checks/virtual-hosts")
        cluster.restore("newest")
        soon(lambda: passes(node, "health/checks/alarms"))  # both workers answer
        cluster.declare(node, "q4")
