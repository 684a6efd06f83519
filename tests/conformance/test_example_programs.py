"""The programs of `examples/python` leave the golden counts of messages in every queue."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.example_counts import COUNTS

from jumpmq.testing import BrokerProcess

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"

RABBITMQ_3_HEADER_COUNTS = {"q1": 16899, "q2": 16553, "q3": 33003, "q4": 33545}
"""RabbitMQ 3.10.8 hashes a header with its type; RabbitMQ since 4.0, and JumpMQ, only its value."""


@pytest.mark.slow
@pytest.mark.parametrize("program", ["routing_key", "header", "property"])
def test_counts(broker: BrokerProcess, program: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), "--url", url]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    counts = {queue: int(count) for queue, count in map(str.split, finished.stdout.splitlines())}
    by_type_too = broker.name == "RabbitMQ" and program == "header"
    assert counts == (RABBITMQ_3_HEADER_COUNTS if by_type_too else COUNTS)


def test_a_broker_that_is_not_there_is_said_in_one_line() -> None:
    command = [sys.executable, str(EXAMPLES / "routing_key.py"), "--url", "amqp://guest:guest@127.0.0.1:1/%2F"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
