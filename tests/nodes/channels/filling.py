"""Queues with messages, filled by clients of the queues' own home."""

from typing import Any

import pika
import pika.exceptions
from tests.brokers import declare, queue_of, with_channel
from tests.nodes.homes import until

from jumpmq.broker import Broker


async def filled(broker: Broker, name: str, count: int, **arguments: Any) -> None:
    """Return a queue at a home with so many messages, published by clients of the home."""
    await declare(broker, name, arguments)

    def publish(channel: Any) -> None:
        for number in range(count):
            channel.basic_publish("", name, b"%d" % number, pika.BasicProperties(content_type="text/plain"))

    await with_channel(broker, publish)
    await until(lambda: queue_of(broker, name).ready_count == count)
