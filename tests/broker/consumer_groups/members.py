"""Members of consumer groups, and publishers, over pika, with events reported to a checker."""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any, Self

import pika
from tests.broker.consumer_groups.checker import Checker

PATIENCE = 30.0
"""Timeout for expected events, in seconds."""


class Member:
    """A connection with a single consumer.

    Attributes:
        name: the checker's name of the member.
        held: unsettled deliveries by tag: key, number and queue.
        queues, slots: all sources of deliveries so far.
        epochs: epoch of the last delivery of each key.
        cancelled: True after a cancel by the broker.
    """

    def __init__(
        self,
        port: int,
        source: str,
        group: str,
        name: str,
        checker: Checker,
        *,
        prefetch: int = 10,
        arguments: dict[str, Any] | None = None,
        user: str = "guest",
    ) -> None:
        self.name = name
        self.held: dict[int, tuple[str, int, str]] = {}
        self.queues: set[str] = set()
        self.slots: set[int] = set()
        self.epochs: dict[str, int] = {}
        self.cancelled = False
        self._checker = checker
        credentials = pika.PlainCredentials(user, user)
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(port=port, credentials=credentials))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.channel.add_on_cancel_callback(self._on_cancel)
        self.tag = self.channel.basic_consume(
            source, self._on_delivery, arguments={"x-consumer-group": group, **(arguments or {})}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_delivery(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        key, _, number = body.decode().partition(" ")
        queue = properties.headers["x-queue"]
        self.queues.add(queue)
        if "x-slot" in properties.headers:
            self.slots.add(properties.headers["x-slot"])
        self.held[method.delivery_tag] = key, int(number), queue
        epoch = self.epochs[key] = properties.headers["x-owner-epoch"]
        self._checker.delivered(self.name, method.delivery_tag, key, int(number), method.redelivered, epoch)

    def _on_cancel(self, _: Any) -> None:
        self.cancelled = True

    def read(self, seconds: float = 0.0) -> None:
        """Read the received deliveries."""
        self.connection.process_data_events(seconds)

    def acknowledge(self) -> None:
        """Acknowledge all held deliveries singly."""
        for tag in list(self.held):
            del self.held[tag]
            self._checker.acknowledge(self.name, tag)
            self.channel.basic_ack(tag)

    def requeue(self) -> None:
        """Requeue the last held delivery."""
        tag = max(self.held)
        del self.held[tag]
        self._checker.requeue(self.name, tag)
        self.channel.basic_nack(tag, requeue=True)

    def close(self) -> None:
        """Close the connection cleanly; the broker requeues held deliveries."""
        self._checker.gone(self.name)
        self.held.clear()
        if self.connection.is_open:
            with contextlib.suppress(pika.exceptions.AMQPError):
                self.connection.close()

    def kill(self) -> None:
        """End the socket."""
        self._checker.gone(self.name)
        self.held.clear()
        self.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


class Publisher:
    """Publishes numbered messages of keys to an exchange or queue, with confirms."""

    def __init__(self, port: int, exchange: str, checker: Checker, queue: str | None = None) -> None:
        self._connection = pika.BlockingConnection(pika.ConnectionParameters(port=port))
        self.channel = self._connection.channel()
        self._exchange, self._queue, self._checker = exchange, queue, checker

    def publish(self, keys: int, count: int) -> None:
        """Publish so many messages to each of so many keys."""
        for _ in range(count):
            for key in map(str, range(keys)):
                body = f"{key} {self._checker.publish(key)}"
                properties = pika.BasicProperties(correlation_id=key, delivery_mode=2)
                self.channel.basic_publish(self._exchange, self._queue or key, body.encode(), properties)

    def close(self) -> None:
        self._connection.close()


def until(condition: Callable[[], object], *members: Member, settle: bool = False) -> None:
    """Read at the members until a condition holds.

    Args:
        settle: True to acknowledge deliveries.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        for member in members:
            member.read(0.005)
            if settle:
                member.acknowledge()
        if not members:
            time.sleep(0.005)
