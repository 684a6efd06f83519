"""Removal of workers of a node: queues go to the remaining workers, and no queue goes to a removed worker."""

from contextlib import AsyncExitStack
from pathlib import Path

from tests.http.api import API
from tests.nodes.fixed_directory import FixedDirectory
from tests.nodes.homes import config_of, in_loop, peers_of, propose, started, stopped, until
from tests.nodes.management.running_homes import running_nodes
from tests.waiting import until as soon

from jumpmq.topology import DeclareExchange, ExchangeDefinition, LeaveHome, MoveQueue, SetPolicy


@in_loop
async def test_a_worker_that_has_a_shard_of_another_node_ends_all_the_same(tmp_path: Path) -> None:
    others = FixedDirectory("cluster", "s" * 64)
    async with AsyncExitStack() as stack:
        brokers = []
        for home, node in enumerate(("one@host", "two@host", "two@host"), 1):
            brokers.append(await started(config_of(home, 3, tmp_path, node=node), others))
            stack.push_async_callback(stopped, brokers[-1])
        first, _, third = brokers
        await propose(first, SetPolicy("/", "sharded", "x", {"shards-per-node": 1}, 0, "exchanges"))
        await propose(first, DeclareExchange(ExchangeDefinition("/", "x", "x-modulus-hash", durable=True)))
        shard = first.topology.vhosts["/"].declared["sharding: x - one@host - 0"]
        await propose(first, MoveQueue("/", shard.name, shard.id, 3))
        await until(lambda: not shard.definition.before)
        peers_of(third).relocating.decide(True)
        await until(lambda: list(first.topology.homes) == [1, 2])
        assert first.topology.vhosts["/"].declared[shard.name].definition.home == 2


def test_no_queue_is_sent_to_a_worker_that_is_left(tmp_path: Path) -> None:
    with running_nodes(3, tmp_path) as running:
        first, _, third = running.brokers
        running.run(propose(third, LeaveHome(3)))
        api = API(f"http://guest:guest@127.0.0.1:{first.listening.port_of('http')}")
        for name in ("q1", "q2"):
            api.request("PUT", "queues", "/", name, json={"durable": True, "node": "one@host"})
            assert api.request("POST", "queues", "/", name, "actions", json={"action": "move"}).status_code == 204
        assert {one["node"] for one in api.get("queues")} == {"two@host"}


def test_a_shard_that_was_moved_is_listed_when_its_node_is_forgotten(tmp_path: Path) -> None:
    with running_nodes(3, tmp_path) as running:
        first = running.brokers[0]
        running.run(propose(first, SetPolicy("/", "sharded", "x", {"shards-per-node": 1}, 0, "exchanges")))
        running.run(propose(first, DeclareExchange(ExchangeDefinition("/", "x", "x-modulus-hash", durable=True))))
        api = API(f"http://guest:guest@127.0.0.1:{first.listening.port_of('http')}")
        shard = "sharding: x - three@host - 0"
        body = {"action": "move", "node": "one@host"}
        assert api.request("POST", "queues", "/", shard, "actions", json=body).status_code == 204
        soon(lambda: "moving_from" not in api.get("queues", "/", shard))
        running.run(running.leave(3))
        soon(lambda: api.request("DELETE", "nodes", "three@host").status_code == 200)
        assert {one["name"]: one["node"] for one in api.get("exchanges", "/", "x", "shards")} == {
            "sharding: x - one@host - 0": "one@host",
            "sharding: x - two@host - 0": "two@host",
            shard: "one@host",
        }
