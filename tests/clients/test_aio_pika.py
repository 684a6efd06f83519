"""aio-pika, the asyncio client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection
from pamqp.commands import Basic

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]
Run = Callable[[Callable[[AbstractConnection], Awaitable[None]]], None]


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """Run a coroutine function with an open connection."""

    @asynccontextmanager
    async def connected() -> AsyncIterator[AbstractConnection]:
        async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/") as connection:
            yield connection

    def runner(work: Callable[[AbstractConnection], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), connected() as connection:
                await work(connection)

        asyncio.run(main())

    return runner


def test_publish_concurrently_and_iterate(run: Run, unique: Name) -> None:
    async def work(connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=True)
        exchange = await channel.declare_exchange(unique("aio"), "x-consistent-hash", auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, routing_key="1")
        messages = (aio_pika.Message(str(number).encode(), delivery_mode=2) for number in range(100))
        confirms = await asyncio.gather(*(exchange.publish(message, routing_key="key") for message in messages))
        assert len(confirms) == 100
        await channel.set_qos(prefetch_count=10)
        arrived = []
        async with queue.iterator() as iterator:
            async for message in iterator:
                async with message.process():
                    arrived.append(int(message.body))
                if len(arrived) == 100:
                    break
        assert arrived == list(range(100))

    run(work)


def test_an_unroutable_message_raises(run: Run) -> None:
    async def work(connection: AbstractConnection) -> None:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.DeliveryError) as error:
            await channel.default_exchange.publish(aio_pika.Message(b"lost"), routing_key="nowhere", mandatory=True)
        returned = error.value.message
        assert returned is not None
        assert isinstance(returned.delivery, Basic.Return)
        assert returned.delivery.reply_code == 312

    run(work)


def test_a_message_whose_processing_fails_comes_again(run: Run) -> None:
    async def work(connection: AbstractConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(b"again"), routing_key=queue.name)
        message = await queue.get()
        with pytest.raises(RuntimeError):
            async with message.process(requeue=True):
                raise RuntimeError
        again = await queue.get(no_ack=True)
        assert (again.body, again.redelivered) == (b"again", True)

    run(work)


def test_a_missing_queue_raises_and_the_channel_is_reopened(run: Run) -> None:
    async def work(connection: AbstractConnection) -> None:
        channel = await connection.channel()
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity) as error:
            await channel.get_queue("ghost")
        assert "NOT_FOUND - no queue 'ghost' in vhost '/'" in str(error.value)
        assert await (await connection.channel()).declare_queue(exclusive=True)

    run(work)


def test_a_transaction(run: Run) -> None:
    async def work(connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"all or nothing"), routing_key=queue.name)
        assert (await queue.get(no_ack=True)).body == b"all or nothing"

    run(work)


def test_a_wrong_password(broker: BrokerProcess) -> None:
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        asyncio.run(aio_pika.connect(f"amqp://guest:sesame@127.0.0.1:{broker.port}/"))
