"""Consumer groups where queues are at several homes: those of other homes are refused, or left out and named."""

import asyncio
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.broker.links.test_enqueue import bind, declare, with_channel
from tests.homes import homes, in_loop, propose, until

from jumpmq.topology import DeclareExchange, ExchangeDefinition

GROUP = {"x-consumer-group": "billing"}


@in_loop
async def test_a_group_is_refused_where_a_queue_is_at_another_home(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "x", "x-modulus-hash", durable=True)))
        for place, broker in enumerate(brokers):
            await declare(broker, f"q{place}")
            await bind(broker, "x", f"q{place}")

        def join(name: str) -> Any:
            return lambda channel: channel.basic_consume(name, lambda *_: None, arguments=GROUP)

        for home, elsewhere, name in ((0, 1, "x"), (1, 0, "x"), (0, 1, "q1")):
            with pytest.raises(ChannelClosedByBroker, match=f"'q{elsewhere}' in vhost '/' has no consumer groups here"):
                await with_channel(brokers[home], join(name))
        await with_channel(brokers[1], join("q1"))


@in_loop
async def test_a_queue_of_another_home_that_is_bound_later_is_left_out_and_named(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        first = brokers[0]
        await propose(first, DeclareExchange(ExchangeDefinition("/", "x", "x-modulus-hash", durable=True)))
        await declare(first, "here")
        await bind(first, "x", "here")
        connection = await asyncio.to_thread(
            pika.BlockingConnection, pika.ConnectionParameters("127.0.0.1", first.port, heartbeat=0)
        )

        def join() -> Any:
            channel = connection.channel()
            channel.basic_consume("x", lambda *_: None, arguments=GROUP)
            return channel

        await asyncio.to_thread(join)
        await declare(brokers[1], "elsewhere")
        await bind(first, "x", "elsewhere")
        (live,) = first.consumer_groups.all("/")
        await until(lambda: live.refused)
        assert "its home is 2" in live.refused["elsewhere"]
        assert {queue.name for queue in live.queues.values()} == {"here"}
        await asyncio.to_thread(connection.close)
