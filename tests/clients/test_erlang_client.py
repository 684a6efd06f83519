"""The RabbitMQ Erlang client of the server's package."""

from collections.abc import Callable

import pytest
from tests.clients.installed import PLUGINS, has_erlang
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

from jumpmq.testing import BrokerProcess


@pytest.mark.skipif(not has_erlang, reason="the Erlang client is not installed (apt-get install rabbitmq-server)")
def test_a_day_with_the_erlang_client(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    program = ["escript", str(FOLDER / "erlang_client.escript"), str(broker.port), unique("erlang"), str(MESSAGES)]
    assert report(program, ERL_LIBS=str(PLUGINS)) == REPORT
