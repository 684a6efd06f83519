"""What every conformance test may rely on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import waiting
from tests.conformance.operator import Operator
from tests.wire import WireChannel, login

from jumpmq.testing import BrokerProcess, Installation, RabbitMQ

BEFORE_4_0 = Path(__file__).with_name("before_4_0.txt")
"""Tests, a line each, of what RabbitMQ 3.10 did and 4.0 does otherwise: there they must fail."""

SINCE_4_0 = Path(__file__).with_name("since_4_0.txt")
"""The same of what RabbitMQ does since 4.0: on an older one they must fail."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = Installation.all()
    if not found:
        return
    others, reason = (BEFORE_4_0, "before") if found[0].version >= (4, 0) else (SINCE_4_0, "since")
    listed = set(others.read_text().splitlines())
    for item in items:
        if item.nodeid.removeprefix("tests/conformance/") in listed:
            item.add_marker(pytest.mark.xfail(reason=f"RabbitMQ does so {reason} 4.0", strict=True))


@pytest.fixture(autouse=True)
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What must fail is not waited for as long as what must come."""
    if request.node.get_closest_marker("xfail") is not None:
        monkeypatch.setattr(waiting, "PATIENCE", 10.0)


@pytest.fixture
def in_one_process(request: pytest.FixtureRequest) -> None:
    """Skips what several processes do otherwise; docs/workers.md names it."""
    if request.config.getoption("--workers") > 1 or request.config.getoption("--nodes") > 1:
        pytest.skip("several processes do this otherwise")


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[None]:
    """Another user of the broker, who must be able to go on whatever the test does."""
    with login(broker.port) as connection:
        channel = connection.channel()
        queue = channel.queue()
        yield
        channel.publish("", queue, b"still here")
        message = channel.get(queue)
        assert message is not None
        assert message.body == b"still here"
        connection.close()


@pytest.fixture
def queue(channel: WireChannel, unique: Callable[[str], str]) -> str:
    """Name of an exclusive, empty queue of the test's own connection."""
    return channel.queue(unique("queue"))


@pytest.fixture
def operator(broker: BrokerProcess) -> Iterator[Operator]:
    """Somebody who sets policies, all of which go at the end."""
    operator = Operator(broker)
    yield operator
    operator.leave()


@pytest.fixture
def since_4_0(broker: BrokerProcess) -> None:
    """Skips what RabbitMQ has since version 4.0 only, where an older one is compared with."""
    if isinstance(broker, RabbitMQ) and broker.version < (4, 0):
        pytest.skip(f"RabbitMQ {broker.installation.number} does not have it")
