"""Links between processes of a machine: Unix sockets in a directory readable only by the processes' user."""

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Collection
from pathlib import Path

SECRET = "secret"
"""File beside the sockets with the secret known to all processes of the broker, and to no other user of the machine."""

Factory = Callable[[], asyncio.BaseProtocol]


class UnixSockets:
    """See :class:`~jumpmq.nodes.transport.links.Ways`.

    Args:
        directory: directory of the sockets; made with mode 0700 if missing.
        home: the number of this process's home.
        homes: number of homes of the broker.
    """

    cluster = ""

    def __init__(self, directory: Path, home: int, homes: int) -> None:
        self.secret = ""
        self.homes: Collection[int] = range(1, homes + 1)
        self.on_change: list[Callable[[], None]] = []  # never called: the number of homes is fixed
        self._directory = directory  # of the sockets
        self._home = home  # number of the local home
        self._server: asyncio.Server | None = None  # accepts links of homes with higher numbers

    async def listen(self, factory: Factory) -> None:
        """Start accepting links from peers.

        Raises:
            OSError: other users of the machine may enter the directory.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(f"{self._directory} is not a directory that only this user may enter")
        self.secret = _shared_secret(self._directory / SECRET)
        if self._home == max(self.homes):
            return
        path = self._socket(self._home)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(factory, path)
        finally:
            os.umask(before)

    async def connect(self, home: int, factory: Factory) -> asyncio.BaseProtocol:
        """Connect to another home's socket."""
        path = str(self._socket(home))
        _, protocol = await asyncio.get_running_loop().create_unix_connection(factory, path)
        return protocol

    def certificate(self, transport: asyncio.Transport, connects: bool) -> bytes:
        """Return an empty certificate, as Unix sockets have no TLS."""
        return b""

    def close(self) -> None:
        """Stop accepting links."""
        if self._server is not None:
            self._server.close()
            self._socket(self._home).unlink(missing_ok=True)

    def _socket(self, home: int) -> Path:
        return self._directory / f"home-{home}.sock"


def _shared_secret(path: Path) -> str:
    """Return the secret in a file, created by the first process."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
    return path.read_text()
