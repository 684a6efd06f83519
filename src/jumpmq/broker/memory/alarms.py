"""Alarms: while memory or disk is short, publishing connections are not read (RabbitMQ, "Memory and Disk Alarms").

An alarm blocks a connection at its first publish during the alarm; this publish is still accepted. The client receives
``connection.blocked``, if it supports that method, and the connection waits until all alarms have ended. Connections
that only consume are never blocked. A connection that publishes and consumes is blocked as a whole.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.memory import resources
from jumpmq.queues.memory import MemoryAccount

log = logging.getLogger(__name__)

CLEARED_AT = 0.95
"""Share of the memory limit at which the alarm ends, lower so that the alarm does not toggle with every message."""


class BlockedPublisher(Protocol):
    """A publishing connection."""

    def block(self, reason: str) -> None:
        """Stop reading from this client, publishing during an alarm, until :meth:`unblock`."""

    def unblock(self) -> None:
        """Resume reading: all alarms have ended."""


class Alarms:
    """The alarms of a broker.

    Args:
        account: memory held for messages.
        commits: a store or streams that cannot write count as a full disk.
        directory: directory of messages; None if nothing is stored.
        disk_free_limit: octets of the disk to keep free.

    Attributes:
        memory, disk, copies: True while the alarm is in effect.
        disk_free: free octets at the last check; None if nothing is stored.
        disk_free_limit: octets below which the disk is short.
    """

    def __init__(self, account: MemoryAccount, commits: Commits, directory: Path | None, disk_free_limit: int) -> None:
        self.memory = self.disk = self.copies = False
        self.disk_free: int | None = None
        self.disk_free_limit = disk_free_limit
        self._account = account
        self._commits = commits
        self._directory = directory
        self._blocked: set[BlockedPublisher] = set()  # blocked until all alarms have ended

    @property
    def active(self) -> bool:
        """True if publishers are to be blocked."""
        return self.memory or self.disk or self.copies or self._account.exhausted

    @property
    def resources(self) -> list[str]:
        """Resources in short supply: ``memory``, ``disk``, ``copies``."""
        alarms = ("memory", self.memory), ("disk", self.disk), ("copies", self.copies)
        return [name for name, short in alarms if short]

    @property
    def reason(self) -> str:
        """Reason for blocking, as sent to publishers."""
        self._look_at_memory()
        return f"low on {' & '.join(self.resources)}"

    def block(self, connection: BlockedPublisher) -> None:
        """Block a connection that has published during an alarm."""
        if connection not in self._blocked:
            self._blocked.add(connection)
            connection.block(self.reason)

    def forget(self, connection: BlockedPublisher) -> None:
        """Forget a connection that is closing or closed."""
        self._blocked.discard(connection)

    def look(self) -> None:
        """Check memory and disk, and unblock all connections if neither is short. Called regularly."""
        self._look_at_memory()
        self._look_at_disk()
        if not self.active:
            while self._blocked:
                self._blocked.pop().unblock()

    def note_copies(self, lacks: bool) -> None:
        """Set whether the home has too few copies to confirm anything."""
        self._note(
            "copies", self.copies, lacks, lambda: "fewer copies are available than must store confirmed messages"
        )
        self.copies = lacks
        if not lacks:
            self.look()

    def _look_at_memory(self) -> None:
        account = self._account
        short = account.total >= account.limit * (CLEARED_AT if self.memory else 1.0)
        self._note(
            "memory", self.memory, short, lambda: f"{account.total} octets are held, the limit is {account.limit}"
        )
        self.memory = short

    def _look_at_disk(self) -> None:
        store = self._commits.store
        if self._directory is None or store is None:
            return
        try:
            self.disk_free = resources.disk_free(self._directory)
        except OSError as error:
            log.warning("cannot tell how much of the disk is free: %s", error)
            return
        free, limit, failure = self.disk_free, self.disk_free_limit, store.error
        short = free < limit or failure is not None
        self._note("disk", self.disk, short, lambda: str(failure or f"{free} octets are free, the limit is {limit}"))
        self.disk = short
        if short:
            store.make_room()

    def _note(self, name: str, before: bool, now: bool, why: Callable[[], str]) -> None:
        if now and not before:
            log.warning("%s alarm: publishers are blocked: %s", name, why())
        elif before and not now:
            log.warning("%s alarm cleared: publishers go on", name)
