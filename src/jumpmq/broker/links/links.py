"""All links of a process: one to each other home. The process of the higher number connects to that of the lower."""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.links.link import Handler, Link

log = logging.getLogger(__name__)

SECRET = "secret"
"""File beside the sockets with what all processes of the broker know, and no other user of the machine."""

PAUSES = 0.02, 0.1
"""Seconds between two attempts to connect, at first and at most."""

Told = Callable[[Link], None]
"""Is told of a link that is up, or down."""


class Links:
    """The links of one process.

    Args:
        directory: where the sockets are; made with mode 0700 if it is not there.
        home: the number of this process's home.
        homes: how many there are.
        boot: tells this run of the process from all others.

    Attributes:
        handlers: act on records, by kind; kinds below 64 are the log's.
        on_up, on_down: told of each link that is up, or down, in turn.
    """

    def __init__(self, directory: Path, home: int, homes: int, boot: str, turns: Turns) -> None:
        self.handlers: dict[int, Handler] = {}
        self.on_up: list[Told] = []
        self.on_down: list[Told] = []
        self._directory = directory  # where the sockets are
        self._home = home  # the number of this one
        self._homes = homes  # how many there are
        self._boot = boot  # tells this run from all others
        self._turns = turns  # those of the broker
        self._secret = ""  # known to all of them
        self._links: dict[int, Link] = {}  # those that are up, by home
        self._server: asyncio.Server | None = None  # where those of higher numbers connect
        self._connecting: set[asyncio.Task[None]] = set()  # one for each lower number

    @property
    def homes(self) -> list[int]:
        """The numbers of the homes whose links are up."""
        return sorted(self._links)

    def to(self, home: int) -> Link | None:
        """The link to a home; None where it is down."""
        return self._links.get(home)

    async def start(self) -> None:
        """Listen for links, and connect until stopped.

        Raises:
            OSError: the socket cannot be made.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secret = _shared_secret(self._directory / SECRET)
        if self._home < self._homes:
            path = self._socket(self._home)
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self._server = await asyncio.get_running_loop().create_unix_server(self._link, path)
            finally:
                os.umask(before)
        for home in range(1, self._home):
            self._connecting.add(asyncio.get_running_loop().create_task(self._connect(home)))

    async def stop(self) -> None:
        """Break all links."""
        for task in self._connecting:
            task.cancel()
        if self._server is not None:
            self._server.close()
            self._socket(self._home).unlink(missing_ok=True)
        for link in list(self._links.values()):
            link.close()
        await asyncio.sleep(0)

    def _socket(self, home: int) -> Path:
        return self._directory / f"home-{home}.sock"

    def _link(self) -> Link:
        return Link(self._turns, self._home, self._boot, self._secret, self.handlers, self._up, self._down)

    async def _connect(self, home: int) -> None:
        """Keep up the link to a lower number."""
        pause = PAUSES[0]
        while True:
            try:
                path = str(self._socket(home))
                _, link = await asyncio.get_running_loop().create_unix_connection(self._link, path)
            except OSError:
                pause = min(2 * pause, PAUSES[1])
            else:
                await link.ended.wait()
                pause = PAUSES[0] if link.peer else min(2 * pause, PAUSES[1])
            await asyncio.sleep(pause)

    def _up(self, link: Link) -> bool:
        if not 1 <= link.peer <= self._homes or link.peer == self._home:
            log.error("a link of home %d was refused: there are %d homes", link.peer, self._homes)
            return False
        before = self._links.get(link.peer)
        if before is not None:  # its process has started again, and the end of the old one is not known yet
            before.close()
            self._down(before)
        self._links[link.peer] = link
        for told in self.on_up:
            told(link)
        return True

    def _down(self, link: Link) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            for told in self.on_down:
                told(link)


def _shared_secret(path: Path) -> str:
    """What a file says; the first process to come makes it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
    return path.read_text()
