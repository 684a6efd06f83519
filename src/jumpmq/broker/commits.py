"""The broker's side of the store: what was staged is handed over, and who waits for the disk hears of each commit."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from jumpmq.store import Store, StoreError

log = logging.getLogger(__name__)


class Commits:
    """Commits by number, growing. Where nothing is durable there is one, 0, and it is done.

    Attributes:
        store: where durable things are; None where everything is in memory.
        before_flush: called before what is staged is handed over.
        on_commit: called in the event loop when a commit is on disk.
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self.before_flush: Callable[[], None] = _nothing
        self.on_commit: Callable[[], None] = _nothing
        self._loop = asyncio.get_running_loop()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def open(self, directory: Path) -> Store:
        """Open the store in a directory.

        Raises:
            StoreError: it cannot be opened.
        """
        self.store = Store.open(directory, on_commit=self._on_commit, on_error=_log_error)
        self._loop.add_reader(self.store.fileno(), self.store.completed)
        return self.store

    async def close(self) -> None:
        """Commit everything and close the store; other tasks go on meanwhile, but none may use it any more.

        Raises:
            StoreError: the last commit failed.
        """
        if self.store is not None:
            store, self.store = self.store, None
            self._loop.remove_reader(store.fileno())
            await asyncio.to_thread(store.close)

    @property
    def completed(self) -> int:
        """The last commit on disk."""
        return self.store.committed if self.store is not None else 0

    @property
    def backlog(self) -> int:
        """Octets of bodies that wait for the disk."""
        return self.store.staged_bytes if self.store is not None else 0

    def flush(self, *, settlements: bool = False) -> int:
        """Hand what was staged to the store; returns the commit that covers it.

        Args:
            settlements: whether what was acknowledged is worth a commit of its own.
        """
        if self.store is None:
            return 0
        self.before_flush()
        return self.store.flush(settlements=settlements)

    async def wait(self) -> None:
        """Wait until everything staged so far is on disk."""
        commit = self.flush(settlements=True)
        if commit > self.completed:
            waiter = self._loop.create_future()
            self._waiters.append((commit, waiter))
            await waiter

    def _on_commit(self, completed: int) -> None:
        waiters, self._waiters = self._waiters, []
        for commit, waiter in waiters:
            if commit > completed:
                self._waiters.append((commit, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self.on_commit()


def _log_error(error: StoreError) -> None:
    log.error("%s", error)


def _nothing() -> None:
    """Nobody asked."""
