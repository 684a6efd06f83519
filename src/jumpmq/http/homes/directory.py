"""Where the homes of a machine find each other: a directory that is their user's alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jumpmq.broker.config import Config
from jumpmq.broker.links.unix import SECRET
from jumpmq.http.homes.client import HomeClient


@dataclass(frozen=True)
class HomesDirectory:
    """The homes of a machine, as seen by one of them.

    Attributes:
        home: this one's number; they are counted from 1.
        homes: how many there are.
        path: the directory, of mode 0700, with their sockets.
        secret: what each proves to the others that it is one of them.
    """

    home: int
    homes: int
    path: Path
    secret: str

    @classmethod
    def of(cls, config: Config) -> HomesDirectory:
        """That of a started broker with several homes."""
        assert config.links is not None
        return cls(config.home, config.homes, config.links, (config.links / SECRET).read_text())

    def socket(self, home: int) -> Path:
        """Where a home listens for requests of others."""
        return self.path / f"http-{home}.sock"

    def clients(self) -> Iterator[HomeClient]:
        """A client of each of the others."""
        for home in range(1, self.homes + 1):
            if home != self.home:
                yield HomeClient(home, self.socket(home), self.secret)
