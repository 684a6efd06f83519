"""Killable processes of Spark: a standalone cluster, and drivers with jobs of ``tests.spark.jobs``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pyspark.find_spark_home import _find_spark_home
from tests.java import SHORT_LIVED

from jumpmq.spark.interpreter import without_archives
from jumpmq.testing import ending_with_us

HOST = "127.0.0.1"
HOSTS = ("127.0.0.2", "127.0.0.3")
"""Of the workers."""
PATIENCE = 120.0
"""Timeout in seconds for the start of a Spark process on a busy machine."""

SMALL = "--conf spark.executor.memory=512m --conf spark.executor.cores=1 --driver-memory 512m"

SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
}
"""Settings of Spark that start a speculative attempt of a slow task early."""


def environment(directory: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a quickly started Spark on the loopback address, with this interpreter.

    Args:
        settings: further settings of Spark.
    """
    more = " ".join(f"--conf {name}={value}" for name, value in (settings or {}).items())
    options = {
        "PYSPARK_SUBMIT_ARGS": f"{SMALL} {more} pyspark-shell",
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": without_archives(str(directory)),
    }
    return os.environ | options | {"SPARK_HOME": _find_spark_home(), "SPARK_DAEMON_MEMORY": "256m"}


class Driver:
    """A separate Spark with a JVM, in a process group of its own, that runs jobs of ``tests.spark.jobs``."""

    def __init__(self, master: str, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._errors = directory / f"driver-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "tests.spark.jobs", master]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                ending_with_us(command), env=environment(directory, settings or {}), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, job: str, **arguments: Any) -> None:
        """Send a job; jobs run in sequence."""
        assert self._process.stdin is not None
        print(json.dumps([job, arguments]), file=self._process.stdin, flush=True)

    def until(self, word: str) -> str:
        """Read the output up to a line with the given beginning. Return the rest of that line."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise AssertionError(f"it ended before it said '{word}':\n{self._errors.read_text()[-6000:]}")

    def wait(self) -> int:
        """Wait for the end of the process. Return its exit status."""
        return self._process.wait()

    def kill(self) -> None:
        """Kill the driver, JVM and Python workers included."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Drivers:
    """Drivers for several tests: the last started one is reused, unless killed.

    Args:
        master: of Spark.
    """

    def __init__(self, master: str, directory: Path) -> None:
        self._master = master
        self._directory = directory
        self._started: list[Driver] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for driver in self._started:
            driver.kill()

    def living(self) -> Driver:
        """A live and ready driver."""
        if not self._started or not self._started[-1].alive:
            self._started.append(Driver(self._master, self._directory))
            self._started[-1].until("ready")
        return self._started[-1]


class Cluster:
    """A standalone cluster of three processes: a master and two workers.

    A worker has an address of its own, because Spark starts a speculative attempt on another host only.

    Args:
        cores: cores of a worker, with as many executors.

    Attributes:
        url: for drivers.
    """

    def __init__(self, directory: Path, cores: int = 1) -> None:
        self._directory = directory
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._start("master.Master", "master", HOST, "--port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in (1, 2):
                place = str(self._directory / f"work-{number}")
                size = ("-c", str(self._cores), "-m", f"{self._cores}g")
                self._start("worker.Worker", f"worker-{number}", HOSTS[number - 1], *size, "-d", place, self.url)
            for number in (1, 2):
                self._said(f"worker-{number}", r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def pids(self) -> list[int]:
        """The process ids of master and workers."""
        return [process.pid for process in self._processes]

    def executors(self) -> list[int]:
        """Process ids of the workers' executors."""
        workers = {process.pid for process in self._processes}
        return [pid for pid, parent, command in processes() if parent in workers and b"ExecutorBackend" in command]

    def _start(self, kind: str, name: str, host: str, *arguments: str) -> None:
        command = [f"{_find_spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", host]
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ending_with_us([*command, "--webui-port", "0", *arguments]),
                env=environment(self._directory), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)

    def _said(self, name: str, pattern: str) -> str:
        until = time.monotonic() + PATIENCE
        log = self._directory / f"{name}.log"
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < until and self._processes[-1].poll() is None, log.read_text()[-4000:]
            time.sleep(0.05)
        return found[1]


def processes() -> Iterator[tuple[int, int, bytes]]:
    """Process id, parent and command of every process."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(place.name), parent, (place / "cmdline").read_bytes()


def planners() -> list[int]:
    """Processes below this one that plan streaming queries."""
    processes = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            processes[int(place.name)] = parent, (place / "cmdline").read_bytes()
    found = []
    for number, (parent, command) in processes.items():
        if b"python_streaming_source_runner" in command:
            while parent in processes and parent != os.getpid():
                parent = processes[parent][0]
            if parent == os.getpid():
                found.append(number)
    return found
