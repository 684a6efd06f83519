"""A member of a consumer group, until killed: python member_aio_pika.py URL NAME LOG."""

import asyncio
import os
import sys

import aio_pika

url, name, log = sys.argv[1:]


async def main() -> None:
    """Log messages, and acknowledge them."""
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    connection = await aio_pika.connect(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=20)
    closed = asyncio.get_running_loop().create_future()
    connection.close_callbacks.add(lambda *_: closed.done() or closed.set_result(None))

    async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        got = f"got {name} {message.delivery_tag} {message.body.decode()} {int(message.redelivered or False)}"
        os.write(written, f"{got} {message.headers['x-owner-epoch']}\n".encode())
        os.write(written, f"ack {name} {message.delivery_tag}\n".encode())
        await message.ack()

    group = {"x-consumer-group": "g", "x-rebalance-delay": 50, "x-stream-offset": "first"}
    queue = aio_pika.Queue(channel, "orders", durable=True, exclusive=False, auto_delete=False, arguments=None)
    await queue.consume(on_message, arguments=group)
    await closed


asyncio.run(main())
