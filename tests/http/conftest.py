"""A broker with its management port for each test."""

from __future__ import annotations

import contextlib

import pika
import pytest
from tests.http.api import API

import jumpmq


@pytest.fixture
def broker(tmp_path):
    """A durable broker on free ports."""
    with jumpmq.running(data_dir=tmp_path / "broker") as running:
        yield running


@pytest.fixture
def api(broker):
    return API(broker.http_url)


@pytest.fixture
def channel(broker):
    """A channel of a real AMQP client."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    yield connection.channel()
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()
