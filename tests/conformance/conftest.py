"""Fixtures of all conformance tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import waiting
from tests.conformance.operator import Operator
from tests.wire import WireChannel, login

from jumpmq.testing import BrokerProcess, Installation, RabbitMQ

BEFORE_4_0 = Path(__file__).with_name("before_4_0.txt")
"""Tests, a line each, of behaviour that 4.0 changed: they must fail on RabbitMQ 3.10."""

SINCE_4_0 = Path(__file__).with_name("since_4_0.txt")
"""Tests of behaviour since RabbitMQ 4.0: they must fail on older versions."""


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
    """Shorten the timeout of tests that must fail."""
    if request.node.get_closest_marker("xfail") is not None:
        monkeypatch.setattr(waiting, "PATIENCE", 10.0)


@pytest.fixture
def in_one_process(request: pytest.FixtureRequest) -> None:
    """Skip tests that differ with several processes; docs/workers.md describes the differences."""
    if request.config.getoption("--workers") > 1 or request.config.getoption("--nodes") > 1:
        pytest.skip("several processes do this otherwise")


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[None]:
    """A second client of the broker that must work after the test."""
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
    """An operator whose policies are deleted at the end."""
    operator = Operator(broker)
    yield operator
    operator.leave()


@pytest.fixture
def since_4_0(broker: BrokerProcess) -> None:
    """Skip tests of features since RabbitMQ 4.0 on an older reference."""
    if isinstance(broker, RabbitMQ) and broker.version < (4, 0):
        pytest.skip(f"RabbitMQ {broker.installation.number} does not have it")
