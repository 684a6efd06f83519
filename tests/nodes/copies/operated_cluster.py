"""A cluster of three nodes as operators use it: jumpmqctl, and requests to the management API."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests
from tests.cli.commands import run
from tests.etcd import etcd

from jumpmq.testing import JumpMQ
from jumpmq.testing.ports import free_ports

NODES = ["one@host", "two@host", "three@host"]


class Cluster:
    """Three nodes with fixed ports."""

    def __init__(self, directory: Path, url: str, kind: type[JumpMQ]) -> None:
        self.etcd = url
        ports = free_ports(6)
        options = ("--cluster", "test", "--etcd", url, "--return-after", "1")
        self.nodes = [
            kind(
                directory / node,
                node,
                (*options, "--port", str(ports[i]), "--http-port", str(ports[i + 3])),
            )
            for i, node in enumerate(NODES)
        ]

    def url(self, number: int, user: str = "guest") -> str:
        return f"http://{user}:{user}@127.0.0.1:{self.nodes[number].http_port}"

    def control(self, *arguments: str, at: int = 0) -> subprocess.CompletedProcess[str]:
        return run("jumpmqctl", *arguments, JUMPMQ_URL=self.url(at))

    def output(self, *arguments: str, at: int = 0) -> str:
        result = self.control(*arguments, at=at)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def ask(self, method: str, path: str, body: Any = None, at: int = 0, user: str = "guest") -> tuple[int, Any]:
        answer = requests.request(method, f"{self.url(at, user)}/api/{path}", json=body, timeout=30)
        return answer.status_code, answer.json() if answer.content else None

    def copies(self, home: int, at: int = 0) -> dict[str, Any]:
        status, found = self.ask("GET", f"copies/{home}", at=at)
        assert status == 200
        return dict(found)

    def states(self, home: int, at: int = 0) -> dict[str, str]:
        return {one["node"]: one["state"] for one in self.copies(home, at)["members"]}


@contextlib.contextmanager
def running(directory: Path, kind: type[JumpMQ] = JumpMQ) -> Iterator[Cluster]:
    """Start etcd and three nodes.

    Args:
        directory: parent of the data directories.
        kind: class of the nodes.
    """
    with etcd(directory) as (member,):
        cluster = Cluster(directory, member.url, kind)
        with cluster.nodes[0], cluster.nodes[1], cluster.nodes[2]:
            yield cluster


def answered(ask: Callable[[], bool]) -> bool:
    """Return False without an answer, as while a process restarts."""
    try:
        return ask()
    except (requests.RequestException, AssertionError):
        return False
