"""RabbitMQ as a process, for comparisons."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jumpmq.broker import BrokerError
from jumpmq.testing.installations import Installation
from jumpmq.testing.ports import HOST, accepts_clients, free_ports, listening
from jumpmq.testing.processes import PATIENCE, BrokerProcess, ending_with_us


class Availability(NamedTuple):
    """True if RabbitMQ is installed; otherwise `reason` names the missing package."""

    installed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.installed


class RabbitMQ(BrokerProcess):
    """RabbitMQ as packaged by Debian, with the consistent hash exchange, sharding and management plugins.

    Args:
        directory: directory for all files; None for a temporary directory.
        settings: lines for the configuration file.
        installation: the installation; None for the newest one found.

    Raises:
        BrokerError: no installation was found.
    """

    name = "RabbitMQ"
    plugins: tuple[str, ...] = ("rabbitmq_consistent_hash_exchange", "rabbitmq_sharding", "rabbitmq_management")

    def __init__(
        self,
        directory: Path | None = None,
        settings: Sequence[str] = (),
        installation: Installation | None = None,
    ) -> None:
        found = [installation] if installation is not None else Installation.all()
        if not found:
            raise BrokerError(self.available().reason)
        super().__init__(directory)
        self.installation = found[0]
        self._settings = settings
        self.port, self.http_port, self._dist_port, self._epmd_port = free_ports(4)
        self.node = f"rabbit-{self.port}@localhost"
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def available(cls) -> Availability:
        """Return True if RabbitMQ is installed; otherwise the reason names the command to install RabbitMQ."""
        if Installation.all():
            return Availability(True, "RabbitMQ is installed")
        return Availability(False, "RabbitMQ is not installed (apt-get install rabbitmq-server)")

    @property
    def version(self) -> tuple[int, ...]:
        """Version number, such as ``(4, 0, 5)``."""
        return self.installation.version

    def start(self) -> None:
        self._configure()
        began = time.perf_counter()
        self._start_epmd(began + PATIENCE)
        self._launch(self._command("rabbitmq-server"), self._environment())
        while not (accepts_clients(self.port) and listening(self.http_port)):
            self._check_alive(began + PATIENCE)
            time.sleep(0.02)
        self.startup = time.perf_counter() - began

    def ctl(self, *arguments: str, timeout: float = 60) -> str:
        """Run `rabbitmqctl` and return its output.

        Raises:
            subprocess.CalledProcessError: the command failed; with its output.
        """
        command = self._command("rabbitmqctl", "--quiet", "--node", self.node, *arguments)
        finished = subprocess.run(
            command, env=self._environment(), cwd=self.directory, capture_output=True, text=True, timeout=timeout
        )
        if finished.returncode:
            raise subprocess.CalledProcessError(finished.returncode, command, finished.stdout, finished.stderr)
        return finished.stdout

    def close(self) -> None:
        """End the broker. With a temporary directory, the broker is killed, because an orderly stop takes seconds."""
        try:
            if self._temporary:
                self.kill()
        finally:
            super().close()

    def _end(self, number: signal.Signals, timeout: float) -> int:
        try:
            return super()._end(number, timeout)
        finally:
            if self._epmd is not None:
                self._epmd.kill()
                self._epmd.wait()
                self._epmd = None

    def _start_epmd(self, deadline: float) -> None:
        """Run a separate port mapper in the foreground. Otherwise Erlang starts a daemon that outlives RabbitMQ."""
        self._epmd = subprocess.Popen(
            ending_with_us(
                self.installation.command(self.directory, "epmd", "-address", HOST, "-port", str(self._epmd_port))
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not listening(self._epmd_port):
            if self._epmd.poll() is not None or time.perf_counter() > deadline:
                raise BrokerError(f"epmd does not listen on port {self._epmd_port}")
            time.sleep(0.01)

    def _configure(self) -> None:
        (self.directory / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].\n")
        (self.directory / "environment.conf").touch()
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = {HOST}:{self.port}\n"
            f"management.tcp.ip = {HOST}\n"
            f"management.tcp.port = {self.http_port}\n"
            # Without this setting each connection looks up the host's name, which takes seconds without a name server.
            f"cluster_name = {self.node}\n" + "".join(f"{line}\n" for line in self._settings)
        )

    def _command(self, program: str, *arguments: str) -> list[str]:
        installation = self.installation
        return installation.command(self.directory, installation.program(program), *arguments)

    def _environment(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        directory = self.installation.seen(self.directory)
        return inherited | {
            "HOME": str(directory),  # where Erlang keeps the cookie
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_CONF_ENV_FILE": str(directory / "environment.conf"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            # The script then becomes the Erlang machine, instead of a parent process: the process id is the broker's.
            "RUNNING_UNDER_SYSTEMD": "true",
        }


class RabbitMQNode(RabbitMQ):
    """A node of a RabbitMQ cluster.

    Args:
        first: node to join at the first start; None for the first node. The first node runs the port mapper of all
            nodes, and must run as long as the others.
    """

    def __init__(self, first: RabbitMQNode | None = None) -> None:
        super().__init__()
        self._first = first
        self._has_joined = first is None
        if first is not None:
            self._epmd_port = first._epmd_port
            cookie = self.directory / ".erlang.cookie"
            cookie.write_bytes((first.directory / ".erlang.cookie").read_bytes())
            cookie.chmod(0o400)

    def start(self) -> None:
        super().start()
        if not self._has_joined:
            assert self._first is not None
            self.ctl("stop_app")
            self.ctl("join_cluster", self._first.node)
            self.ctl("start_app")
            self._has_joined = True

    def _start_epmd(self, deadline: float) -> None:
        if self._first is None:
            super()._start_epmd(deadline)
