"""A real etcd with one or several members."""

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jumpmq.broker import BrokerError
from jumpmq.testing.processes import ending_with_us


def is_installed() -> bool:
    """Return True if ``etcd`` is installed."""
    return shutil.which("etcd") is not None


@dataclass
class EtcdMember:
    """A member of the etcd cluster, as a process.

    Attributes:
        url: URL of the port for clients.
        command: command line that starts the member.
        process: the running process; None while stopped.
    """

    url: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the member on the member's data directory."""
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(
            ending_with_us(self.command), stdin=null, stdout=null, stderr=null, start_new_session=True
        )

    def kill(self) -> None:
        """Kill the member."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self, seconds: float) -> None:
        """Stop the member with SIGSTOP for ``seconds``."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.process.send_signal(signal.SIGCONT)

    @property
    def is_healthy(self) -> bool:
        """True if the member answers, which requires a leader."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return bool(json.loads(answer.read())["health"] == "true")
        except (OSError, ValueError):
            return False


@contextmanager
def etcd(
    directory: Path, count: int = 1, *, sync: bool = False, options: Sequence[str] = ()
) -> Iterator[list[EtcdMember]]:
    """Run ``count`` healthy members with their data in a directory until the block ends.

    Args:
        sync: True to let the members sync their data to disk; False is ignored by versions without such an option.
        options: further options of each member.

    Raises:
        BrokerError: the members do not start.
    """
    ports = _free_ports(2 * count)
    peers = ",".join(f"m{number}=http://127.0.0.1:{ports[2 * number + 1]}" for number in range(count))
    with ExitStack() as stack:
        members = []
        for number in range(count):
            url, peer = (f"http://127.0.0.1:{port}" for port in ports[2 * number : 2 * number + 2])
            command = [
                *("etcd", "--name", f"m{number}", "--data-dir", str(directory / f"etcd-{number}")),
                *("--listen-client-urls", url, "--advertise-client-urls", url),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", peers, "--log-level", "error", "--unsafe-no-fsync"),
                *options,
            ]
            if sync or "--unsafe-no-fsync" not in _help():
                command.remove("--unsafe-no-fsync")
            member = EtcdMember(url, command)
            member.start()
            stack.callback(member.kill)
            members.append(member)
        end = time.monotonic() + 30
        while not all(member.is_healthy for member in members):
            if time.monotonic() > end:
                raise BrokerError("etcd does not start")
            time.sleep(0.05)
        yield members


def _help() -> str:
    return subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False).stdout


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
