"""Clients of a broker with exchanges that hold messages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from jumpmq.testing import JumpMQ


@contextmanager
def connected(broker: JumpMQ, **parameters: Any) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **parameters))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def refused(broker: JumpMQ, act: Callable[[BlockingChannel], object]) -> tuple[int, str]:
    """Return code and text of the channel close caused by an action."""
    with connected(broker) as connection, pytest.raises(pika.exceptions.ChannelClosed) as error:
        act(connection.channel())
    return error.value.reply_code, error.value.reply_text
