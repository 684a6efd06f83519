"""Nodes whose definitions are in a real etcd: agreement, and work without etcd."""

import asyncio
import json
import shutil
import socket
import threading
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest
from tests.brokers import stopping
from tests.etcd import needs_etcd
from tests.nodes.clusters import PERSISTENT, Cluster, accepted, config_of, declare, member_of, started
from tests.nodes.homes import NODES, in_loop, peers_of, propose, stopped, until
from tests.topology.state import state_of
from tests.waiting import until as soon

from jumpmq.amqp.errors import AMQPError, MetadataTimeout, PreconditionFailed
from jumpmq.broker import Broker, BrokerError, Config
from jumpmq.broker.broker import start
from jumpmq.nodes.entering import enter
from jumpmq.nodes.etcd.client import Etcd, EtcdError, delete, end_of, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.joining import ClusterJoining, Membership
from jumpmq.nodes.log.compacting import compact
from jumpmq.nodes.log.log_link import tell
from jumpmq.nodes.log.snapshots import SnapshotHead, write_snapshot
from jumpmq.nodes.membership import member
from jumpmq.nodes.membership.entries import EtcdEntries
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import LOG
from jumpmq.replication.configuration import Configuration
from jumpmq.topology import (
    Bind,
    Binding,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    ExchangeDefinition,
    ForgetNode,
    PutUser,
    SetPolicy,
)

pytestmark = needs_etcd


@in_loop
async def test_nodes_make_a_cluster_and_know_the_same(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(3)
        assert [broker.config.home for broker in brokers] == [1, 2, 3]
        first, second, third = brokers
        await until(lambda: len(third.running_nodes) == 3)
        await propose(second, SetPolicy("/", "sharded", ".*-s$", {"shards-per-node": 2}, 0, "exchanges"))
        exchange = ExchangeDefinition("/", "x-s", "x-modulus-hash", durable=True)
        await propose(first, DeclareExchange(exchange))
        await propose(third, DeclareQueue(third.topology.define_queue("/", "q", durable=True)))
        assert "q" in first.topology.vhosts["/"].declared
        assert "q" in third.topology.vhosts["/"].queues
        for broker in brokers:
            own = [name for name in broker.topology.vhosts["/"].queues if name.startswith("sharding: x-s")]
            assert len(own) == 2
        assert state_of(first.topology) == state_of(second.topology) == state_of(third.topology)


@in_loop
async def test_a_node_that_was_away_learns_what_has_changed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        await declare(second, "before")
        await stopped(second)
        for number in range(250):
            await declare(first, f"q{number}")
        second = await cluster.start(1)
        assert second.config.home == 2
        assert state_of(first.topology) == state_of(second.topology)
        await declare(second, "after")
        assert "after" in first.topology.vhosts["/"].declared


@pytest.mark.parametrize("trouble", ["none", "etcd did not answer", "a third node is down", "taken for dead"])
@in_loop
async def test_a_node_that_was_stopped_learns_what_was_decided_before_it_serves(tmp_path: Path, trouble: str) -> None:
    """A stopped node learns the changes of the cluster before it serves; requests wait meanwhile."""
    async with Cluster(tmp_path, timing=Timing(linked_look=60.0, unlinked_look=60.0)) as cluster:
        brokers = await cluster.start_all(3)
        first, second, third = brokers
        await until(lambda: len(second.running_nodes) == 3)
        if trouble == "a third node is down":
            await stopped(third)
        peers_of(second).links.handlers[LOG] = lambda link, payload: None  # the record is read too late

        def publish() -> None:
            with pika.BlockingConnection(pika.ConnectionParameters(port=second.port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                declared.wait(20)
                channel.basic_publish("", "q", b"", PERSISTENT, mandatory=True)

        declared = threading.Event()
        publishing = asyncio.create_task(asyncio.to_thread(publish))
        await until(lambda: bool(second.connections))
        await declare(first, "q")
        if trouble == "etcd did not answer":  # the first call after the stop found its member gone
            member_of(second).etcd.failed(EtcdError("nobody is there"))
        if trouble == "taken for dead":
            await member_of(second).etcd.client.revoke(member_of(second).lease.id)
        second.pause.late_at = 0.0  # the node's clock stood still
        declared.set()
        await publishing
        assert await member_of(second).etcd.client.get(Keys("test").live_node(second.node)), "nobody waits for it"


@in_loop
async def test_an_answer_waits_for_nodes_that_live_without_a_link(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(2)
        first, second = brokers
        await until(lambda: len(first.running_nodes) == 2)
        for number in range(5):
            link = peers_of(first).links.to(2)
            assert link is not None
            link.close()
            await until(lambda: peers_of(first).links.to(2) is None)
            await declare(first, f"q{number}")
            assert f"q{number}" in second.topology.vhosts["/"].declared
            await until(lambda: peers_of(first).links.to(2) is not None)


@pytest.mark.parametrize("notices", ["both", "first"])
@in_loop
async def test_what_is_declared_beyond_a_link_that_is_cut_is_known_when_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: str
) -> None:
    """A declaration beyond a broken link is known once answered, whichever end notices the cut first."""
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(2)
        try:
            first, second = brokers
            await until(lambda: len(first.running_nodes) == len(second.running_nodes) == 2)
            for ways in (peers_of(one).links._ways for one in brokers):
                monkeypatch.setattr(ways, "connect", never)
            link, other = peers_of(first).links.to(2), peers_of(second).links.to(1)
            assert link is not None and other is not None
            if notices == "first":  # no more records reach the second node, not even the end
                monkeypatch.setattr(type(link), "write", lambda self: self._unsent.clear())
                monkeypatch.setattr(type(link), "_look_at_clock", lambda self: None)
                peers_of(first).links._down(link)
            else:
                link.close()
            await until(lambda: peers_of(first).links.to(2) is None)
            assert notices == "both" or peers_of(second).links.to(1) is other
            for number in range(3):
                await declare(first, f"q{number}")
                assert f"q{number}" in second.topology.vhosts["/"].declared
        finally:
            monkeypatch.undo()


async def never(*arguments: Any) -> Any:
    """Refuse a connection."""
    raise OSError("cut")


@pytest.mark.parametrize(
    "trouble", ["etcd is slow", "no news of who lives", "etcd has no quorum then", "a link carries nothing"]
)
@in_loop
async def test_an_answer_waits_for_a_node_that_no_link_tells_until_it_says_so_in_etcd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """An answer waits for a live node without links until the node reports the change in etcd."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        try:
            await until(lambda: len(first.running_nodes) == len(second.running_nodes) == 2)
            link = peers_of(first).links.to(2)
            assert link is not None
            if trouble == "a link carries nothing":
                monkeypatch.setattr(Link, "send", lambda link, kind, *payload: None)
            else:
                monkeypatch.setattr(Links, "_up", lambda links, link: False)
                link.close()
                await until(lambda: len(first.running_nodes) == len(second.running_nodes) == 1)
            call = Etcd._call

            async def troubled(asked: Etcd, name: str, body: dict[str, Any]) -> dict[str, Any]:
                is_applied = "q" in first.topology.vhosts["/"].declared
                if (
                    trouble == "etcd has no quorum then"
                    and (is_applied or asked is member_of(second).etcd.client)
                    and fails
                ):
                    raise EtcdError("there is no quorum")
                if trouble == "etcd is slow" and asked is member_of(second).etcd.client:
                    await asyncio.sleep(0.3)
                return await call(asked, name, body)

            fails = [True]
            monkeypatch.setattr(Etcd, "_call", troubled)
            asyncio.get_running_loop().call_later(2.0, fails.clear)
            if trouble == "no news of who lives":
                member_of(first).live.by_key.clear()
            await declare(first, "q")
            assert "q" in second.topology.vhosts["/"].declared
        finally:
            monkeypatch.undo()


@in_loop
async def test_an_answer_does_not_wait_long_for_a_node_whose_process_has_ended(tmp_path: Path) -> None:
    """An answer does not wait long for an ended process, though its key in etcd lives for ten seconds."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        await until(lambda: len(first.running_nodes) == 2)
        member_of(second).lease.id = 0  # the node cannot delete its key
        await stopped(second)
        assert member_of(first).live.unlinked == {2}
        await declare(first, "q")
        assert member_of(first).live.unlinked == {2}


@in_loop
async def test_what_is_declared_at_a_node_that_has_started_again_is_not_taken_for_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue declared at a restarted node does not count as ended, also by news of a third node before a link."""
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(3)
        first, second, third = brokers
        await until(lambda: all(len(one.running_nodes) == 3 for one in brokers))
        monkeypatch.setattr(peers_of(second).links, "_up", lambda link: False)
        link = peers_of(second).links.to(3)
        assert link is not None
        link.close()
        await until(lambda: peers_of(second).links.homes == [1] and 2 not in third.running_homes)
        member_of(second).live.by_key = {key: home for key, home in member_of(second).live.by_key.items() if home != 3}
        await accepted(first, DeclareQueue(replace(first.topology.define_queue("/", "q"), home=3)))

        def publish() -> None:
            with pika.BlockingConnection(pika.ConnectionParameters(port=second.port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.basic_publish("", "q", b"", mandatory=True)

        with pytest.raises(pika.exceptions.NackError):  # for want of a link
            await asyncio.to_thread(publish)


@in_loop
async def test_no_queue_is_placed_at_a_node_that_has_not_ended_what_its_last_process_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No queue is placed at a node before the queues of its last process have ended."""
    async with Cluster(tmp_path) as cluster:
        configs = [cluster.config(number, queue_leader_locator="balanced") for number in range(2)]
        first, second = [await cluster.started(config) for config in configs]
        await declare(first, "r")
        await stopped(second)
        catch_up = member.Member.catch_up
        reached, goes_on = asyncio.Event(), asyncio.Event()

        async def waiting(self: member.Member) -> None:
            await catch_up(self)
            reached.set()
            await goes_on.wait()

        monkeypatch.setattr(member.Member, "catch_up", waiting)
        starting = asyncio.create_task(cluster.started(configs[1]))
        await reached.wait()
        await until(lambda: 2 in first.running_homes)
        for name in ("q", "s"):
            await accepted(first, DeclareQueue(first.topology.define_queue("/", name)))
        goes_on.set()
        second = await starting
        declared = [broker.topology.vhosts["/"].declared for broker in (first, second)]
        await until(lambda: all({"q", "r", "s"} <= known.keys() for known in declared))


@in_loop
async def test_a_node_whose_links_were_down_is_told_by_others_what_it_has_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its links were down, a node hears missed changes from peers, even without etcd."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        await until(lambda: len(second.running_nodes) == 2)

        async def fails(*arguments: Any) -> Any:
            raise EtcdError("there is no quorum")

        links = peers_of(second).links
        receive = links.handlers[LOG]
        links.handlers[LOG] = lambda link, payload: None  # the record is lost with the link
        with monkeypatch.context() as patched:
            patched.setattr(member_of(second).etcd.client, "_call", fails)
            for name in ("q", "r"):
                await declare(first, name)
            assert "r" not in second.topology.vhosts["/"].declared
            links.handlers[LOG] = receive
            link = links.to(1)
            assert link is not None
            link.close()
            await until(lambda: "r" in second.topology.vhosts["/"].declared)


@in_loop
async def test_changes_of_many_at_once_have_one_order(tmp_path: Path) -> None:
    """Concurrent changes have one order: three nodes declare and bind the same queues in different orders."""
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(3)
        exchange = ExchangeDefinition("/", "ring", "x-consistent-hash", durable=True)
        await propose(brokers[0], DeclareExchange(exchange))

        async def work(broker: Broker, step: int) -> None:
            for number in range(0, 60 * step, step):
                name = f"q{number % 60}"
                with suppress(AMQPError):
                    await declare(broker, name)
                    await propose(broker, Bind("/", Binding("ring", "queue", name, b"1")))

        await asyncio.gather(*(work(broker, step) for broker, step in zip(brokers, (1, 7, 11), strict=True)))
        states = [state_of(broker.topology) for broker in brokers]
        assert states[0] == states[1] == states[2]
        assert len(states[0]["vhosts"]["/"]["queues"]) == 60
        assert {one.topology.applied for one in brokers} == {brokers[0].topology.applied}


@in_loop
async def test_without_etcd_messages_flow_and_definitions_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, timing=Timing(patience=0.3)) as cluster:
        first, second = await cluster.start_all(2)
        await declare(second, "q")
        cluster.members[0].kill()
        late = asyncio.create_task(declare(first, "late", limited=True))  # before anything is known
        assert await asyncio.to_thread(_published, first.port, "q", 10) == 10
        with pytest.raises(MetadataTimeout, match="etcd is down"):
            await late
        assert await asyncio.to_thread(_published, first.port, "q", 10) == 10
        with pytest.raises(MetadataTimeout, match="etcd is down"):  # at once
            await declare(first, "later", limited=True)
        cluster.members[0].start()
        await asyncio.to_thread(soon, lambda: cluster.members[0].is_healthy)
        monkeypatch.undo()
        await until(lambda: "late" in second.topology.vhosts["/"].declared)
        await until(lambda: member_of(first).stall.reason is None)
        await declare(first, "again", limited=True)
        assert second.topology.vhosts["/"].queues["q"].message_count == 20


def _published(port: int, queue: str, count: int) -> int:
    """Publish messages to a queue; returns how many were confirmed."""
    confirmed = 0
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            channel.basic_publish("", queue, str(number).encode(), PERSISTENT, mandatory=True)
            confirmed += 1
    return confirmed


@in_loop
async def test_a_broker_of_today_becomes_the_first_node(tmp_path: Path) -> None:
    alone = replace(config_of(0, tmp_path, []), cluster=None)
    before = await started(alone)
    await declare(before, "kept")
    await asyncio.to_thread(_published, before.port, "kept", 3)
    await stopped(before)
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        second = await cluster.start(1)
        assert first.topology.vhosts["/"].queues["kept"].message_count == 3
        assert await asyncio.to_thread(_published, second.port, "kept", 1) == 1
        assert first.topology.vhosts["/"].queues["kept"].message_count == 4
        assert state_of(first.topology) == state_of(second.topology)
        await stopped(first)
        with pytest.raises(BrokerError, match="cluster 'test': serve it with --cluster test"):
            await cluster.started(alone)


@in_loop
async def test_who_is_no_member_is_refused_and_keeps_its_data(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.start(0)
        twin = replace(cluster.config(0), data_dir=tmp_path / "twin")
        with pytest.raises(BrokerError, match="has a node 'one@host' with another data directory"):
            await cluster.started(twin)
        other = replace(cluster.config(1), cluster=None)
        alone = await cluster.started(other)
        await stopped(alone)
        with pytest.raises(BrokerError, match="a node joins with an empty directory"):
            await cluster.start(1)
        alone = await cluster.started(other)  # as before
        await stopped(alone)
        elsewhere = replace(cluster.config(2), cluster="other")
        third = await cluster.started(elsewhere)
        await stopped(third)
        with pytest.raises(BrokerError, match="belongs to cluster 'other', not 'test'"):
            await cluster.start(2)
        with pytest.raises(BrokerError, match="belongs to node 'three@host', not 'four@host'"):
            await cluster.started(replace(elsewhere, node="four@host"))
        with pytest.raises(BrokerError, match="needs a data directory"):
            await cluster.started(replace(cluster.config(2), data_dir=None))


@in_loop
async def test_a_broker_that_waited_for_an_etcd_that_is_not_there_goes_on_alone(tmp_path: Path) -> None:
    config = config_of(0, tmp_path, [])
    await stopped(await started(replace(config, cluster=None)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await start(replace(config, etcd="http://127.0.0.1:9"), enter)
    await started(replace(config, cluster=None))


@pytest.mark.parametrize("lost", [1, 2])
@in_loop
async def test_a_node_is_a_member_though_what_etcd_answered_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """A node becomes a member though etcd's answer was lost: the cluster's first node, or a node with a new home."""
    transaction, asked = Etcd.transaction, list[int]()

    async def breaks(etcd: Etcd, *arguments: Any) -> Any:
        answer = await transaction(etcd, *arguments)
        puts = [one["request_put"] for one in arguments[1] if "request_put" in one]
        if any(b"/members/" in b64decode(put["key"]) for put in puts):
            asked.append(1)
            if len(asked) == lost:
                raise EtcdError("the connection broke")
        return answer

    monkeypatch.setattr(Etcd, "transaction", breaks)
    async with Cluster(tmp_path) as cluster:
        for _ in range(2):  # and again
            nodes = await cluster.start_all(2)
            assert [node.config.home for node in nodes] == [1, 2]
            for node in nodes:
                await stopped(node)
    assert len(asked) == 2


@pytest.mark.parametrize(("makes", "done"), [(True, True), (False, False), (False, True)])
@in_loop
async def test_a_first_start_that_ends_at_any_question_to_etcd_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, makes: bool, done: bool
) -> None:
    """A first start that ends at any request to etcd can be repeated, for a new and an existing cluster."""
    client = EtcdSettings.client
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        await declare(first, "known")
        for questions in range(12):  # then the node is a member
            name = f"new-{questions}@host"
            config = replace(cluster.config(1), data_dir=tmp_path / str(questions), node=name)
            config = replace(config, cluster=f"new-{questions}" if makes else "test")
            with monkeypatch.context() as patched:
                patched.setattr(EtcdSettings, "client", lambda it, left=questions: ending(client(it), left, done))
                with pytest.raises(BrokerError, match="ended"):
                    await cluster.started(config)
            async with stopping():
                node = await cluster.started(config)
                assert list(node.topology.nodes) == ([name] if makes else [NODES[0], name])
                assert ("known" in node.topology.vhosts["/"].declared) is not makes
            if not makes:
                await propose(first, ForgetNode(name))


def ending(client: Etcd, left: int, done: bool) -> Etcd:
    """Return a client that ends the node with the request after ``left`` requests."""
    ask = client._ask

    async def ends(*question: Any) -> Any:
        nonlocal left
        left -= 1
        answer = await ask(*question) if left != -1 or done else None
        if left == -1:
            raise BrokerError("ended")
        return answer

    client._ask = ends  # type: ignore[method-assign, assignment]
    return client


@in_loop
async def test_a_name_that_was_mistyped_before_etcd_was_asked_does_not_stick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(0, tmp_path, [])
    with pytest.raises(TimeoutError):  # the address has no etcd
        async with asyncio.timeout(1):
            await start(replace(config, cluster="tset", node="noe@host", etcd="http://127.0.0.1:9"), enter)
    async with Cluster(tmp_path) as cluster:
        config = cluster.config(0)
        keep, kept = ClusterJoining._keep, list[Membership]()

        async def killed(joining: ClusterJoining, me: Membership) -> None:
            if kept:
                raise BrokerError("killed")
            kept.append(me)
            await keep(joining, me)

        monkeypatch.setattr(ClusterJoining, "_keep", killed)
        with pytest.raises(BrokerError, match="killed"):  # etcd has the node, and the node's directory does not know
            await cluster.started(replace(config, cluster="tset"))
        monkeypatch.undo()
        with pytest.raises(BrokerError, match="belongs to cluster 'tset', not 'test'"):
            await cluster.started(config)
        node = await cluster.started(replace(config, cluster="tset"))
        assert (node.node, node.config.home) == (NODES[0], 1)


@in_loop
async def test_a_forgotten_node_is_refused_and_its_name_is_free(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        failures: list[str] = []
        await declare(second, "gone")
        await stopped(second)
        await propose(first, ForgetNode(NODES[1]))
        assert "gone" not in first.topology.vhosts["/"].declared
        back = cluster.config(1)
        starting = asyncio.ensure_future(start(back, enter, on_failure=failures.append))
        await until(lambda: failures or starting.done())
        why = (failures or [str(starting.exception())])[0]
        assert "was forgotten by its cluster; its data is kept" in why
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        second = await cluster.started(replace(cluster.config(1), data_dir=tmp_path / "anew"))
        assert (second.config.home, first.topology.nodes) == (3, {NODES[0]: [1], NODES[1]: [3]})


@in_loop
async def test_a_copy_that_leaves_the_set_keeps_a_node_in_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that leaves the set keeps its node in the cluster: it may be the only complete copy of a home."""
    both = Configuration(
        1, "log", NODES[2], 2, 1, (*NODES[:2], NODES[2]), 1, "two@host.x", ("two@host.x", "one@host.y")
    )
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        await stopped(second)
        client, key, checked = cluster.client(), Keys("test").home(7), []
        await client.transaction([], [put(key, both.to_json())])
        check = EtcdEntries._check_removal

        async def overtaken(entries: EtcdEntries) -> Any:
            guard = await check(entries)
            checked.append(guard)
            if len(checked) == 1:
                await client.transaction([], [put(key, both.without(["one@host.y"]).to_json())])
            return guard

        monkeypatch.setattr(EtcdEntries, "_check_removal", overtaken)
        with pytest.raises(PreconditionFailed, match="has the only complete copy of home 7 of node 'three@host'"):
            await propose(first, ForgetNode("two@host", "refused"))
        assert (bool(checked[0]), checked[1]) == (True, None)
        await client.transaction([], [put(key, both.renewed().to_json())])
        new_disk = json.dumps({"node": "one@host", "replicas": {"7": "one@host.new"}})
        await client.transaction([], [put(Keys("test").copies_of("one@host"), new_disk)])
        with pytest.raises(PreconditionFailed, match="has the only complete copy of home 7 of node 'three@host'"):
            await propose(first, ForgetNode("two@host", "refused"))
        await client.transaction([], [delete(Keys("test").copies_of("one@host"))])
        await propose(first, ForgetNode("two@host", "refused"))
        assert list(first.topology.nodes) == ["one@host"]


@in_loop
async def test_links_are_taken_at_the_port_that_is_set(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        used, port = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        async with Cluster(tmp_path) as cluster:
            with pytest.raises(BrokerError, match=r"links to other homes cannot be made: .*Address already in use"):
                await cluster.start(0, cluster_port=used)
            with pytest.raises(BrokerError, match="with cluster-port 65535 there is no port for worker 2"):
                await cluster.start(0, cluster_port=65535, worker=2)
            await cluster.start(0, cluster_port=port)
            second = await cluster.start(1)
            assert member_of(second).directory.addresses[1] == ("127.0.0.1", port)
            await until(lambda: len(second.running_nodes) == 2)


@in_loop
async def test_a_node_that_etcd_took_for_dead_is_announced_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        asking = cluster.client()
        (live,) = (await asking.folder("/jumpmq/test/live/")).values
        await asking.transaction([], [delete(live.key)])
        await declare(first, "q")  # appending needs it
        (again,) = (await asking.folder("/jumpmq/test/live/")).values
        assert again.value == live.value


@in_loop
async def test_a_copy_of_a_data_directory_ends_who_served_it_first(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        failures: list[str] = []
        member_of(first).etcd.on_failure = failures.append
        shutil.copytree(tmp_path / "node-0", tmp_path / "copy")
        await cluster.started(replace(cluster.config(0), data_dir=tmp_path / "copy"))
        await until(lambda: failures)
        assert "another process serves node 'one@host'" in failures[0]


@in_loop
async def test_of_two_processes_the_older_ends_also_where_both_were_cut_off(tmp_path: Path) -> None:
    """Of two processes of a node the older ends, also if both keys expired in etcd and the older returns first."""
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        failures: list[tuple[str, str]] = []
        asking = cluster.client()
        live = Keys("test").live_node(NODES[0])
        member_of(first).etcd.on_failure = lambda why: failures.append(("older", why))
        for task in list(member_of(first)._tasks):  # the process is cut off
            if task.get_name() != "cluster append":
                task.cancel()
        shutil.copytree(tmp_path / "node-0", tmp_path / "copy")
        newer = await cluster.started(replace(cluster.config(0), data_dir=tmp_path / "copy"))
        member_of(newer).etcd.on_failure = lambda why: failures.append(("newer", why))
        await asking.revoke(member_of(newer).lease.id)
        assert await asking.get(live) is None
        member_of(first)._run(member_of(first).lease.announce(), "older")
        member_of(first)._run(member_of(first)._keep_alive(), "lease")
        await until(lambda: failures)
        assert failures[0][0] == "older"
        assert "another process serves node 'one@host' with its data directory" in failures[0][1]
        await declare(newer, "q")  # the process is announced again
        found = await asking.get(live)
        assert found is not None
        assert newer.boot.encode() in found.value
        assert [who for who, _ in failures] == ["older"]


@in_loop
async def test_what_etcd_has_of_a_start_before_this_one_is_no_other_process(tmp_path: Path) -> None:
    """A start recorded in etcd before this one, as in a restored backup, does not count as a second process."""
    async with Cluster(tmp_path) as cluster:
        asking, keys = cluster.client(), Keys("test")
        first = await cluster.start(0)
        before = first.boot
        await stopped(first)
        first = await cluster.start(0)
        failures: list[str] = []
        member_of(first).etcd.on_failure = failures.append
        said = json.dumps({"home": 1, "boot": before, "host": "127.0.0.1", "port": 1})
        await asking.transaction([], [put(keys.live_node(NODES[0]), said), put(keys.served(NODES[0]), before)])
        await declare(first, "q")
        found = await asking.get(keys.live_node(NODES[0]))
        assert found is not None
        assert first.boot.encode() in found.value
        assert not failures


@in_loop
async def test_a_node_that_the_log_no_longer_reaches_begins_from_the_snapshot(tmp_path: Path) -> None:
    """A node behind the log's first entry begins from the snapshot, and keeps the messages of existing queues."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        asking, keys = cluster.client(), Keys("test")
        await declare(first, "again")
        await declare(second, "kept")
        await declare(second, "deleted")
        for name in ("kept", "deleted"):
            assert await asyncio.to_thread(_published, second.port, name, 3) == 3
        await stopped(second)
        for number in range(30):
            await declare(first, f"q{number}")
        for name in ("deleted", "again"):
            gone = first.topology.vhosts["/"].declared[name]
            await propose(first, DeleteQueue("/", name, gone.id))
        await declare(first, "again")
        applied = first.topology.applied >> 10
        head = await compact(asking, keys, kept=5)
        assert (head.entry, head.floor) == (applied, applied - 4)
        assert len((await asking.folder(keys.log)).values) == 5
        assert len((await asking.folder("/jumpmq/test/snapshot/")).values) == head.chunks
        second = await cluster.start(1)
        assert state_of(first.topology) == state_of(second.topology)
        assert second.losses == []
        await stopped(second)
        second = await cluster.start(1)
        assert state_of(first.topology) == state_of(second.topology)
        assert second.topology.vhosts["/"].queues["kept"].message_count == 3
        third = await cluster.start(2)
        assert state_of(first.topology) == state_of(third.topology)


@pytest.mark.slow
@in_loop
async def test_a_node_that_runs_and_misses_compacted_entries_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        failures: list[str] = []
        member_of(second).etcd.on_failure = failures.append
        with monkeypatch.context() as deaf:
            deaf.setattr(member_of(second).entries, "take", lambda number, entry: None)
            for name in ("q", "r", "s"):
                await declare(first, name)
            await compact(member_of(second).etcd.client, Keys("test"), kept=1)
        await until(lambda: failures)
        assert "is not kept any more" in failures[0]


@in_loop
async def test_the_log_is_compacted_aside(tmp_path: Path) -> None:
    async with Cluster(tmp_path, timing=Timing(compact_every=10, compact_interval=0.1)) as cluster:
        first = await cluster.start(0)
        asking, keys = cluster.client(), Keys("test")
        for number in range(20):
            await declare(first, f"q{number}")

        async def compacted() -> int:
            head = await asking.get(keys.snapshot_head)
            assert head is not None
            return SnapshotHead.read(head.value).entry

        async with asyncio.timeout(20):
            while await compacted() < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        second = await cluster.start(1)
        assert state_of(first.topology) == state_of(second.topology)


@in_loop
async def test_exclusive_queues_of_a_node_that_is_dead_are_gone(tmp_path: Path) -> None:
    """Exclusive queues of a dead node are gone, so that a client can declare the queue at a live node."""
    async with Cluster(tmp_path, timing=Timing(grace=0.5, alive_interval=0.1)) as cluster:
        brokers = await cluster.start_all(3)
        first, second, third = brokers
        await declare(third, "durable")
        definition = third.topology.define_queue("/", "mine", exclusive=True, owner="client")
        await propose(third, DeclareQueue(definition))
        assert "mine" in first.topology.vhosts["/"].declared
        await stopped(third)
        await until(lambda: "mine" not in first.topology.vhosts["/"].declared)
        assert "durable" in first.topology.vhosts["/"].declared
        definition = second.topology.define_queue("/", "mine", exclusive=True, owner="client")
        await propose(second, DeclareQueue(definition))
        third = brokers[2] = await cluster.start(2)
        assert state_of(first.topology) == state_of(third.topology)
        assert third.topology.vhosts["/"].declared["mine"].definition.home == 2


@in_loop
async def test_a_node_that_only_etcd_takes_for_dead_keeps_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, timing=Timing(grace=0.0, alive_interval=0.1)) as cluster:
        first, second = await cluster.start_all(2)
        asking, looks = cluster.client(), 0
        look = member_of(first).witness.look

        async def counted() -> None:
            nonlocal looks
            await look()
            looks += 1

        monkeypatch.setattr(member_of(first).witness, "look", counted)
        definition = second.topology.define_queue("/", "mine", exclusive=True, owner="client")
        await propose(second, DeclareQueue(definition))
        await asking.transaction([], [delete("/jumpmq/test/live/two@host")])
        await until(lambda: looks > 3)
        assert "mine" in first.topology.vhosts["/"].declared


@in_loop
async def test_a_node_that_lives_again_when_that_is_appended_keeps_its_queues(tmp_path: Path) -> None:
    """A node found dead keeps its queues if it lives again at the append: etcd compares in the transaction."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        definition = second.topology.define_queue("/", "mine", exclusive=True, owner="client")
        await propose(second, DeclareQueue(definition))
        with first.turns.turn():
            member_of(first).witness.end(second.config.home)
        await declare(first, "later")
        assert "mine" in first.topology.vhosts["/"].declared
        assert "later" in second.topology.vhosts["/"].declared


@in_loop
async def test_a_node_that_is_cut_off_takes_no_other_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without links takes no other node for dead when a key is missing in etcd."""
    async with Cluster(tmp_path, timing=Timing(grace=0.0)) as cluster:
        brokers = await cluster.start_all(3)
        first, _, third = brokers
        asking = cluster.client()
        try:
            definition = third.topology.define_queue("/", "mine", exclusive=True, owner="client")
            await propose(third, DeclareQueue(definition))
            links = peers_of(first).links
            monkeypatch.setattr(links, "_links", {})  # the node knows of no link, whatever still arrives
            await asking.transaction([], [delete("/jumpmq/test/live/three@host")])
            await member_of(first).witness.look()
            await member_of(first).witness.look()
            assert first.topology.log is not None
            assert member_of(first).log.to_append() is None
            assert "mine" in first.topology.vhosts["/"].declared
        finally:
            monkeypatch.undo()


@in_loop
async def test_of_nodes_that_differ_the_younger_ends(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(3)
        failures: list[tuple[int, str]] = []
        for number, broker in enumerate(brokers):
            member_of(broker).etcd.on_failure = lambda why, number=number: failures.append((number, why))  # type: ignore[misc]
        await declare(brokers[0], "q")
        await declare(brokers[1], "r")
        assert not failures
        with brokers[1].turns.turn():
            brokers[1].topology.apply(PutUser("stranger", "", ()))  # past the log
        brokers[1].topology.applied = brokers[0].topology.applied
        await declare(brokers[0], "s")
        await until(lambda: failures)
        (number, why) = failures[0]
        assert (number, "differ from those of home 1" in why) == (1, True)


@in_loop
async def test_an_etcd_that_was_set_back_is_refused(tmp_path: Path) -> None:
    """An etcd set back to an older state is refused: running nodes stand still, starting nodes end."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        failures: list[str] = []
        asking, keys = cluster.client(), Keys("test")
        member_of(first).etcd.on_failure = failures.append
        for name in ("q", "r", "s"):
            await declare(first, name)
        await stopped(second)
        last = first.topology.applied >> 10
        await asking.transaction([], [delete(keys.entry(last - 1), end_of(keys.log))])
        with pytest.raises(MetadataTimeout, match="etcd was set back"):
            await declare(first, "t", limited=True)
        assert f"etcd lacks entry {last} of the log of cluster 'test'" in str(member_of(first).stall.reason)
        assert not failures
        with pytest.raises(BrokerError, match=f"etcd lacks entry {last}"):
            await cluster.start(1)
        await asking.transaction([], [delete("/jumpmq/", "/jumpmq0")])
        with pytest.raises(BrokerError, match="etcd lacks cluster 'test'"):
            await cluster.start(1)


def consumed(port: int, queue: str, count: int) -> list[bytes]:
    """Acknowledge so many messages, and return the bodies."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        found = [channel.basic_get(queue) for _ in range(count)]
        for method, _, _ in found:
            channel.basic_ack(method.delivery_tag)
        channel.queue_declare(queue, passive=True)
        return [body for _, _, body in found]


@pytest.mark.parametrize(
    "running",
    [pytest.param(False, id="of a start before", marks=pytest.mark.slow), pytest.param(True, id="of the last")],
)
@in_loop
async def test_an_older_copy_of_a_data_directory_is_refused_or_its_loss_recorded(tmp_path: Path, running: bool) -> None:
    """An older copy of a data directory is refused, or its loss is recorded: messages would return or be missing."""
    async with Cluster(tmp_path, timing=Timing(alive_interval=0.1)) as cluster:
        first = await cluster.start(0)
        second = await cluster.start(1)
        here, copy, newest = (tmp_path / name for name in ("node-1", "copy", "newest"))
        asking, keys = cluster.client(), Keys("test")
        await declare(second, "q")
        assert await asyncio.to_thread(_published, second.port, "q", 5) == 5
        if not running:
            await stopped(second)
        shutil.copytree(here, copy)
        if not running:
            second = await cluster.start(1)
        assert await asyncio.to_thread(consumed, second.port, "q", 4) == [b"0", b"1", b"2", b"3"]
        assert await asyncio.to_thread(_published, second.port, "q", 2) == 2
        await second.committed()
        await stopped(second)
        here.rename(newest)
        shutil.copytree(copy, here)
        for _ in range(2):
            with pytest.raises(
                BrokerError, match=r"lacks data recorded at .* an older copy, .* with --accept-older-data"
            ):
                await cluster.start(1)
        shutil.rmtree(here)
        shutil.copytree(newest, here)
        second = await cluster.start(1)
        assert second.topology.vhosts["/"].queues["q"].message_count == 3
        assert not second._commits.losses
        await stopped(second)
        shutil.rmtree(here)
        copy.rename(here)
        for _ in range(2):
            second = await cluster.start(1, accept_older_data=True)
            assert second.topology.vhosts["/"].queues["q"].message_count == 5
            ((loss, _),) = second._commits.losses
            assert "the data directory of node 'two@host' lacks data recorded at" in loss
            await stopped(second)
        shutil.rmtree(here)
        newest.rename(here)
        with pytest.raises(BrokerError, match="older copy"):  # the older copy lacks later messages
            await cluster.start(1)
        first.topology.propose(ForgetNode("two@host"))
        await until(lambda: 2 in first.topology.forgotten)

        async def is_seen() -> bool:
            return await asking.get(keys.seen("two@host")) is not None

        async with asyncio.timeout(10):
            while await is_seen():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@in_loop
async def test_a_cluster_that_etcd_has_lost_is_recovered_from_a_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jumpmq")
    async with Cluster(tmp_path) as cluster:
        brokers = await cluster.start_all(3)
        asking = cluster.client()
        first, second, third = brokers
        for broker, name in (first, "one"), (second, "two"):
            await declare(broker, name)
            assert await asyncio.to_thread(_published, broker.port, name, 3) == 3
        await until(lambda: third.topology.applied == second.topology.applied)
        await stopped(third)
        await declare(first, "later")
        await until(lambda: second.topology.applied == first.topology.applied)
        before, applied = state_of(first.topology), first.topology.applied >> 10
        for broker in brokers:
            await stopped(broker)
        await asking.transaction([], [delete("/jumpmq/", "/jumpmq0")])

        with pytest.raises(BrokerError, match=f"the last entry of the log here is {applied}$"):
            await cluster.start(1)
        stranger = replace(cluster.config(0), data_dir=tmp_path / "new", recover_cluster=True)
        with pytest.raises(BrokerError, match="not belong to a node of cluster 'test'"):
            await cluster.started(stranger)

        brokers = [await cluster.start(2, recover_cluster=True)]
        with pytest.raises(BrokerError, match=f"and this node has entry {applied}: recover the cluster from this node"):
            await cluster.start(0)
        await stopped(brokers[0])
        await asking.transaction([], [delete("/jumpmq/", "/jumpmq0")])

        brokers = await cluster.start_all(2, recover_cluster=True)
        assert "etcd has cluster 'test': nothing to recover" in caplog.text
        for broker, name in zip(brokers, ("one", "two"), strict=True):
            assert state_of(broker.topology) == before
            assert broker.topology.vhosts["/"].queues[name].message_count == 3
        await declare(brokers[0], "after")
        assert "after" in brokers[1].topology.vhosts["/"].declared
        with pytest.raises(BrokerError, match="that was given up: start the node with --rejoin-cluster true"):
            await cluster.start(2)
        brokers.append(await cluster.start(2, rejoin_cluster=True))
        assert brokers[2].config.home == 3
        await until(lambda: state_of(brokers[2].topology) == state_of(brokers[0].topology))


async def lost_cluster(cluster: Cluster, asking: Etcd) -> list[Config]:
    """Three stopped nodes whose cluster is gone from etcd; returns their settings.

    Each node has a queue, ``q0`` and so on, and three messages in the queue. The last node does not know of
    queue ``later``.
    """
    configs = [cluster.config(number) for number in range(3)]
    brokers = [await cluster.started(config) for config in configs]
    for number, broker in enumerate(brokers):
        await declare(broker, f"q{number}")
        assert await asyncio.to_thread(_published, broker.port, f"q{number}", 3) == 3
    await until(lambda: len({broker.topology.applied for broker in brokers}) == 1)
    await stopped(brokers[2])
    await declare(brokers[0], "later")
    assert await asyncio.to_thread(_published, brokers[0].port, "later", 2) == 2
    await stopped(brokers[0])
    await stopped(brokers[1])
    await asking.transaction([], [delete("/jumpmq/", "/jumpmq0")])
    return configs


@pytest.mark.slow
@in_loop
async def test_a_node_of_a_recovery_that_was_given_up_comes_back_with_its_queues(tmp_path: Path) -> None:
    """A node of an abandoned recovery returns with its queues, its own declarations and later messages included."""
    async with Cluster(tmp_path) as cluster:
        asking = cluster.client()
        brokers: list[Broker] = []
        configs = await lost_cluster(cluster, asking)
        wrong = await cluster.started(replace(configs[2], recover_cluster=True))
        brokers.append(wrong)
        for name in ("new", "clash"):
            await declare(wrong, name)
        for name in ("q2", "new", "clash"):
            assert await asyncio.to_thread(_published, wrong.port, name, 4) == 4
        for number in range(12):  # so that the node's log is longer than the right log
            await declare(wrong, f"more-{number}")
        await stopped(wrong)
        await asking.transaction([], [delete("/jumpmq/", "/jumpmq0")])

        brokers += [await cluster.started(replace(config, recover_cluster=True)) for config in configs[:2]]
        first = brokers[1]
        await declare(first, "clash")
        with pytest.raises(BrokerError, match=r"a recovery of cluster 'test' that was given up: .* --rejoin-cluster"):
            await cluster.started(configs[2])
        rejoins = replace(configs[2], rejoin_cluster=True)
        with pytest.raises(
            BrokerError, match=r"the cluster cannot declare queues of this node: 'clash' in vhost '/'\."
        ):
            await cluster.started(rejoins)
        await until(lambda: "new" in first.topology.vhosts["/"].declared)
        clash = first.topology.vhosts["/"].declared["clash"]
        await propose(first, DeleteQueue("/", "clash", clash.id))

        third = await cluster.started(rejoins)
        brokers.append(third)
        queues = third.topology.vhosts["/"].queues
        assert {name: queues[name].message_count for name in ("q2", "new", "clash")} == {
            "q2": 7,
            "new": 4,
            "clash": 4,
        }
        assert len([name for name in queues if name.startswith("more-")]) == 12
        await declare(third, "after")
        assert len({queue.id for queue in third.topology.vhosts["/"].declared.values()}) == 19
        await until(lambda: len({broker.topology.applied for broker in brokers[1:]}) == 1)
        assert state_of(third.topology) == state_of(first.topology) == state_of(brokers[2].topology)
        assert await asyncio.to_thread(consumed, first.port, "new", 4) == [b"0", b"1", b"2", b"3"]
        await stopped(third)
        third = await cluster.started(configs[2])
        brokers.append(third)
        assert third.topology.vhosts["/"].queues["clash"].message_count == 4
        await declare(first, "last")
        await until(lambda: "last" in third.topology.vhosts["/"].declared)


@pytest.mark.slow
@in_loop
async def test_a_node_that_knew_more_than_a_recovered_cluster_follows_it_if_asked(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        asking = cluster.client()
        brokers: list[Broker] = []
        configs = await lost_cluster(cluster, asking)
        brokers.append(await cluster.started(replace(configs[2], recover_cluster=True)))
        with pytest.raises(
            BrokerError, match="recover the cluster from this node, or start this node with --rejoin-cluster"
        ):
            await cluster.started(configs[0])
        brokers += [await cluster.started(replace(config, rejoin_cluster=True)) for config in configs[:2]]
        third, first, second = brokers
        counts = {
            queue.name: queue.message_count for one in brokers for queue in one.topology.vhosts["/"].queues.values()
        }
        assert counts == {"q0": 3, "q1": 3, "q2": 3, "later": 2}
        await declare(second, "after")
        await until(lambda: len({broker.topology.applied for broker in brokers}) == 1)
        assert state_of(third.topology) == state_of(first.topology) == state_of(second.topology)


@pytest.mark.slow
@in_loop
async def test_an_entry_that_cannot_be_read_ends_the_node_with_a_sentence(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        failures: list[str] = []
        asking = cluster.client()
        member_of(first).etcd.on_failure = failures.append
        for junk in (b"junk", b'{"id":"x","home":2,"changes":[[{"change":"Unknown"},{}]]}'):
            entry = Keys("test").entry(member_of(first).log.entry + 1)
            await asking.transaction([], [put(entry, junk)])
            await until(lambda: failures)
            assert "of the cluster's log cannot be read" in failures.pop()


@in_loop
async def test_an_entry_that_cannot_be_read_ends_a_node_that_was_told_it_by_another(tmp_path: Path) -> None:
    """An entry of an unknown format ends a node that receives it over a link: skipping it would diverge the node."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start_all(2)
        failures: list[str] = []
        member_of(second).etcd.on_failure = failures.append
        number = member_of(second).log.entry + 1
        unknown = {"id": "x", "home": 1, "changes": [[{"change": "OfALaterRelease"}, {}]]}
        tell(peers_of(first).links, 2, {"number": number, "entry": unknown})
        with first.turns.turn():
            pass
        await until(lambda: failures)
        assert f"entry {number} of the cluster's log cannot be read" in failures[0]
        assert member_of(second).log.entry == number - 1
        assert second.topology.applied >> 10 == number - 1


@in_loop
async def test_what_a_compaction_left_that_was_killed_goes_with_the_next(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.start(0)
        asking, keys = cluster.client(), Keys("test")
        await write_snapshot(asking, keys, 1, 1, [("user", "left", {})])
        await declare(first, "q")
        head = await compact(asking, keys)
        found = await asking.folder(keys.snapshots)
        assert [one.key for one in found.values] == [f"{keys.snapshot(head.folder)}000000"]
