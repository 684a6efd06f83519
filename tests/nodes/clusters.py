"""Nodes of a cluster in one event loop, as separate :class:`Broker` objects, with a real etcd."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import pika
from tests import brokers
from tests.etcd import EtcdMember, etcd
from tests.nodes.homes import NODES, peers_of
from tests.waiting import PATIENCE

from jumpmq.broker import Broker, Config
from jumpmq.nodes.entering import enter
from jumpmq.nodes.etcd.client import Etcd
from jumpmq.nodes.membership.member import Member
from jumpmq.nodes.timing import TIMING, Timing
from jumpmq.topology import DeclareQueue

E = TypeVar("E", bound=Etcd)

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Cluster:
    """An etcd of one member, and the started nodes; the end stops all nodes, the last first.

    Args:
        options: options of etcd.
        timing: timing of all nodes.

    Attributes:
        members: members of etcd.
    """

    members: list[EtcdMember]

    def __init__(self, directory: Path, *options: str, timing: Timing = TIMING) -> None:
        self._directory = directory
        self._options = options
        self._timing = timing
        self._clients: list[Etcd] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.members = self._stack.enter_context(etcd(self._directory, options=self._options))
        await self._stack.enter_async_context(brokers.stopping())
        return self

    async def __aexit__(self, *exception: object) -> None:
        async with self._stack:
            for client in self._clients:
                await client.close()

    def config(self, number: int, **settings: Any) -> Config:
        """The settings of a node."""
        return config_of(number, self._directory, self.members, **settings)

    async def start(self, number: int, **settings: Any) -> Broker:
        """Return a serving node."""
        return await self.started(self.config(number, **settings))

    async def start_all(self, count: int, **settings: Any) -> list[Broker]:
        """Return so many serving nodes, with the names in :data:`NODES`."""
        return [await self.start(number, **settings) for number in range(count)]

    async def started(self, config: Config) -> Broker:
        """Return a serving node with the given settings."""
        return await started(config, self._timing)

    @overload
    def client(self) -> Etcd: ...
    @overload
    def client(self, made_by: type[E]) -> E: ...
    def client(self, made_by: type[Etcd] = Etcd) -> Etcd:
        """Return a client of etcd, separate from the nodes' clients."""
        client = made_by([self.members[0].url])
        self._clients.append(client)
        return client


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


async def started(config: Config, timing: Timing = TIMING) -> Broker:
    """Return a serving node."""
    return await brokers.started(config, partial(enter, timing=timing))


def member_of(broker: Broker) -> Member:
    """Return the membership of a node in its cluster."""
    member = peers_of(broker)._member
    assert isinstance(member, Member)
    return member


async def declare(broker: Broker, name: str, *, limited: bool = False) -> None:
    """Declare a durable queue at the node's home.

    Raises:
        AMQPError: the declaration is refused.
    """
    await accepted(broker, DeclareQueue(broker.topology.define_queue("/", name, durable=True)), limited=limited)


async def accepted(broker: Broker, change: DeclareQueue, *, limited: bool = False) -> None:
    """Propose a change, and wait for the answer.

    Raises:
        AMQPError: the change is refused.
    """
    known = asyncio.Event()
    with broker.turns.turn():
        pending = broker.topology.propose(change, limited=limited)
    pending.then(known.set)
    async with asyncio.timeout(PATIENCE):
        await known.wait()
    pending.result()
