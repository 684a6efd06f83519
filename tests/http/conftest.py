"""A broker with its management port, for every test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API

import jumpmq
from jumpmq.serving.server import RunningBroker


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A durable broker on free ports, with the number of homes in ``--homes``."""
    homes = request.config.getoption("homes")
    if homes > 1:
        from tests.nodes.management.running_homes import running_homes  # here, as a checkout may be without nodes

        with running_homes(homes, tmp_path / "broker") as running:
            yield running.endpoints
        return
    with jumpmq.running(data_dir=tmp_path / "broker") as alone:
        yield alone


@pytest.fixture
def api(broker: RunningBroker) -> API:
    return API(broker.http_url)


@pytest.fixture
def channel(broker: RunningBroker) -> Iterator[BlockingChannel]:
    """A channel of a real AMQP client."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    yield connection.channel()
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()
