"""The common part of three programs: four queues of different weight, and a publisher that waits for confirms."""

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import islice, takewhile

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.channel import Channel
from pika.frame import Method

WEIGHTS = {"q1": "1", "q2": "1", "q3": "2", "q4": "2"}
"""Binding keys of a hash exchange are weights: q3 and q4 get twice as many keys as q1 and q2."""

WINDOW = 2000
"""Maximum number of unconfirmed messages."""

Message = tuple[str, pika.BasicProperties | None]
"""Routing key and properties; the body stays empty."""


def spread(description: str, exchange: str, arguments: dict[str, str], message: Callable[[str], Message]) -> None:
    """Declare an exchange and its queues, publish a message per key, and print the number of messages of every queue.

    Args:
        description: text of `--help`.
        exchange: name of the exchange.
        arguments: the hashed header or property; empty for the routing key.
        message: makes the message of a key.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F", help="default: %(default)s")
    parser.add_argument("--count", type=int, default=100_000, help="number of keys; default: %(default)s")
    options = parser.parse_args()
    parameters = pika.URLParameters(options.url)
    try:
        with pika.BlockingConnection(parameters) as connection:
            declare(connection.channel(), exchange, arguments)
        Publisher(parameters, exchange, (message(str(key)) for key in range(options.count))).run()
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            for queue in WEIGHTS:
                print(queue, channel.queue_declare(queue, passive=True).method.message_count)
    except pika.exceptions.AMQPError as error:
        sys.exit(f"{parameters.host}:{parameters.port} says: {error!r}")


def declare(channel: BlockingChannel, exchange: str, arguments: dict[str, str]) -> None:
    """Declare the exchange and the queues, purge the queues and bind them with their weights."""
    channel.exchange_declare(exchange, "x-consistent-hash", durable=True, arguments=arguments)
    for queue, weight in WEIGHTS.items():
        channel.queue_declare(queue, durable=True)
        channel.queue_purge(queue)
        channel.queue_bind(queue, exchange, routing_key=weight)


class Publisher:
    """Publishes on a connection of its own, at most `WINDOW` messages ahead of the broker's confirms."""

    def __init__(self, parameters: pika.URLParameters, exchange: str, messages: Iterator[Message]) -> None:
        self._exchange = exchange
        self._messages = messages
        self._sent = 0
        self._unconfirmed: dict[int, None] = {}  # delivery tags, the oldest first
        self._problem: object = None
        self._channel: Channel
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._begin),
            on_open_error_callback=self._end,
            on_close_callback=self._end,
        )

    def run(self) -> None:
        """Publish all messages.

        Raises:
            SystemExit: the broker refused a message or the connection, with the reason.
        """
        self._connection.ioloop.start()
        if self._problem is not None:
            sys.exit(f"not everything was published: {self._problem}")

    def _begin(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._publish())

    def _publish(self) -> None:
        for routing_key, properties in islice(self._messages, WINDOW - len(self._unconfirmed)):
            self._channel.basic_publish(self._exchange, routing_key, b"", properties)
            self._sent += 1
            self._unconfirmed[self._sent] = None
        if not self._unconfirmed:
            self._stop(None)

    def _on_confirm(self, frame: Method) -> None:
        tag = frame.method.delivery_tag
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._stop(f"the broker refused message {tag}")
            return
        confirmed = list(takewhile(tag.__ge__, self._unconfirmed)) if frame.method.multiple else [tag]
        for each in confirmed:
            del self._unconfirmed[each]
        if sys.stderr.isatty():
            print(f"\r{self._sent - len(self._unconfirmed):,} confirmed", end="", file=sys.stderr)
        self._publish()

    def _channel_closed(self, _: Channel, reason: Exception) -> None:
        if not isinstance(reason, pika.exceptions.ChannelClosedByClient):
            self._stop(reason)

    def _stop(self, problem: object) -> None:
        self._problem = self._problem or problem
        if self._connection.is_open:
            self._connection.close()

    def _end(self, _: pika.SelectConnection, reason: object) -> None:
        if not isinstance(reason, pika.exceptions.ConnectionClosedByClient):
            self._problem = self._problem or reason
        self._connection.ioloop.stop()
