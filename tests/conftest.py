"""The brokers that tests talk to, one of each a session: JumpMQ, and a real RabbitMQ to compare it with."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from benchmarks.brokers import BrokerProcess, JumpMQ, RabbitMQ
from hypothesis import settings
from tests.wire import WireChannel, WireConnection, closing, login

settings.register_profile("unhurried", deadline=None)  # a busy machine takes its time
settings.load_profile("unhurried")


@pytest.fixture(scope="session", params=[RabbitMQ, JumpMQ], ids=["rabbitmq", "jumpmq"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """A running broker; a test that asks for it runs on RabbitMQ and on JumpMQ and must see the same."""
    if request.param is RabbitMQ and not RabbitMQ.available():
        pytest.skip(RabbitMQ.available().reason)
    quick = {"settings": ["collect_statistics_interval = 500"]} if request.param is RabbitMQ else {}
    with request.param(**quick) as running:  # or its management API would tell of things seconds later
        yield running


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[WireConnection]:
    """An open connection, closed in good order at the end: its exclusive queues go with it."""
    with closing(login(broker.port)) as opened:
        yield opened


@pytest.fixture
def channel(connection: WireConnection) -> WireChannel:
    """A channel of the connection."""
    return connection.channel()


_numbers = itertools.count(1)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes a name that no other test uses: `unique("orders")` is `orders-17`."""
    return lambda name: f"{name}-{next(_numbers)}"
