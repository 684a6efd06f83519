"""JumpMQ as a process."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jumpmq._child_processes import package_environment
from jumpmq.testing.ports import accepts_clients
from jumpmq.testing.processes import PATIENCE, BrokerProcess


class JumpMQ(BrokerProcess):
    """JumpMQ from this checkout or environment, on free ports.

    Args:
        data_dir: data directory, kept at the end; None for a temporary directory.
        node: name of the node.
        arguments: further arguments of `jumpmq serve`.
    """

    name = "JumpMQ"

    def __init__(
        self, data_dir: Path | None = None, node: str = "jumpmq@localhost", arguments: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.data_dir = self.directory / "data" if data_dir is None else data_dir
        self.node = node
        self._arguments = arguments

    def start(self) -> None:
        """Start the broker, also again after `stop` or `kill`: on the same directory and new free ports."""
        serve = ["serve", "--port", "0", "--http-port", "0", "--data-dir", str(self.data_dir), "--node", self.node]
        began = time.perf_counter()
        self._launch([*self.command, *serve, *self._arguments], package_environment())
        while not self._find_ports() or not accepts_clients(self.port):
            self._check_alive(began + PATIENCE)
            time.sleep(0.005)
        self.startup = time.perf_counter() - began

    @property
    def command(self) -> list[str]:
        """The command line of `jumpmq`."""
        return [sys.executable, "-m", "jumpmq"]

    def _find_ports(self) -> bool:
        """Read the ports from the broker's ready line, if printed."""
        printed = self.log.read_text(errors="replace").rpartition("\n")[0]
        found = re.search(r"amqp://[^\s/]*:(\d+)\b.*\bhttp://[^\s/]*:(\d+)", printed)
        if found is None:
            return False
        self.port, self.http_port = int(found[1]), int(found[2])
        return True
