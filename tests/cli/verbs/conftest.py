"""A broker per file, and a jumpmqctl connected to it."""

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
    """Run jumpmqctl to its end, with any exit status."""
    return lambda *arguments: run("jumpmqctl", *arguments, JUMPMQ_URL=running.http_url)


@pytest.fixture
def output(control: Control) -> Output:
    """Run jumpmqctl, which must succeed with an empty stderr. Return its standard output."""

    def succeed(*arguments: str) -> str:
        result = control(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    return succeed


@pytest.fixture
def failure(control: Control) -> Failure:
    """Run jumpmqctl, which must fail. Return the exit status and stderr."""

    def fail(*arguments: str) -> tuple[int, str]:
        result = control(*arguments)
        assert result.returncode, result.stdout
        assert "Traceback" not in result.stderr
        return result.returncode, result.stderr

    return fail


@pytest.fixture
def channel(running: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    """A channel of a client named `till`."""
    parameters = pika.URLParameters(running.amqp_url)
    parameters.client_properties = {"connection_name": "till"}
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    if connection.is_open:
        connection.close()
