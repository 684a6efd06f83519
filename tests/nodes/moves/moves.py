"""Moves of queues between homes: begun, over, and the contents of a stream afterwards."""

from typing import Any

import pika
from tests.brokers import queue_of, with_channel
from tests.nodes.homes import propose

from jumpmq.broker import Broker
from jumpmq.topology import MoveQueue

PERSISTENT = pika.BasicProperties(delivery_mode=2)


async def move(broker: Broker, name: str, home: int) -> None:
    """Request the move of a queue; return once the change is known."""
    queue = broker.topology.vhosts["/"].declared[name]
    await propose(broker, MoveQueue("/", name, queue.id, home))


def is_over(*brokers: Broker) -> bool:
    """Return True if no queue is moving."""
    hosts = [broker.topology.vhosts["/"] for broker in brokers]
    moving = any(one.before for host in hosts for one in host.queue_definitions())
    waiting = any(queue.behind for host in hosts for queue in host.queues.values())
    return not moving and not waiting and not any(host.departed for host in hosts)


def publish(broker: Broker, exchange: str, key: str, first: int, count: int) -> Any:
    def work(channel: Any) -> None:
        channel.confirm_delivery()
        for number in range(first, first + count):
            channel.basic_publish(exchange, key, b"%d" % number, PERSISTENT)

    return with_channel(broker, work)


def read(broker: Broker, name: str) -> list[tuple[int, int]]:
    """The offsets and numbers of all messages of a stream."""
    stream = queue_of(broker, name)
    return [(message.seq, int(message.body)) for part in stream.view.browse(0, 1 << 40) for message in part]
