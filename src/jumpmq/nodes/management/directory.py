"""Where the homes of a machine find each other: a directory that is their user's alone."""

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
    """The homes of a machine, as seen by one of them.

    Attributes:
        home: this one's number; they are counted from 1.
        path: the directory, of mode 0700, with their sockets.
        secret: what each proves to the others that it is one of them.
    """

    home: int
    path: Path
    secret: str

    @classmethod
    def of(cls, config: Config) -> HomesDirectory:
        """That of a started broker with several homes."""
        assert config.links is not None
        return cls(config.home, config.links, (config.links / SECRET).read_text())

    def socket(self, home: int) -> Path:
        """Where a home listens for requests of others."""
        return self.path / f"http-{home}.sock"

    def client(self, home: int) -> HomeClient:
        """A client of one of the others."""
        return HomeClient(home, partial(asyncio.open_unix_connection, self.socket(home), limit=READ), self.secret)
