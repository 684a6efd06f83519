"""Streams behind an exchange."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.spark.streams.published import STREAM


@pytest.fixture
def streams(channel: BlockingChannel) -> BlockingChannel:
    """The channel, with the streams ``s1`` and ``s2`` as the only queues of the hash exchange ``x``."""
    for queue in ("q1", "q2"):
        channel.queue_delete(queue)
    for stream in ("s1", "s2"):
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        channel.queue_bind(stream, "x", "1")
    return channel
