#!/usr/bin/env python3
"""Taskiq: workers share customers, and the tasks of a customer run in order, one at a time.

Start one or several workers, and then queue tasks:

    taskiq worker taskiq_group:broker --ack-type when_executed
    python taskiq_group.py 100
"""

import asyncio
import os
import sys

from taskiq_aio_pika import AioPikaBroker, Queue, QueueType

broker = AioPikaBroker(os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672/"), qos=20).with_queue(
    Queue(
        "tasks-by-customer",
        type=QueueType.CLASSIC,
        routing_key="tasks",
        arguments={"x-slots": 64, "x-slot-key": "header:customer", "x-in-flight-per-slot": 1},
        consumer_arguments={"arguments": {"x-consumer-group": "billing"}},
    )
)


@broker.task
async def bill(customer: str, order: int) -> None:
    print("billed", customer, order, flush=True)


async def publish(count: int) -> None:
    await broker.startup()
    for number in range(count):
        customer = f"customer-{number % 20}"
        await bill.kicker().with_labels(customer=customer).kiq(customer, number)  # labels are headers
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(publish(int(sys.argv[1])))
