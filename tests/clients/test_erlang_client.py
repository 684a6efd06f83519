"""The RabbitMQ Erlang client, which comes with the server's package."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

from jumpmq.testing import BrokerProcess

PLUGINS = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/plugins"), None)

installed = PLUGINS is not None and any(PLUGINS.glob("amqp_client-*")) and shutil.which("escript") is not None


@pytest.mark.skipif(not installed, reason="the Erlang client is not installed (apt-get install rabbitmq-server)")
def test_a_day_with_the_erlang_client(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    program = ["escript", str(FOLDER / "erlang_client.escript"), str(broker.port), unique("erlang"), str(MESSAGES)]
    assert report(program, ERL_LIBS=str(PLUGINS)) == REPORT
