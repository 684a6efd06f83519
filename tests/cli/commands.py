"""Run the command lines as a user: as separate processes."""

import atexit
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from jumpmq.testing import ending_with_us

READY = re.compile(r"amqp://(?P<host>[^\s/]+):(?P<port>\d+) .*http://[^\s/]+:(?P<http_port>\d+)")


def command(name: str, *arguments: str | Path) -> list[str]:
    """The command line of `jumpmq` or `jumpmqctl` from this checkout."""
    module = "jumpmq" if name == "jumpmq" else f"jumpmq.cli.{name}"
    return [sys.executable, "-m", module, *map(str, arguments)]


def run(
    name: str, *arguments: str | Path, timeout: float = 200, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without a terminal, in a fork of a warm process (:mod:`tests.cli.forking`)."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as forking:
        output, errors = Path(directory, "stdout"), Path(directory, "stderr")
        asked = {
            "name": name,
            "arguments": [*map(str, arguments)],
            "environment": os.environ | environment,
            "directory": str(Path.cwd()),
            "stdout": str(output),
            "stderr": str(errors),
        }
        forking.settimeout(timeout)
        forking.connect(_forking_process())
        forking.sendall(json.dumps(asked).encode() + b"\n")
        status = int(forking.recv(100))
        return subprocess.CompletedProcess(arguments, status, output.read_text(), errors.read_text())


@cache
def _forking_process() -> str:
    """Start the forking process. Return the path of its socket."""
    directory = tempfile.mkdtemp()
    path = str(Path(directory, "socket"))
    line = [sys.executable, "-m", "tests.cli.forking", path]
    if threading.current_thread() is threading.main_thread():  # the process would end with any other thread
        line = ending_with_us(line)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    atexit.register(shutil.rmtree, directory)
    atexit.register(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return path


class Serving(NamedTuple):
    """A ready `jumpmq serve`."""

    process: subprocess.Popen[str]
    ready_line: str
    host: str
    port: int
    http_port: int

    @property
    def amqp_url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/%2F"

    @property
    def http_url(self) -> str:
        return f"http://guest:guest@{self.host}:{self.http_port}"


@contextmanager
def serving(data_dir: Path, *arguments: str, stderr: IO[str] | None = None, **environment: str) -> Iterator[Serving]:
    """A broker on free ports, killed at the end of the test; `stderr` takes its log."""
    line = command("jumpmq", "serve", "--port", "0", "--http-port", "0", "--data-dir", data_dir, *arguments)
    with subprocess.Popen(
        line, env=os.environ | environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        assert process.stdout is not None
        try:
            ready_line = process.stdout.readline()
            found = READY.search(ready_line)
            assert found, f"not ready: {ready_line!r}"
            yield Serving(process, ready_line, found["host"], int(found["port"]), int(found["http_port"]))
        finally:
            process.kill()
