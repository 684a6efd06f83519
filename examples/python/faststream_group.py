#!/usr/bin/env python3
"""FastStream: several processes share customers, and each customer's orders are handled in order, one at a time.

Start it several times, and publish from one of them:

    BROKER_URL=amqp://guest:guest@127.0.0.1:5672/ PUBLISH=100 faststream run faststream_group:app
"""

import os

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
from faststream.rabbit.annotations import RabbitMessage

broker = RabbitBroker(
    os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672/"), default_channel=Channel(prefetch_count=20)
)
app = FastStream(broker)
orders = RabbitQueue(
    "orders-by-customer",
    durable=True,
    arguments={"x-slots": 64, "x-slot-key": "header:customer", "x-in-flight-per-slot": 1},
)


@broker.subscriber(orders, consume_args={"x-consumer-group": "billing"})
async def bill(order: int, message: RabbitMessage) -> None:
    print("billed", message.headers["customer"], order, flush=True)


@app.after_startup
async def publish() -> None:
    for number in range(int(os.environ.get("PUBLISH", "0"))):
        await broker.publish(number, orders, headers={"customer": f"customer-{number % 20}"}, persist=True)
