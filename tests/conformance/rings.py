"""Hash exchanges with queues bound in order, and the queues of many messages."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.wire import Basic, Queue, WireChannel

Publication = tuple[str, Basic.Properties | bytes | None]
"""Routing key and properties of a message."""


def weights(buckets: int) -> list[int]:
    """Weights with the sum ``buckets``: all 1 for a moderate number of queues, else sixteen uneven weights."""
    if buckets <= 128:
        return [1] * buckets
    uneven = [buckets * share // 150 for share in range(1, 16)]
    return [*uneven, buckets - sum(uneven)]


class Ring:
    """A hash exchange and its queues; the first queue owns the first buckets.

    Attributes:
        queues: names of the queues, in order of binding.
    """

    def __init__(
        self,
        channel: WireChannel,
        exchange_type: str,
        weights: Iterable[int],
        name: Callable[[str], str],
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self._channel = channel
        self._owners = [queue for queue, weight in enumerate(weights) for _ in range(weight)]
        self.exchange = channel.exchange(name("ring"), exchange_type, arguments=arguments)
        prefix = name("shard")
        self.queues = [f"{prefix}-{number:05}" for number in range(self._owners[-1] + 1)]
        for number, queue in enumerate(self.queues):
            channel.send(Queue.Declare(queue=queue, exclusive=True, nowait=True))
            weight = str(self._owners.count(number)) if exchange_type == "x-consistent-hash" else "any"
            channel.send(Queue.Bind(queue=queue, exchange=self.exchange, routing_key=weight, nowait=True))

    def owner(self, bucket: int) -> int:
        """Number of the queue that owns a bucket."""
        return self._owners[bucket]

    def place(self, publications: Sequence[Publication]) -> list[int]:
        """Publish messages. Return the number of every message's queue.

        Raises:
            TimeoutError: messages are missing.
        """
        channel = self._channel
        octets = [
            channel.publication(self.exchange, key, str(number).encode(), properties)
            for number, (key, properties) in enumerate(publications)
        ]
        channel.connection.send(b"".join(octets))
        for queue in self.queues:
            channel.send(Basic.Consume(queue=queue, consumer_tag=queue, no_ack=True, nowait=True))
        places = [-1] * len(publications)
        for delivery in channel.take(len(publications)):
            places[int(delivery.body)] = self.queues.index(delivery.method.consumer_tag)
        return places
