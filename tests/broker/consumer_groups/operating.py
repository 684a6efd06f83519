"""Consumer groups over the management API and jumpmqctl."""

import os
import subprocess
import sys
from typing import Any, cast

import requests

import jumpmq


class Api:
    """The management API of a broker."""

    def __init__(self, broker: jumpmq.RunningBroker) -> None:
        self.url = f"http://127.0.0.1:{broker.http_port}/api"

    def put(self, path: str, body: dict[str, Any]) -> None:
        requests.put(f"{self.url}/{path}", json=body, auth=("guest", "guest"), timeout=30).raise_for_status()

    def group(self, source: str) -> dict[str, Any]:
        """The consumer group on a queue or exchange."""
        groups = requests.get(f"{self.url}/consumer-groups/%2F", auth=("guest", "guest"), timeout=30).json()
        (found,) = [one for one in groups if one["source"] == source]
        return cast("dict[str, Any]", found)

    def slots(self, queue: str) -> list[dict[str, Any]]:
        """Return the slots of a queue with messages."""
        found = requests.get(f"{self.url}/queues/%2F/{queue}/slots", auth=("guest", "guest"), timeout=30).json()
        return cast("list[dict[str, Any]]", found)

    def explain(self, queue: str, **of: str) -> str:
        """Return the explanation of undelivered messages of a queue."""
        url = f"{self.url}/queues/%2F/{queue}/explain"
        found = requests.get(url, params=of, auth=("guest", "guest"), timeout=30).json()
        return str(found["reason"])


def jumpmqctl(broker: jumpmq.RunningBroker, *words: str) -> str:
    """Return the output of a command."""
    url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
    command = [sys.executable, "-m", "jumpmq.cli.jumpmqctl", *words]
    return subprocess.run(
        command, env={**os.environ, "JUMPMQ_URL": url}, capture_output=True, text=True, check=True
    ).stdout


SOON = {"x-rebalance-delay": 50}
