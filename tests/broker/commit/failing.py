"""A broker whose commits fail while a file exists."""

import sys
from pathlib import Path

import requests
from tests.wire import Basic, login

from jumpmq.testing import JumpMQ

PERSISTENT = Basic.Properties(delivery_mode=2)

ENDED_AFTER = 1.5

START = """
import os, sys, time
from jumpmq.broker.commit import watchdog
watchdog.TOLD_AFTER, watchdog.ENDED_AFTER = 0.2, {ended_after}
faulty = lambda: os.path.exists(os.environ["FAULT"])
{fault}
from jumpmq.__main__ import main
main()
"""

FORGETS = """
from jumpmq.store.store import Store
begin = Store.begin
Store.begin = lambda store, *, here=False: None if faulty() else begin(store, here=here)
"""


class Faulty(JumpMQ):
    """A broker with a defect, switched on by creating a file."""

    def __init__(self, directory: Path, fault: str) -> None:
        super().__init__(directory / "data")
        self.fault = directory / "fault"
        self._source = START.format(fault=fault, ended_after=ENDED_AFTER)

    @property
    def command(self) -> list[str]:
        return ["env", f"FAULT={self.fault}", sys.executable, "-c", self._source]

    @property
    def ended(self) -> int | None:
        """Return the exit status; None while the broker runs."""
        return None if self._process is None else self._process.poll()

    def check(self, name: str) -> tuple[int, str]:
        """Return the answer of a health check; status 0 without an answer."""
        try:
            found = requests.get(
                f"http://127.0.0.1:{self.http_port}/api/health/checks/{name}", auth=("guest", "guest"), timeout=5
            )
        except requests.ConnectionError:
            return 0, ""
        return found.status_code, found.json().get("reason", "")


def publish(broker: JumpMQ, queue: str, body: bytes, *, confirmed: bool = True) -> None:
    channel = login(broker.port).channel()
    arguments = {"x-queue-type": "stream"} if queue == "stream" else {}
    if confirmed:
        channel.queue(queue, durable=True, exclusive=False, arguments=arguments)
    channel.confirm_select()
    channel.publish("", queue, body, PERSISTENT)
    if confirmed:
        channel.wait_for_confirms()
