"""Bunny, the Ruby client."""

from collections.abc import Callable

import pytest
from tests.clients.installed import bunny_is_installed
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

from jumpmq.testing import BrokerProcess


@pytest.mark.skipif(not bunny_is_installed(), reason="Bunny is not installed (apt-get install ruby-bunny)")
def test_a_day_with_bunny(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    program = ["ruby", str(FOLDER / "bunny.rb"), str(broker.port), unique("bunny"), str(MESSAGES)]
    assert report(program) == REPORT
