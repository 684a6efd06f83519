"""The brokers of the tests, one of each per session: JumpMQ, and a real RabbitMQ for comparison."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from tests.java import SHORT_LIVED
from tests.several_processes import running
from tests.wire import WireChannel, WireConnection, closing, login

from jumpmq.testing import BrokerProcess, JumpMQ, RabbitMQ

# A busy machine takes its time: no deadlines. `quick` is what `make test` runs; `tests.generating` scales by it.
settings.register_profile("whole", deadline=None, max_examples=100)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("whole")

# Spark's scripts pass these to every Java process, also in examples and commands.
os.environ |= dict.fromkeys(("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"), SHORT_LIVED)

pytest_plugins = ["tests.parts"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--homes", type=int, default=1, help="homes of the brokers that tests/http talks to")
    parser.addoption("--nodes", type=int, default=1, help="nodes of the JumpMQ that is compared with RabbitMQ")
    parser.addoption("--workers", type=int, default=1, help="processes of the JumpMQ that is compared with RabbitMQ")


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A running RabbitMQ."""
    if not RabbitMQ.available():
        pytest.skip(RabbitMQ.available().reason)
    # Otherwise its management API would have a delay of seconds.
    with RabbitMQ(settings=["collect_statistics_interval = 500"]) as broker:
        yield broker


@pytest.fixture(scope="session")
def jumpmq(request: pytest.FixtureRequest) -> Iterator[JumpMQ]:
    """A running JumpMQ, in a separate process, or in several."""
    workers, nodes = request.config.getoption("--workers"), request.config.getoption("--nodes")
    with running(workers, nodes) as broker:
        yield broker


@pytest.fixture(scope="session", params=["rabbitmq", "jumpmq"])
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """A running broker; the test runs on RabbitMQ and on JumpMQ, with the same expectations."""
    broker: BrokerProcess = request.getfixturevalue(request.param)
    return broker


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[WireConnection]:
    """An open connection, closed cleanly at the end, with its exclusive queues."""
    with closing(login(broker.port)) as opened:
        yield opened


@pytest.fixture
def channel(connection: WireConnection) -> WireChannel:
    """A channel of the connection."""
    return connection.channel()


_numbers = itertools.count(1)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a function that makes unique names: `unique("orders")` is `orders-17`."""
    return lambda name: f"{name}-{next(_numbers)}"
