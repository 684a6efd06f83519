"""Consumers of a sharded exchange's name, at several homes of a node, get the shard with the fewest consumers."""

import asyncio
from collections import Counter
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from tests.nodes.homes import homes, in_loop, peers_of, propose, stopped, until
from tests.wire import Basic, login

from jumpmq.broker import Broker
from jumpmq.nodes.channels.shard_choice import spread
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.records import CHOOSE, COUNT
from jumpmq.topology import DeclareExchange, ExchangeDefinition, SetPolicy
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import QueueDefinition


async def sharded(brokers: list[Broker], shards: int) -> None:
    await propose(brokers[0], SetPolicy("/", "p", "^x$", {"shards-per-node": shards}, 0, "exchanges"))
    await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "x", "x-modulus-hash", durable=True)))
    await until(lambda: all("x" in one.topology.vhosts["/"].exchanges for one in brokers))


async def connected(broker: Broker) -> AbstractConnection:
    return await aio_pika.connect(f"amqp://127.0.0.1:{broker.port}")


async def consume(connection: AbstractConnection) -> None:
    channel = await connection.channel()
    queue = await channel.get_queue("x")
    await queue.consume(take)


async def take(message: AbstractIncomingMessage) -> None:
    """Keep the question."""


def consume_and_go(broker: Broker) -> None:
    """Ask to consume, and break the connection before the answer."""
    with login(broker.port) as connection:
        channel = connection.channel()
        connection.send_method(channel.number, Basic.Consume(queue="x"))


def consumers(brokers: list[Broker]) -> list[int]:
    """Return the number of consumers per shard, in order."""
    found = {}
    for broker in brokers:
        for name, declared in broker.topology.vhosts["/"].declared.items():
            if declared.contents is not None:
                found[name] = len(declared.contents.consumers)
    return [found[name] for name in sorted(found)]


@in_loop
async def test_connections_of_one_and_three_consumers_cover_four_shards(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await sharded(brokers, 4)
        one, three = await connected(brokers[0]), await connected(brokers[1])
        await consume(one)
        for _ in range(3):
            await consume(three)
        assert consumers(brokers) == [1, 1, 1, 1]
        await one.close()
        await consume(three)
        assert consumers(brokers) == [1, 1, 1, 1]
        await three.close()


@pytest.mark.slow
@in_loop
async def test_consumers_that_come_at_once_are_spread_to_within_one(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await sharded(brokers, 7)
        clients = await asyncio.gather(*(connected(brokers[number % 3]) for number in range(27)))
        await asyncio.gather(*(consume(client) for client in clients for _ in range(10)))
        found = consumers(brokers)
        assert sum(found) == 270
        assert max(found) - min(found) <= 1
        for client in clients:
            await client.close()


@in_loop
async def test_clients_that_restart_one_by_one_leave_no_shard_unread(tmp_path: Path) -> None:
    """Clients that restart one by one at any home leave no shard unread: an abandoned shard is assigned next."""
    async with homes(3, tmp_path) as brokers:
        await sharded(brokers, 6)
        clients = [await connected(brokers[number % 3]) for number in range(6)]
        for client in clients:
            await consume(client)
        for restart in range(12):
            place = restart * 5 % 6
            await clients[place].close()
            clients[place] = await connected(brokers[restart * 7 % 3])
            await consume(clients[place])
            assert consumers(brokers) == [1] * 6, f"restart {restart}"
        for client in clients:
            await client.close()


@pytest.mark.slow
@in_loop
async def test_a_client_that_goes_while_it_waits_for_a_shard_is_not_counted(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await sharded(brokers, 2)
        for _ in range(10):
            await asyncio.to_thread(consume_and_go, brokers[1])
        clients = [await connected(broker) for broker in brokers]
        await until(lambda: not sum(consumers(brokers)))
        for client in clients:
            await consume(client)
        assert consumers(brokers) == [1, 1]
        for client in clients:
            await client.close()


@pytest.mark.slow
@in_loop
async def test_a_choice_goes_on_without_the_home_that_chose(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await sharded(brokers, 6)
        client = await connected(brokers[2])
        choosing = peers_of(brokers[0]).links.handlers
        choosing[CHOOSE] = lambda link, payload: None  # the home receives the question, and ends
        waiting = asyncio.create_task(consume(client))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await stopped(brokers[0])
        async with asyncio.timeout(10):
            await waiting
        assert sum(consumers(brokers[1:])) == 1
        await client.close()


@in_loop
async def test_a_choice_does_not_wait_long_for_a_home_that_is_silent(tmp_path: Path) -> None:
    async with homes(3, tmp_path, timing=Timing(count_patience=0.05)) as brokers:
        await sharded(brokers, 6)
        peers_of(brokers[2]).links.handlers[COUNT] = lambda link, payload: None
        client = await connected(brokers[1])
        for _ in range(6):
            await consume(client)
        assert consumers(brokers) == [1] * 6
        await client.close()


def test_of_several_with_the_fewest_the_own_home_comes_first() -> None:
    shards = [DeclaredQueue(QueueDefinition("/", f"s{n}", True, id=n, home=1 + n % 2), None) for n in range(4)]
    counts = Counter({0: 1})
    given = [shard and shard.name for shard in spread(shards, counts, [1, 1, 1, 2, 3])]
    assert given == ["s2", "s1", "s3", "s1", "s0"]
    assert spread([], Counter(), [1]) == [None]
