"""Clients with two-sided turns: rejections with dead letters, and transactions."""

import random

from tests.broker.traffic import Client
from tests.wire import Basic, Tx, WireChannel


class Rejecter(Client):
    """Rejects all deliveries; the broker dead-letters them."""

    def work(self, channel: WireChannel) -> None:
        channel.call(Basic.Qos(prefetch_count=50))
        channel.consume("worked")
        while True:
            message = channel.next()
            if random.random() < 0.4:
                channel.send(Basic.Reject(delivery_tag=message.method.delivery_tag, requeue=False))


class Mover(Client):
    """Publishes deliveries to a second queue, and acknowledges them in the same transaction."""

    def work(self, channel: WireChannel) -> None:
        channel.call(Tx.Select())
        channel.call(Basic.Qos(prefetch_count=50))
        channel.consume("worked")
        while True:
            message = channel.next()
            channel.publish("", "moved", message.body, Basic.Properties(delivery_mode=2))
            channel.send(Basic.Ack(delivery_tag=message.method.delivery_tag))
            channel.call(Tx.Commit())


def declare(channel: WireChannel) -> None:
    """Declare a queue that overflows into ``dead`` and a queue rejected into it, both fed by one exchange."""
    channel.exchange("dying", "fanout", durable=True, auto_delete=False)
    channel.exchange("all", "topic", durable=True, auto_delete=False)
    dying = {"x-dead-letter-exchange": "dying"}
    channel.queue("short", durable=True, exclusive=False, arguments={"x-max-length": 20, **dying})
    channel.queue("worked", durable=True, exclusive=False, arguments=dying)
    for name in ("moved", "dead"):
        channel.queue(name, durable=True, exclusive=False)
    channel.bind("dead", "dying")
    channel.bind("short", "all", "#")
    channel.bind("worked", "all", "#")
