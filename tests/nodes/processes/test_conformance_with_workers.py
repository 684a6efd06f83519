"""Several processes behave like a single broker: conformance tests again, with queues spread over three workers."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFORMANCE = Path(__file__).parents[2] / "conformance"
FILES = "test_queues.py", "test_consuming.py", "test_publishing.py", "test_exchanges.py", "test_streams.py"


@pytest.mark.slow
def test_most_queues_are_at_another_home_than_their_client() -> None:
    files = [str(CONFORMANCE / file) for file in FILES if (CONFORMANCE / file).exists()]
    command = [sys.executable, "-m", "pytest", "-q", *files, "-k", "not rabbitmq", "--workers", "3", "--timeout", "120"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
