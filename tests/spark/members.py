"""Members of a consumer group beside queries, and queries that disappear."""

from __future__ import annotations

from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.spark.stream import QueueStreamReader


def fall_silent(query: QueueStreamReader, api: API) -> None:
    """Stop a query without releasing its reservations, and wait until its lease expires."""
    assert query._session is not None
    query._session.stop()
    until(lambda: all(place["lapsed"] for group in api.get("readers", "/") for place in group["queues"].values()))


class Member:
    """A member of a consumer group on ``x``."""

    def __init__(self, broker: RunningBroker) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_url}?heartbeat=0"))
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=1000)
        self.bodies: list[bytes] = []
        try:
            self._channel.basic_consume("x", self._on_message, arguments={"x-consumer-group": "g"})
        except BaseException:
            self._connection.close()
            raise

    def _on_message(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body)
        channel.basic_ack(method.delivery_tag)

    def has(self, count: int) -> bool:
        self._connection.process_data_events(0.1)
        return len(self.bodies) >= count

    def close(self) -> None:
        self._connection.close()
