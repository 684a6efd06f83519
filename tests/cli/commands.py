"""Runs the command lines as a user does: as processes of their own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

READY = re.compile(r"amqp://(?P<host>[^\s/]+):(?P<port>\d+) .*http://[^\s/]+:(?P<http_port>\d+)")


def command(name: str, *arguments: str | Path) -> list[str]:
    """The command line of `jumpmq` or `jumpmqctl` from this checkout."""
    return [sys.executable, "-m", f"jumpmq.cli.{name}", *map(str, arguments)]


def run(name: str, *arguments: str | Path, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, without a terminal."""
    return subprocess.run(
        command(name, *arguments),
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


class Serving(NamedTuple):
    """A `jumpmq serve` that is ready."""

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
    """A broker on free ports, killed at the end if the test has not stopped it; `stderr` takes its log."""
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
