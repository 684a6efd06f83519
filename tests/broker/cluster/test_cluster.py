"""Nodes whose definitions are in a real etcd: what they agree on, and what they do without it."""

from pathlib import Path
from typing import Any

from tests.etcd import EtcdMember, etcd, needs_etcd
from tests.homes import NODES, in_loop, propose, stopped, until
from tests.topology.state import state_of

from jumpmq.broker import Broker, Config
from jumpmq.topology import DeclareExchange, DeclareQueue, ExchangeDefinition, SetPolicy

pytestmark = needs_etcd


def config_of(number: int, directory: Path, members: list[EtcdMember], **settings: Any) -> Config:
    """The settings of a node."""
    return Config(
        host="127.0.0.1",
        port=0,
        http_port=None,
        tls_port=None,
        https_port=None,
        node=NODES[number],
        data_dir=directory / f"node-{number}",
        cluster="test",
        etcd=",".join(member.url for member in members),
        **settings,
    )


async def started(config: Config) -> Broker:
    broker = Broker(config)
    await broker.start()
    return broker


@in_loop
async def test_nodes_make_a_cluster_and_know_the_same(tmp_path: Path) -> None:
    with etcd(tmp_path) as members:
        brokers = [await started(config_of(number, tmp_path, members)) for number in range(3)]
        try:
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
        finally:
            for broker in brokers:
                await stopped(broker)
