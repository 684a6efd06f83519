"""Nodes of a cluster, each with one home: agreement, and the effects of an absent node."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from tests.cli.commands import run
from tests.http.api import API
from tests.nodes.fixed_directory import FixedDirectory
from tests.nodes.homes import NODES, config_of, in_loop, nodes, peers_of, propose, started, stopped, until
from tests.topology.state import state_of

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker import Broker
from jumpmq.broker.broker import start
from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.opening import Opened
from jumpmq.http.server import HTTPServer
from jumpmq.nodes.entering import enter
from jumpmq.topology import DeclareExchange, DeclareQueue, ExchangeDefinition, ForgetNode, SetPolicy


@in_loop
async def test_a_node_that_others_forget_stops_and_keeps_what_it_has(tmp_path: Path) -> None:
    known = FixedDirectory("cluster", "s" * 64)
    first, second = [await started(config_of(home, 2, tmp_path, node=NODES[home - 1]), known) for home in (1, 2)]
    failures: list[str] = []
    name = "kept"
    await propose(second, DeclareQueue(second.topology.define_queue("/", name, durable=True)))
    with pytest.raises(PreconditionFailed, match="'one@host' cannot forget itself"):
        await propose(second, ForgetNode("one@host"))
    await stopped(second)
    await propose(first, ForgetNode("two@host"))
    assert name not in first.topology.vhosts["/"].declared
    config = config_of(2, 2, tmp_path, node="two@host")
    again = partial(enter, directory=known)
    starting = asyncio.ensure_future(start(config, again, on_failure=failures.append))
    await until(lambda: failures)
    assert "it keeps its data" in failures[0]
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    commits = Commits()
    kept = Opened(config, commits).definitions
    assert [value["name"] for kind, _, value in kept if kind == "queue"] == [name]
    await commits.close()


@in_loop
async def test_a_node_has_the_name_of_its_machine_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = FixedDirectory("cluster", "s" * 64)

    async def start(home: int, machine: str) -> Broker:
        monkeypatch.setattr("socket.gethostname", lambda: machine)
        return await started(config_of(home, 2, tmp_path), known)

    first = await start(1, "owl.example")
    second = await start(2, "sparrow.example")
    assert first.topology.nodes == second.topology.nodes == {"jumpmq@owl": [1], "jumpmq@sparrow": [2]}
    await stopped(second)
    second = await start(2, "renamed.example")
    assert (second.node, second.topology.nodes) == ("jumpmq@sparrow", first.topology.nodes)


@in_loop
async def test_the_api_shows_nodes_and_forgets_one_that_is_down(tmp_path: Path) -> None:
    """The API shows all nodes, forgets a stopped node, and declares queues on the node of the request."""

    def jumpmqctl(api: API, *arguments: str) -> str:
        called = run("jumpmqctl", *arguments, JUMPMQ_URL=api.address.replace("//", "//guest:guest@"))
        assert called.returncode == 0, called.stdout + called.stderr
        return called.stdout

    async with nodes(3, tmp_path) as brokers:
        brokers[0].config.http_port = 0
        http = HTTPServer(brokers[0])
        await http.start()
        api = API(f"http://127.0.0.1:{brokers[0].listening.port_of('http')}")
        name = "gone"
        await propose(brokers[2], DeclareQueue(brokers[2].topology.define_queue("/", name, durable=True)))
        refused = await asyncio.to_thread(api.request, "DELETE", "nodes", "three@host")
        assert (refused.status_code, "must be stopped" in refused.text) == (400, True)
        assert name in brokers[0].topology.vhosts["/"].declared
        body = {"durable": True, "node": "two@host"}
        made = await asyncio.to_thread(api.request, "PUT", "queues", "/", "there", json=body)
        assert made.status_code == 201, made.text
        assert "there" in brokers[1].topology.vhosts["/"].queues
        await stopped(brokers[2])
        await until(lambda: len(brokers[0].running_nodes) == 2)
        body = {"durable": True, "node": "three@host"}
        made = await asyncio.to_thread(api.request, "PUT", "queues", "/", "down", json=body)
        assert "Node three@host could not be contacted" in made.text
        found = await asyncio.to_thread(api.get, "nodes")
        assert {one["name"]: one["running"] for one in found} == {
            "one@host": True,
            "two@host": True,
            "three@host": False,
        }
        assert not (await asyncio.to_thread(api.get, "nodes", "three@host"))["running"]
        shown = await asyncio.to_thread(jumpmqctl, api, "cluster_status", "--formatter", "json")
        assert json.loads(shown)["disk_nodes"] == ["one@host", "three@host", "two@host"]
        assert json.loads(shown)["running_nodes"] == ["one@host", "two@host"]
        shown = await asyncio.to_thread(jumpmqctl, api, "forget_cluster_node", "three@host", "--yes")
        assert "1 queue was on the node and is gone:\n/\tgone" in shown
        assert list(brokers[1].topology.nodes) == ["one@host", "two@host"]
        assert (await asyncio.to_thread(api.request, "GET", "nodes", "three@host")).status_code == 404
        with pytest.raises(AssertionError, match="node 'three@host' is not in the cluster"):  # as after a crash
            await asyncio.to_thread(jumpmqctl, api, "forget_cluster_node", "three@host")
        await http.stop()


def _publish(port: int, keys: list[str]) -> tuple[int, int]:
    """Publish to the exchange ``x``; returns how many were confirmed, and how many refused."""
    refused = 0
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for key in keys:
            try:
                channel.basic_publish("x", key, b"m")
            except pika.exceptions.NackError:
                refused += 1
    return len(keys) - refused, refused


def _declare_passively(port: int, queue: str) -> tuple[int, str]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return error.reply_code, error.reply_text
    return 200, ""


def _consumed_from(port: int, queue: str, count: int, brokers: list[Broker]) -> Any:
    """Return the positions reached by so many consumers of a queue."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    for _ in range(count):
        channel.basic_consume(queue, lambda *_: None)
    found = {one.name: len(one.consumers) for broker in brokers for one in broker.topology.vhosts["/"].queues.values()}
    connection.close()
    return found


@in_loop
async def test_shards_are_on_every_node_and_consumed_from_on_the_own(tmp_path: Path) -> None:
    async with nodes(3, tmp_path, durable=False) as brokers:
        await propose(brokers[1], SetPolicy("/", "p", "^x$", {"shards-per-node": 2}, apply_to="exchanges"))
        await propose(brokers[2], DeclareExchange(ExchangeDefinition("/", "x", "x-consistent-hash", durable=True)))
        found = await asyncio.to_thread(_consumed_from, brokers[1].port, "x", 4, brokers)
        assert {name: count for name, count in found.items() if count} == {
            "sharding: x - two@host - 0": 2,
            "sharding: x - two@host - 1": 2,
        }


@in_loop
async def test_a_node_that_is_down_refuses_its_share_and_its_queues_say_where_they_are(tmp_path: Path) -> None:
    async with nodes(3, tmp_path) as brokers:
        await propose(brokers[0], SetPolicy("/", "p", "^x$", {"shards-per-node": 1}, apply_to="exchanges"))
        await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "x", "x-consistent-hash", durable=True)))
        keys = [f"key-{number}" for number in range(90)]
        assert await asyncio.to_thread(_publish, brokers[0].port, keys) == (90, 0)
        counts = [
            sum(queue.message_count for queue in broker.topology.vhosts["/"].queues.values()) for broker in brokers
        ]
        assert sum(counts) == 90 and all(counts)
        await stopped(brokers[1])
        await until(lambda: peers_of(brokers[0]).links.homes == [3])
        assert await asyncio.to_thread(_publish, brokers[0].port, keys) == (90 - counts[1], counts[1])
        shard = "sharding: x - two@host - 0"
        text = f"NOT_FOUND - home node 'two@host' of durable queue '{shard}' in vhost '/' is down or inaccessible"
        assert await asyncio.to_thread(_declare_passively, brokers[2].port, shard) == (404, text)


@in_loop
async def test_a_queue_is_where_its_client_or_where_the_fewest_are(tmp_path: Path) -> None:
    def declare(port: int, locator: str) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            for number in range(6):
                arguments = {"x-queue-type": "quorum", "x-queue-leader-locator": locator}
                channel.queue_declare(f"{locator} {number}", durable=True, arguments=arguments)

    async with nodes(3, tmp_path, durable=False) as brokers:
        await asyncio.to_thread(declare, brokers[2].port, "client-local")
        await asyncio.to_thread(declare, brokers[2].port, "balanced")
        queues = brokers[0].topology.vhosts["/"].declared.values()
        where = {one.name: one.definition.node for one in queues}
        assert {where[f"client-local {number}"] for number in range(6)} == {"three@host"}
        assert sorted(where[f"balanced {number}"] for number in range(6)) == ["one@host"] * 3 + ["two@host"] * 3
        states = [state_of(broker.topology) for broker in brokers]
        assert states[0] == states[1] == states[2]
