"""A broker in a separate process, which tests kill and restart; shared by the tests of a file."""

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.broker.holding.connecting import connected
from tests.http.api import API

from jumpmq.testing import JumpMQ


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JumpMQ]:
    with JumpMQ(tmp_path_factory.mktemp("holding") / "data") as started:
        yield started


@pytest.fixture
def api(broker: JumpMQ) -> API:
    return API(f"http://guest:guest@127.0.0.1:{broker.http_port}")


@pytest.fixture
def channel(broker: JumpMQ) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    with connected(broker) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
