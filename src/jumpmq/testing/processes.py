"""A broker as a process: start, stop, kill, and resource use."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from jumpmq.broker import BrokerError

PATIENCE = 180.0
"""Maximum time until a broker answers, in seconds."""


def children(pid: int) -> list[int]:
    """Return the child processes of a process, started by any of its threads (Linux)."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


class BrokerProcess:
    """A broker in its own session, to count and end all forked processes together.

    Attributes:
        port: AMQP port, once started.
        http_port: port of the management API.
        node: name of the node.
        directory: directory of all files of the broker; a temporary directory is removed at the end.
        startup: seconds from the start of the process until a client had a channel open.
    """

    name = "broker"
    port = 0
    http_port = 0
    node = ""
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
        """Start the broker and return after the first answer. Raises BrokerError if the broker ends or stays silent."""
        raise NotImplementedError

    def stop(self, timeout: float = 30) -> int:
        """Stop the broker with SIGTERM and return the exit status; after `timeout` seconds the broker is killed."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self, *, alone: bool = False) -> None:
        """End the broker at once (SIGKILL), as in a crash.

        Args:
            alone: True to kill only the process started by :meth:`start`, without its child processes.
        """
        if alone:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()
        else:
            self._end(signal.SIGKILL, 30)

    def close(self) -> None:
        """Stop the broker and remove its directory if temporary."""
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
        """Return the resident memory of the broker's processes, in octets."""
        return sum(int(stat[21]) for stat in _session(self.pid).values()) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """Return the processor time, user and system, of the broker's processes so far, in seconds."""
        return sum(int(stat[11]) + int(stat[12]) for stat in _session(self.pid).values()) / os.sysconf("SC_CLK_TCK")

    def written(self) -> int:
        """Return the octets written to disks for the broker's processes so far, in whole pages."""
        octets = 0
        for process in _session(self.pid):
            with contextlib.suppress(OSError):
                counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
                octets += int(counts["write_bytes"])
        return octets

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
        """Raise BrokerError if the broker has ended, or if `deadline` (by time.perf_counter) has passed."""
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
        finally:  # also if a second Ctrl-C interrupts the wait
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def ending_with_us(command: list[str]) -> list[str]:
    """Return a command that Linux kills at the end of the starting thread: no broker survives a killed test run."""
    return ["setpriv", "--pdeathsig", "KILL", *command] if shutil.which("setpriv") else command


def _session(leader: int) -> dict[Path, list[str]]:
    """Return the fields of /proc/PID/stat, from the state on, of each process in the leader's session, by the path
    /proc/PID.
    """
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found[path.parent] = fields
    return found
