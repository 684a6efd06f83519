"""Declaration of the demo's topology, and publishing with pika, an AMQP client without support for JumpMQ."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pika
from pika.channel import Channel
from pika.frame import Method

from jumpmq.cli.demo.flights import FlightMessages

#: Maximum number of unconfirmed messages: enough to keep the broker busy during waits for the disk.
WINDOW = 5_000

PERSISTENT_JSON = pika.BasicProperties(content_type="application/json", delivery_mode=2)


def numbered(number: int) -> pika.BasicProperties:
    """Return the properties of a message with a number as message id."""
    return pika.BasicProperties(content_type="application/json", delivery_mode=2, message_id=str(number))


class PublishError(Exception):
    """The broker refused or returned a message, or closed the connection; the text names the reason."""


def declare(url: str, exchange: str, weights: Mapping[str, int], arguments: Mapping[str, Any] | None = None) -> None:
    """Declare a durable consistent hash exchange and durable queues, bound with the given weights.

    Args:
        arguments: arguments of the queues.
    """
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.exchange_declare(exchange, exchange_type="x-consistent-hash", durable=True)
    for queue, weight in weights.items():
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.queue_bind(queue, exchange, routing_key=str(weight))
    connection.close()


class ConfirmedPublisher:
    """Publishes over one connection, to keep order, with at most `WINDOW` unconfirmed messages.

    Args:
        url: AMQP URL of the broker.
        exchange: target exchange.
        flights: messages to publish.
        progress: called with the number of confirmed messages.
        properties: returns the properties of a message by index.
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        flights: FlightMessages,
        progress: Callable[[int], None],
        properties: Callable[[int], pika.BasicProperties] = lambda index: PERSISTENT_JSON,
    ) -> None:
        self._exchange = exchange
        self._flights = flights
        self._progress = progress
        self._properties = properties
        self._published = 0
        self._unconfirmed: dict[int, None] = {}  # delivery tags, lowest first
        self._failure: str | None = None
        self._started = 0.0
        self._seconds = 0.0
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda connection, error: self._fail(f"cannot connect: {error}"),
            on_close_callback=self._closed,
        )

    def publish(self) -> float:
        """Publish all messages, and return the seconds from the first message to the last confirm.

        Raises:
            PublishError: at least one message was not confirmed.
        """
        self._connection.ioloop.start()
        if self._failure:
            raise PublishError(self._failure)
        return self._seconds

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_return_callback(lambda *returned: self._fail(f"returned: {returned[1].reply_text}"))
        channel.add_on_close_callback(self._channel_closed)
        channel.confirm_delivery(self._settled, callback=self._confirming)

    def _confirming(self, _: Method) -> None:
        self._started = time.perf_counter()
        self._fill_window()

    def _fill_window(self) -> None:
        keys, bodies = self._flights.keys, self._flights.bodies
        stop = min(self._published + WINDOW - len(self._unconfirmed), len(bodies))
        for index in range(self._published, stop):
            properties = self._properties(index)
            self._channel.basic_publish(self._exchange, keys[index], bodies[index], properties, mandatory=True)
            self._unconfirmed[index + 1] = None
        self._published = stop

    def _settled(self, frame: Method) -> None:
        confirm = frame.method
        if confirm.NAME != "Basic.Ack":
            self._fail(f"the broker refused message {confirm.delivery_tag}")
            return
        if confirm.multiple:
            while self._unconfirmed and (lowest := next(iter(self._unconfirmed))) <= confirm.delivery_tag:
                del self._unconfirmed[lowest]
        else:
            del self._unconfirmed[confirm.delivery_tag]
        self._fill_window()
        self._progress(self._published - len(self._unconfirmed))
        if not self._unconfirmed:
            self._seconds = time.perf_counter() - self._started
            self._connection.close()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        if self._connection.is_open:
            self._connection.close()
        elif self._connection.is_closed:
            self._connection.ioloop.stop()

    def _channel_closed(self, _: Channel, reason: Exception) -> None:
        if not self._seconds:
            self._fail(str(reason))

    def _closed(self, _: pika.SelectConnection, reason: Exception) -> None:
        if not self._seconds:
            self._failure = self._failure or str(reason)
        self._connection.ioloop.stop()
