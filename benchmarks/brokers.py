"""Brokers to measure and to compare with, each a process of its own on free ports in a directory of its own.

    with RabbitMQ() as rabbitmq, JumpMQ() as jumpmq:
        rabbitmq.port, jumpmq.port    # AMQP; user and password are guest, the virtual host is /

Nothing of the machine is touched: no system service, no shared Erlang port mapper, no file outside the directory,
and leaving the block ends every process that it started.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.load.client import Address, Connection, LoadError

HOST = "127.0.0.1"

PATIENCE = 180.0
"""Seconds that a broker may take until it answers."""


class BrokerError(Exception):
    """A broker did not start; the text ends with what it logged."""


class Availability(NamedTuple):
    """Whether a broker can be started here; false in a condition if it cannot, and `reason` says why."""

    installed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.installed


class BrokerProcess:
    """A broker in a session of its own, so that whatever it forks is counted and ended with it.

    Attributes:
        port: AMQP port, once started.
        http_port: port of the management API.
        directory: everything the broker writes; removed at the end if it was made here.
        startup: seconds from the start of the process until a client had a channel open.
    """

    name = "broker"
    port = 0
    http_port = 0
    startup = 0.0

    def __init__(self, directory: Path | None = None) -> None:
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name.lower()}-")) if directory is None else directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "output.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the broker and returns when it answers. Raises BrokerError if it ends or stays silent."""
        raise NotImplementedError

    def stop(self, timeout: float = 30) -> int:
        """Ends the broker in order (SIGTERM) and returns its exit status; after `timeout` seconds it is killed."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """Ends the broker at once (SIGKILL), as a crash would."""
        self._end(signal.SIGKILL, 30)

    def close(self) -> None:
        """Ends the broker in order and removes its directory if it was made here."""
        try:
            self.stop()
        finally:
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        if self._process is None:
            raise BrokerError(f"{self.name} is not running")
        return self._process.pid

    def memory(self) -> int:
        """Resident bytes of the broker's processes."""
        return sum(int(stat[21]) for stat in _session(self.pid)) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """Processor seconds, user and system, that the broker's processes have used so far."""
        return sum(int(stat[11]) + int(stat[12]) for stat in _session(self.pid)) / os.sysconf("SC_CLK_TCK")

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        if self._process is not None:
            raise BrokerError(f"{self.name} is already running")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ending_with_us(command),
                env=environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _check_alive(self, deadline: float) -> None:
        """Raises BrokerError if the broker has ended or `deadline` (of time.perf_counter) has passed."""
        if self._process is None or self._process.poll() is not None:
            problem = f"{self.name} ended at its start"
        elif time.perf_counter() > deadline:
            problem = f"{self.name} did not answer in time"
        else:
            return
        raise BrokerError(f"{problem}:\n{self.log.read_text(errors='replace')[-2000:]}")

    def _end(self, number: signal.Signals, timeout: float) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout)
        finally:  # also when a second Ctrl-C cuts the wait short
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


class RabbitMQ(BrokerProcess):
    """RabbitMQ as Debian packages it, with the consistent hash exchange, sharding and management plugins.

    Args:
        settings: lines for its configuration file.
    """

    name = "RabbitMQ"
    scripts = Path("/usr/lib/rabbitmq/bin")
    plugins = ("rabbitmq_consistent_hash_exchange", "rabbitmq_sharding", "rabbitmq_management")

    def __init__(self, directory: Path | None = None, settings: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._settings = settings
        self.port, self.http_port, self._dist_port, self._epmd_port = free_ports(4)
        self.node = f"rabbit-{self.port}@localhost"
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def available(cls) -> Availability:
        """Whether RabbitMQ is installed; the reason names the command that installs it."""
        missing = [path for path in ("erl", "epmd") if shutil.which(path) is None]
        if missing or not (cls.scripts / "rabbitmq-server").exists():
            return Availability(False, "RabbitMQ is not installed (apt-get install rabbitmq-server)")
        return Availability(True, "RabbitMQ is installed")

    def start(self) -> None:
        self._configure()
        began = time.perf_counter()
        self._start_epmd(began + PATIENCE)
        self._launch([str(self.scripts / "rabbitmq-server")], self._environment())
        while not (accepts_clients(self.port) and listening(self.http_port)):
            self._check_alive(began + PATIENCE)
            time.sleep(0.02)
        self.startup = time.perf_counter() - began

    def ctl(self, *arguments: str, timeout: float = 60) -> str:
        """What `rabbitmqctl` prints. Raises subprocess.CalledProcessError, with its output, if it fails."""
        command = [str(self.scripts / "rabbitmqctl"), "--quiet", "--node", self.node, *arguments]
        finished = subprocess.run(
            command, env=self._environment(), cwd=self.directory, capture_output=True, text=True, timeout=timeout
        )
        if finished.returncode:
            raise subprocess.CalledProcessError(finished.returncode, command, finished.stdout, finished.stderr)
        return finished.stdout

    def close(self) -> None:
        """Ends the broker: at once, for an orderly stop takes seconds, if its directory goes anyway."""
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
        """Runs a port mapper of our own in the foreground: Erlang would leave a daemon behind."""
        self._epmd = subprocess.Popen(
            ending_with_us(["epmd", "-address", HOST, "-port", str(self._epmd_port)]),
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
            f"management.tcp.port = {self.http_port}\n" + "".join(f"{line}\n" for line in self._settings)
        )

    def _environment(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        directory = self.directory
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
            # Makes the script become the Erlang machine instead of waiting beside it: the process id is the broker's.
            "RUNNING_UNDER_SYSTEMD": "true",
        }


class JumpMQ(BrokerProcess):
    """JumpMQ from this checkout or environment, on ports that it picks itself.

    Args:
        data_dir: a directory to use and keep; without it, one that goes at the end.
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
        """Starts the broker, again after `stop` or `kill` if need be: on the same directory and other free ports."""
        serve = ["serve", "--port", "0", "--http-port", "0", "--data-dir", str(self.data_dir), "--node", self.node]
        began = time.perf_counter()
        self._launch([*self.command, *serve, *self._arguments], _with_checkout())
        while not self._find_ports() or not accepts_clients(self.port):
            self._check_alive(began + PATIENCE)
            time.sleep(0.005)
        self.startup = time.perf_counter() - began

    @property
    def command(self) -> list[str]:
        """What runs `jumpmq`."""
        return [sys.executable, "-m", "jumpmq"]

    def _find_ports(self) -> bool:
        """Reads the ports from the line that says that the broker is ready, if it is there yet."""
        printed = self.log.read_text(errors="replace").rpartition("\n")[0]
        amqp = re.search(r"amqp://[^\s/]*:(\d+)", printed)
        http = re.search(r"http://[^\s/]*:(\d+)", printed)
        if amqp is None or http is None:
            return False
        self.port, self.http_port = int(amqp[1]), int(http[1])
        return True


def ending_with_us(command: list[str]) -> list[str]:
    """The command, killed by Linux when the thread that starts it is gone: a killed run of tests leaves no broker."""
    return ["setpriv", "--pdeathsig", "KILL", *command] if shutil.which("setpriv") else command


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def listening(port: int) -> bool:
    """Whether something accepts connections at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def accepts_clients(port: int) -> bool:
    """Whether a client can log in and open a channel."""
    try:
        Connection(Address(port)).close()
    except (OSError, LoadError):
        return False
    return True


def installed() -> list[type[BrokerProcess]]:
    """JumpMQ, and RabbitMQ where it is installed."""
    return [JumpMQ, *([RabbitMQ] if RabbitMQ.available() else [])]


def _with_checkout() -> dict[str, str]:
    """The environment in which the package is found whether or not it is installed."""
    checkout = Path(__file__).resolve().parent.parent
    paths = (str(checkout / "src"), str(checkout), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _session(leader: int) -> list[list[str]]:
    """The fields of /proc/PID/stat behind the command, from the state on, of every process in the leader's session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append(fields)
    return found
