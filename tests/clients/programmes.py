"""Equivalent programmes for clients in several languages, with comparable reports.

A programme declares a durable consistent hash exchange with two queues, publishes persistent messages with confirms
and an unroutable message, reads all messages back with a prefetch of 10, rejecting the first message once, requests a
missing queue, and tries a wrong password. It prints `name: value` lines.
"""

import os
import subprocess
from pathlib import Path

MESSAGES = 200

REPORT = {
    "confirmed": str(MESSAGES),
    "returned": "312 NO_ROUTE",
    "consumed": str(MESSAGES),
    "redelivered": "1",
    "missing": "404 NOT_FOUND - no queue 'ghost' in vhost '/'",
    "password": "refused",
}

FOLDER = Path(__file__).parent


def report(command: list[str], **environment: str) -> dict[str, str]:
    """Run a programme. Return its printed lines as names and values."""
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return dict(line.split(": ", 1) for line in finished.stdout.splitlines() if ": " in line)
