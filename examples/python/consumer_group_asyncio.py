#!/usr/bin/env python3
"""Share the queues of a consistent hash exchange with aio-pika: start it several times, stop some, start more.

Every key's messages come to one process at a time, in order.
"""

import argparse
import asyncio
import os

import aio_pika
from aio_pika import ExchangeType, Message


async def share(url: str, publish: int, idle: float | None) -> None:
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("orders", ExchangeType.X_CONSISTENT_HASH, durable=True)
        for number in range(4):
            queue = await channel.declare_queue(f"orders-{number}", durable=True)
            await queue.bind(exchange, routing_key="1")
        for number in range(publish):
            await exchange.publish(Message(b"order %d" % number), f"customer {number % 20}")

        await channel.set_qos(prefetch_count=20)  # over all queues of this member
        orders = await channel.get_queue("orders", ensure=False)  # the group consumes the exchange
        came = asyncio.Event()

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                print(os.getpid(), message.headers["x-queue"], message.routing_key, message.body.decode(), flush=True)
                came.set()

        await orders.consume(on_message, arguments={"x-consumer-group": "billing"})
        while True:
            try:
                await asyncio.wait_for(came.wait(), idle)
            except TimeoutError:
                return
            came.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="amqp://guest:guest@127.0.0.1:5672/%2F")
    parser.add_argument("--publish", type=int, default=0, metavar="N", help="first publish N messages of 20 keys")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="stop after so many seconds without a message")
    arguments = parser.parse_args()
    asyncio.run(share(arguments.url, arguments.publish, arguments.idle))


if __name__ == "__main__":
    main()
