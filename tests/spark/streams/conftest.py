"""Streams behind an exchange."""

from typing import Any

import pytest
from tests.spark.streams.published import STREAM


@pytest.fixture
def streams(channel: Any) -> Any:
    """The channel, with the streams ``s1`` and ``s2`` bound to a hash exchange ``x`` that has no other queues."""
    for queue in ("q1", "q2"):
        channel.queue_delete(queue)
    for stream in ("s1", "s2"):
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        channel.queue_bind(stream, "x", "1")
    return channel
