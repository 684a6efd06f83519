"""Processes of a broker are killed and stopped while batches come: `python -m fuzzing.batches`, a short run."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_every_row_is_there_once_when_processes_are_killed_and_stopped() -> None:
    command = [sys.executable, "-m", "fuzzing.batches", "--seconds", "12", "--workers", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows published" in done.stdout
