"""Queued output for slow clients and homes is bounded, for any number of channels and answers."""

import asyncio
from pathlib import Path
from typing import Any

import pika
from tests.brokers import declare, queue_of, with_channel
from tests.nodes.homes import homes, in_loop, peers_of, until

from jumpmq.nodes.messages.enqueue import IN_FLIGHT_MOST
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.windows import WINDOW

CHANNELS = 60
MESSAGES = 600
BODY = b"x" * (100 << 10)


@in_loop
async def test_channels_of_a_client_that_does_not_read_share_a_window(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "q", durable=False)
        found: list[int] = []
        may_read, may_end = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def consume(channel: Any) -> None:
            connection = channel.connection
            for each in [channel, *(connection.channel() for _ in range(CHANNELS - 1))]:
                each.basic_consume("q", lambda c, d, p, body: found.append(len(body)), auto_ack=True)
            loop.call_soon_threadsafe(may_end.set)
            asyncio.run_coroutine_threadsafe(may_read.wait(), loop).result()
            while len(found) < MESSAGES:
                connection.process_data_events(0.1)

        def publish(channel: Any) -> None:
            channel.confirm_delivery()
            for _ in range(MESSAGES):
                channel.basic_publish("", "q", BODY)

        client = asyncio.create_task(with_channel(brokers[0], consume))
        await may_end.wait()
        [connection] = brokers[0].connections
        await with_channel(brokers[1], publish)
        ready, waiting = queue_of(brokers[1], "q").ready_count, connection.writing.waiting
        may_read.set()
        await client
        assert ready > MESSAGES // 2
        assert waiting < 4 * WINDOW
        assert found == [len(BODY)] * MESSAGES
        served = peers_of(brokers[1])._parts.served
        await until(lambda: not served._served and not served._windows)


@in_loop
async def test_answers_for_a_home_that_does_not_read_hold_up_who_sends_them(tmp_path: Path) -> None:
    async with homes(2, tmp_path, timing=Timing(link_silence=600.0)) as brokers:
        await declare(brokers[1], "requests", durable=False)
        answers, count = [0], 150
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def ask(channel: Any) -> None:
            def on_answer(c: Any, d: Any, p: Any, body: bytes) -> None:
                answers[0] += 1

            channel.basic_consume("amq.rabbitmq.reply-to", on_answer, auto_ack=True)
            channel.basic_publish("", "requests", b"", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
            while answers[0] < count:
                channel.connection.process_data_events(0.1)

        def answer(channel: Any) -> None:
            while not (got := channel.basic_get("requests", auto_ack=True))[0]:
                pass
            loop.call_soon_threadsafe(address.set_result, got[1].reply_to)
            asyncio.run_coroutine_threadsafe(stopped.wait(), loop).result()
            for _ in range(count):
                channel.basic_publish("", got[1].reply_to, bytes(1 << 20))

        stopped = asyncio.Event()
        asking = asyncio.create_task(with_channel(brokers[0], ask))
        answering = asyncio.create_task(with_channel(brokers[1], answer))
        await address
        links = [peers_of(broker).links for broker in brokers]
        here, there = links[0].to(2), links[1].to(1)
        assert here is not None and there is not None
        here._transport.pause_reading()
        stopped.set()
        await until(lambda: answering.done() or there.unsent_octets > IN_FLIGHT_MOST - (4 << 20))
        for _ in range(200):
            await asyncio.sleep(0)
        unsent = there.unsent_octets
        here._transport.resume_reading()
        await asyncio.gather(asking, answering)
        assert unsent < IN_FLIGHT_MOST + (8 << 20)
        assert answers[0] == count
