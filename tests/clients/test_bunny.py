"""Bunny, the Ruby client."""

import shutil
import subprocess
from collections.abc import Callable

import pytest
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

from jumpmq.testing import BrokerProcess


def bunny_is_installed() -> bool:
    ruby = shutil.which("ruby")
    return ruby is not None and subprocess.run([ruby, "-rbunny", "-e", ""], capture_output=True).returncode == 0


@pytest.mark.skipif(not bunny_is_installed(), reason="Bunny is not installed (apt-get install ruby-bunny)")
def test_a_day_with_bunny(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    program = ["ruby", str(FOLDER / "bunny.rb"), str(broker.port), unique("bunny"), str(MESSAGES)]
    assert report(program) == REPORT
