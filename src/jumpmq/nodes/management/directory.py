"""Private directory of the user, for connections between the homes of a machine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jumpmq.broker.config import Config
from jumpmq.nodes.management.client import READ, HomeClient
from jumpmq.nodes.transport.unix import SECRET


@dataclass(frozen=True)
class HomesDirectory:
    """Homes of a machine, as seen by a single home.

    Attributes:
        home: number of the local home, from 1.
        path: the directory with the homes' sockets, of mode 0700.
        secret: shared secret of the homes; each home proves its knowledge of the secret to the others.
    """

    home: int
    path: Path
    secret: str

    @classmethod
    def of(cls, config: Config) -> HomesDirectory:
        """Return the directory of a started broker with several homes."""
        assert config.links is not None
        return cls(config.home, config.links, (config.links / SECRET).read_text())

    def socket(self, home: int) -> Path:
        """Return the path of a home's socket for requests of peers."""
        return self.path / f"http-{home}.sock"

    def client(self, home: int) -> HomeClient:
        """Return a client of another home."""
        return HomeClient(home, partial(asyncio.open_unix_connection, self.socket(home), limit=READ), self.secret)
