"""A broker of its own for each file, and a jumpmqctl that speaks to it."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run
from tests.cli.verbs.control import Control, Failure, Output

import jumpmq


@pytest.fixture(scope="module")
def running() -> Iterator[jumpmq.RunningBroker]:
    """A broker in memory."""
    with jumpmq.running(node="jumpmq@sparrow") as broker:
        yield broker


@pytest.fixture
def control(running: jumpmq.RunningBroker) -> Control:
    """Runs jumpmqctl to its end, whatever that is."""
    return lambda *arguments: run("jumpmqctl", *arguments, JUMPMQ_URL=running.http_url)


@pytest.fixture
def output(control: Control) -> Output:
    """Runs jumpmqctl, which must succeed in silence on stderr, and returns its standard output."""

    def succeed(*arguments: str) -> str:
        result = control(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    return succeed


@pytest.fixture
def failure(control: Control) -> Failure:
    """Runs jumpmqctl, which must fail, and returns the exit status and what stands on stderr."""

    def fail(*arguments: str) -> tuple[int, str]:
        result = control(*arguments)
        assert result.returncode, result.stdout
        assert "Traceback" not in result.stderr
        return result.returncode, result.stderr

    return fail


@pytest.fixture
def channel(running: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    """A channel of a client that calls itself `till`."""
    parameters = pika.URLParameters(running.amqp_url)
    parameters.client_properties = {"connection_name": "till"}
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    if connection.is_open:
        connection.close()
