"""The first step of a start: the settings are checked, and the data directory is opened. Nothing is restored yet."""

import uuid
from typing import Any

from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.memory import resources
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store import Store, StoreError
from jumpmq.store.kinds import IDENTITY

Record = tuple[str, str, Any]
"""Kind, key and value of a definition's record."""

LEAST_BACKLOG = 4 << 20
"""Minimum octets that may wait for the disk, with little memory."""


class Opened:
    """An open data directory, with the parts shared by the whole broker.

    Args:
        commits: the broker's side of the store; opened here.

    Attributes:
        boot: identity of this run of the process.
        memory: account of the memory held for messages.
        disk_free_limit: octets of disk that have to stay free.
        turns: the broker's turns; every change of the broker's state is part of a turn.
        definitions: the records of the data directory; empty without one.
        identity: stored identity of the broker; None in a new data directory, and without one.

    Raises:
        BrokerError: a setting is invalid, or the data directory cannot be opened.
    """

    def __init__(self, config: Config, commits: Commits) -> None:
        self.config = config
        self.commits = commits
        self.boot = uuid.uuid4().hex
        try:
            self.memory = MemoryAccount(resources.memory_limit(config.memory_limit) // config.homes)
            self.disk_free_limit = resources.disk_free_limit(config.disk_free_limit)
            self.definitions: list[Record] = []
            if config.data_dir is not None:
                self.definitions = commits.open(config.data_dir, self._write_backlog // 2).definitions()
        except (ValueError, StoreError) as error:
            raise BrokerError(str(error)) from None
        self.identity = kept_identity(self.definitions)
        self.turns = Turns(commits, self._write_backlog)

    @property
    def store(self) -> Store | None:
        """Store of durable state; None for a broker in memory."""
        return self.commits.store

    @property
    def _write_backlog(self) -> int:
        """Octets that may wait for the disk: most of a small memory limit is for messages already on disk."""
        return min(self.config.write_backlog, max(self.memory.limit // 8, LEAST_BACKLOG))


def kept_identity(definitions: list[Record]) -> str | None:
    """Return the broker's identity from stored records."""
    return next((value for kind, key, value in definitions if (kind, key) == IDENTITY), None)
