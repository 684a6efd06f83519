"""Processes of a broker are killed and stopped under load: `python -m fuzzing.workers`, a short run."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_nothing_confirmed_is_lost_when_processes_are_killed_and_stopped() -> None:
    command = [sys.executable, "-m", "fuzzing.workers", "--seconds", "12", "--workers", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "messages confirmed" in done.stdout
